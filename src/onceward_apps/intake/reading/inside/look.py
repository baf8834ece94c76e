"""Looks into a file and refuses what must not be opened further."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from onceward_apps.intake.reading.errors import Refused

# Browsers and interpreters find these anywhere in a file that they are made to believe is theirs.
_MARKUP: Final = re.compile(rb"<script[\s>]|<\?php|<html[\s>]|<!doctype\s+html|<svg[\s>]", re.IGNORECASE)
_STARTS: Final = {
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "a ZIP archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"MZ": "a program",
    b"\x7fELF": "a program",
    b"\xca\xfe\xba\xbe": "a program",
    b"#!": "a script",
    b"GIF8": "a GIF",
}
# PDF readers look for the header this far into a file.
_PDF_REACH: Final = 1024
_ZIP_END: Final = b"PK\x05\x06"
_ZIP_END_SIZE: Final = 22
_ZIP_REACH: Final = _ZIP_END_SIZE + 65_535


def into(path: str, kind: str, limits: dict[str, Any]) -> dict[str, Any]:
    """Pages and findings, as JSON.  Raises Refused."""
    findings: list[tuple[str, str]] = []
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        refuse_second_type(raw, kind)
        findings.extend(_trailing(raw, kind))
    if kind == "pdf":
        from onceward_apps.intake.reading.inside import pdf

        pages, more = pdf.look(path, limits)
    else:
        from onceward_apps.intake.reading.inside import picture

        pages, more = picture.look(path, kind, limits)
    return {"pages": pages, "findings": findings + more}


def refuse_second_type(raw: mmap.mmap, kind: str) -> None:
    """A file that is two types at once is shown as one and run as the other."""
    head = raw[:_PDF_REACH]
    if kind != "pdf" and b"%PDF-" in head:
        raise _polyglot("a PDF")
    # Text in a PDF may speak of HTML; its first bytes do not.
    found = _MARKUP.search(head if kind == "pdf" else raw)
    if found:
        raise _polyglot("a web page or script")
    tail = raw[-min(len(raw), _ZIP_REACH) :]
    at = tail.rfind(_ZIP_END)
    if 0 <= at <= len(tail) - _ZIP_END_SIZE:
        comment = int.from_bytes(tail[at + 20 : at + 22], "little")
        # Compressed data holds those four bytes now and then, but not with a length that reaches to the end.
        if at + _ZIP_END_SIZE + comment >= len(tail) - 2:
            raise _polyglot("a ZIP archive")


def _trailing(raw: mmap.mmap, kind: str) -> Iterator[tuple[str, str]]:
    """What stands behind the end of the file proper: refused when it is a file itself, else mentioned.

    Phones append thumbnails and films to photographs, so that something is there means little.
    """
    end = _end(raw, kind)
    if end is None:
        return
    rest = raw[end : end + 4096].lstrip(b"\0\r\n\t ")
    for start, name in _STARTS.items():
        if rest.startswith(start):
            raise _polyglot(name)
    if rest:
        yield "trailing_data", f"{len(raw) - end} bytes"


def _end(raw: mmap.mmap, kind: str) -> int | None:
    match kind:
        case "pdf":
            at = raw.rfind(b"%%EOF")
            if at < 0 or (len(raw) - at > 64 * 1024 and raw[at + 5 :].strip(b"\0\r\n\t ")):
                raise Refused("malformed", "the file is cut off: the end of the PDF is missing")
            return at + 5
        case "png":
            return _png_end(raw)
        case "jpeg":
            at = raw.find(b"\xff\xd9", max(0, raw.rfind(b"\xff\xda")))
            if at < 0:
                raise Refused("malformed", "the file is cut off: the end of the picture is missing")
            return at + 2
        case _:
            return None


def _png_end(raw: mmap.mmap) -> int:
    at = 8
    while at + 12 <= len(raw):
        length = int.from_bytes(raw[at : at + 4], "big")
        name = raw[at + 4 : at + 8]
        at += 12 + length
        if name == b"IEND":
            return at
    raise Refused("malformed", "the file is cut off: the end of the picture is missing")


def _polyglot(name: str) -> Refused:
    return Refused("polyglot", f"the file is {name} at the same time")
