"""QR codes: as pixels for screens and mail, as a drawing for print."""

from __future__ import annotations

import io

import segno

# Modules of white around the code; scanners expect four (ISO/IEC 18004).
QUIET_ZONE = 4


def png(content: str, *, pixels: int) -> bytes:
    """A black-on-white PNG of exactly `pixels` by `pixels`.

    Modules are whole pixels, so that edges stay sharp; what is left over widens the quiet zone.
    """
    from PIL import Image

    code = _make(content)
    modules = code.symbol_size(border=QUIET_ZONE)[0]
    scale = pixels // modules
    if scale < 1:
        message = f"a code of {modules} modules does not fit into {pixels} pixels"
        raise ValueError(message)
    small = io.BytesIO()
    code.save(small, kind="png", scale=scale, border=QUIET_ZONE)
    with Image.open(small) as drawn:
        canvas = Image.new("1", (pixels, pixels), color=1)
        edge = (pixels - drawn.width) // 2
        canvas.paste(drawn.convert("1"), (edge, edge))
    out = io.BytesIO()
    canvas.save(out, format="PNG", optimize=True)
    return out.getvalue()


def svg(content: str) -> str:
    """An SVG without size or colours of its own: the page or the label gives it both (`currentColor`)."""
    out = io.BytesIO()
    _make(content).save(
        out, kind="svg", border=QUIET_ZONE, dark="#000", omitsize=True, xmldecl=False, nl=False
    )
    # The library takes colours only.
    return out.getvalue().decode().replace('stroke="#000"', 'stroke="currentColor"')


def _make(content: str) -> segno.QRCode:
    # Medium correction survives a scratched pouch; boosted when the same size allows more.
    return segno.make_qr(content, error="m", boost_error=True)
