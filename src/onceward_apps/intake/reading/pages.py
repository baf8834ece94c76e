"""Page images of a file that was scanned."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import Final

from onceward_apps.intake.reading import confined
from onceward_apps.intake.reading.model import Kind, Limits, PageImage

# What OCR reads best for its time; twice as much reads no better (see README.md).
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
    for frame in confined.run("draw", limits, path=place, kind=kind, dpi=dpi):
        header = frame.header
        yield PageImage(
            number=int(header["number"]),
            width=int(header["width"]),
            height=int(header["height"]),
            png=frame.blob,
        )
