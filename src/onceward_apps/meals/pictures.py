"""Pictures of QR codes, read for counters whose browsers cannot."""

from __future__ import annotations

import io

# A picture of a counter's camera is smaller than that by far; unpacked, it may have so many points.
MOST_POINTS = 16_000_000


class NoPicture(ValueError):
    """What was sent is no JPEG or PNG, is broken, or is too large."""


def read_picture(picture: bytes) -> str | None:
    """The text of the QR code in a JPEG or PNG; None when there is none in it.  Raises NoPicture."""
    import zxingcpp
    from PIL import Image

    try:
        with Image.open(io.BytesIO(picture), formats=("JPEG", "PNG")) as opened:
            if opened.width * opened.height > MOST_POINTS:
                raise NoPicture
            grey = opened.convert("L")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        raise NoPicture from None
    found = zxingcpp.read_barcodes(grey, formats=zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode))
    return found[0].text if found else None
