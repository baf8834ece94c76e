"""Pictures, opened as the one format that their first bytes announce."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from PIL import Image, ImageFile, ImageSequence

from onceward_apps.intake.reading.errors import Refused

_FORMATS: Final = {"jpeg": ("JPEG", "MPO"), "png": ("PNG",), "tiff": ("TIFF",), "heic": ("HEIF",)}
_GPS: Final = 0x8825
_ORIENTATION: Final = 0x0112
# What makes a picture upright, by the value of its EXIF orientation.
_TURNS: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def look(path: str, kind: str, limits: dict[str, Any]) -> tuple[int, list[tuple[str, str]]]:
    """Pages and findings.  Every picture is decoded once, so that a broken one is refused here."""
    findings: list[tuple[str, str]] = []
    count = 0
    with opened(path, kind) as picture:
        for frame in frames(picture, kind, limits):
            frame.load()
            count += 1
            # Only now: asking for it reads some formats to their end.
            if count == 1 and _GPS in frame.getexif():
                findings.append(("location", ""))
    return count, findings


def frames(picture: Image.Image, kind: str, limits: dict[str, Any]) -> Iterator[Image.Image]:
    """The pages of a TIFF, the one picture of everything else, none of them decoded yet."""
    for number, frame in enumerate(ImageSequence.Iterator(picture), 1):
        if number > limits["pages"]:
            raise Refused("too_many_pages", f"the picture has more than {limits['pages']} pages")
        if frame.width * frame.height > limits["pixels"]:
            raise Refused(
                "too_many_pixels",
                f"the picture has {frame.width * frame.height} pixels, more than {limits['pixels']}",
            )
        yield frame
        if kind != "tiff":
            return


@contextmanager
def opened(path: str, kind: str) -> Iterator[Image.Image]:
    """A picture whose trouble, from here to the end of the block, is a refusal."""
    if kind == "heic":
        import pillow_heif

        pillow_heif.register_heif_opener(thumbnails=False)
    # Sizes are checked in `frames`, where the limit is known.
    Image.MAX_IMAGE_PIXELS = None
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    warnings.simplefilter("ignore")
    try:
        with Image.open(path, formats=_FORMATS[kind]) as picture:
            yield picture
    except (
        OSError,
        SyntaxError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        EOFError,
        OverflowError,
    ) as error:
        raise Refused("malformed", "the picture is damaged") from error
    except Image.DecompressionBombError as error:
        raise Refused("bomb", "the picture unpacks to far more than it is") from error


def small(frame: Image.Image, longest: int) -> Image.Image:
    """At most so long, upright as its EXIF data says, in plain RGB on white.

    The large copy is reduced first: turning and converting it would each need as much memory again.
    """
    frame.draft("RGB", (longest, longest))
    exif = frame.getexif()
    frame.load()
    made: Image.Image = frame
    if made.mode == "P" or made.mode.startswith("I;16"):
        made = _eight_bits(made)
    factor = max(made.width, made.height) // max(1, 2 * longest)
    if factor >= 2:
        made = made.reduce(factor)
    if made.mode in {"RGBA", "LA", "PA", "La", "RGBa"}:
        made = made.convert("RGBA")
        white = Image.new("RGB", made.size, "white")
        white.paste(made, mask=made.getchannel("A"))
        made = white
    made = made.convert("RGB")
    made.thumbnail((longest, longest), Image.Resampling.LANCZOS)
    return _turned(made, exif.get(_ORIENTATION, 1))


def _eight_bits(picture: Image.Image) -> Image.Image:
    if picture.mode == "P":
        return picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    return picture.point(lambda value: value / 256).convert("L")


def _turned(picture: Image.Image, orientation: object) -> Image.Image:
    return (
        picture.transpose(_TURNS[orientation])
        if isinstance(orientation, int) and orientation in _TURNS
        else picture
    )
