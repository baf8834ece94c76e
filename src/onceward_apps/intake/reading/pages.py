"""Page images of a file that was scanned."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from onceward_apps.intake.reading import confined
from onceward_apps.intake.reading.errors import Refused
from onceward_apps.intake.reading.model import Kind, Limits, PageImage

# Ordinary print is some twenty pixels high, which OCR reads well; more of them take more time.
DPI: Final = 150


def render(
    path: str | PathLike[str], kind: Kind, *, dpi: int = DPI, limits: Limits | None = None
) -> Iterator[PageImage]:
    """Every page as a PNG, one after the other, made in a confined child process.

    Photographs are turned as their EXIF data says and brought to the size that a sheet of A4 has at `dpi`; smaller ones
    are left as they are.  Blocks while it waits for the child: use a thread.  Raises Refused.
    """
    if not 36 <= dpi <= 600:
        raise ValueError(f"dpi must be from 36 to 600, got {dpi}")
    limits = limits or Limits()
    place = str(Path(fspath(path)).resolve())
    drawn = confined.run("draw", limits, path=place, kind=kind, dpi=dpi)
    for number, frame in enumerate(drawn, 1):
        if number > limits.pages:
            raise Refused("too_many_pages", f"the file has more than {limits.pages} pages")
        yield PageImage(number, int(frame.header["width"]), int(frame.header["height"]), frame.blob)
