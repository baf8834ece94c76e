"""PDFs and pictures from typst templates: in some ten milliseconds, in this process, with every font embedded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import typst


def pdf(
    template: Path,
    data: Mapping[str, Any],
    *,
    fonts: Sequence[Path] = (),
    archival: bool = False,
) -> bytes:
    """Typeset a template, which reads `data` as `json(bytes(sys.inputs.data))`.

    Fonts are looked for in `fonts` and then in the wheel that is always there, never on the machine: the same data gives
    the same pages everywhere.  Raises typst.TypstError, which says where the template is wrong or that a text does not fit.
    With `archival` also when the pages are no PDF/A-2b, in which every character has its letter form.
    """
    made = typst.compile(
        template,
        root=template.parent,
        font_paths=_found(tuple(fonts)),
        sys_inputs={"data": json.dumps(data)},
        format="pdf",
        pdf_standards="a-2b" if archival else None,
    )
    assert isinstance(made, bytes)
    return made


def png(template: Path, data: Mapping[str, Any], *, fonts: Sequence[Path] = (), ppi: float = 72) -> bytes:
    """A template of one page as a picture; at 72 pixels per inch, a point of the template is a pixel.  Raises typst.TypstError."""
    made = typst.compile(
        template,
        root=template.parent,
        font_paths=_found(tuple(fonts)),
        sys_inputs={"data": json.dumps(data)},
        format="png",
        ppi=ppi,
    )
    assert isinstance(made, bytes)
    return made


@cache
def _found(folders: tuple[Path, ...]) -> typst.Fonts:
    """Reading font files takes longer than typesetting a page: once per process."""
    return typst.Fonts(
        include_system_fonts=False, include_embedded_fonts=False, font_paths=[*folders, manrope()]
    )


def manrope() -> Path:
    """The folder of the typeface that comes with the package."""
    return Path(str(resources.files("font_manrope") / "files"))
