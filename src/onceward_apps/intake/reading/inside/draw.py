"""Page images: a PDF drawn by pdfium, or the pages of a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any, Final

from PIL import Image

from onceward_apps.intake.reading.errors import Refused

# The long side of a sheet of A4, in inches: photographs of sheets are brought to the same size as drawn ones.
A4: Final = 11.69
_POINTS: Final = 72
# Of one page, whatever its paper is.
_PIXELS: Final = 16_000_000


def pages(path: str, kind: str, dpi: int, limits: dict[str, Any]) -> Iterator[tuple[int, int, bytes]]:
    """Width, height and PNG of every page."""
    drawn = _of_pdf(path, dpi, limits) if kind == "pdf" else _of_picture(path, kind, dpi, limits)
    for image in drawn:
        out = io.BytesIO()
        # Fast rather than small: the images are read more often by programs than sent to people.
        image.save(out, "PNG", compress_level=1)
        yield image.width, image.height, out.getvalue()


def _of_pdf(path: str, dpi: int, limits: dict[str, Any]) -> Iterator[Image.Image]:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError:
        raise Refused("malformed", "the PDF is damaged") from None
    if len(document) > limits["pages"]:
        raise Refused("too_many_pages", f"the PDF has {len(document)} pages, more than {limits['pages']}")
    if document.get_formtype():
        # Fills in what somebody typed into a form.  The wheel has no JavaScript in it.
        document.init_forms()
    for number in range(len(document)):
        try:
            page = document[number]
            width, height = page.get_size()
            if not (width > 0 and height > 0 and math.isfinite(width * height)):
                raise Refused("malformed", "the PDF has a page without a size")
            scale = min(
                dpi / _POINTS,
                # No page is drawn larger than its content deserves: posters and bombs alike.
                math.sqrt(_PIXELS / (width * height)),
                2 * dpi * A4 / max(width, height),
            )
            yield page.render(scale=scale, rev_byteorder=True).to_pil().convert("RGB")
            page.close()
        except pypdfium2.PdfiumError:
            raise Refused("malformed", f"page {number + 1} of the PDF is damaged") from None


def _of_picture(path: str, kind: str, dpi: int, limits: dict[str, Any]) -> Iterator[Image.Image]:
    from onceward_apps.intake.reading.inside import picture

    with picture.opened(path, kind) as image:
        for frame in picture.frames(image, kind, limits):
            yield picture.small(frame, round(dpi * A4))
