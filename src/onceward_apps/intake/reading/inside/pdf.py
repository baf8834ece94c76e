"""What a PDF holds beside its pages: read as a structure, by qpdf, without running or drawing anything."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

import pikepdf

from onceward_apps.intake.reading.errors import Refused

# Actions that run something, send something or open another file.
_ACTIONS: Final = {
    "/JavaScript": "a script",
    "/Launch": "an action that starts a program",
    "/SubmitForm": "a form that sends itself",
    "/ImportData": "an action that loads data",
    "/GoToR": "an action that opens another file",
    "/GoToE": "an action that opens an attachment",
    "/Rendition": "embedded media",
    "/Movie": "embedded media",
    "/Sound": "embedded media",
    "/RichMediaExecute": "embedded media",
}
_KEYS: Final = {
    "/JS": "a script",
    "/JavaScript": "a script",
    "/XFA": "a form that runs code",
    "/EmbeddedFiles": "attached files",
    "/EF": "attached files",
    "/RichMediaContent": "embedded media",
}
_SUBTYPES: Final = {
    "/FileAttachment": "attached files",
    "/RichMedia": "embedded media",
    "/3D": "embedded media",
    "/Movie": "embedded media",
    "/Screen": "embedded media",
    "/Sound": "embedded media",
}
_OBJECTS: Final = 500_000
_DEPTH: Final = 64
_PICTURE_FILTERS: Final = frozenset(("/DCTDecode", "/JPXDecode", "/CCITTFaxDecode", "/JBIG2Decode"))


def look(path: str, limits: dict[str, Any]) -> tuple[int, list[tuple[str, str]]]:
    """Pages and findings."""
    try:
        with pikepdf.open(path, suppress_warnings=True) as pdf:
            pages = len(pdf.pages)
            if pages == 0:
                raise Refused("malformed", "the PDF has no pages")
            if pages > limits["pages"]:
                raise Refused("too_many_pages", f"the PDF has {pages} pages, more than {limits['pages']}")
            findings = _walk(pdf, limits)
            if pdf.is_encrypted:
                # Anybody can open it; printing or copying is what its author would rather not see.
                findings.append(("restricted", ""))
            if pdf.get_warnings():
                findings.append(("repaired", ""))
            return pages, findings
    except pikepdf.PasswordError:
        raise Refused("encrypted", "the PDF is protected by a password") from None
    except (pikepdf.PdfError, ValueError, TypeError, OverflowError):
        raise Refused("malformed", "the PDF is damaged") from None


def _walk(pdf: pikepdf.Pdf, limits: dict[str, Any]) -> list[tuple[str, str]]:
    unpacked = 0
    links = False
    form = False
    if len(pdf.objects) > _OBJECTS:
        raise Refused("bomb", f"the PDF has {len(pdf.objects)} objects, more than {_OBJECTS}")
    for top in pdf.objects:
        for held in _dictionaries(top):
            _refuse_active(held)
            links = links or held.get("/S") == "/URI"
            form = form or "/AcroForm" in held
        if isinstance(top, pikepdf.Stream):
            unpacked += _unpacked(top, limits)
            if unpacked > limits["unpacked_total"]:
                raise Refused("bomb", "the PDF unpacks to far more than it is")
    return [("links", "")] * links + [("form", "")] * form


def _dictionaries(top: Any) -> Iterator[Any]:
    """The dictionaries of an object, its own and those directly inside; others are objects of their own."""
    waiting = [(top, 0)]
    while waiting:
        held, depth = waiting.pop()
        if depth > _DEPTH:
            raise Refused("malformed", "the PDF is nested too deeply")
        if isinstance(held, (pikepdf.Dictionary, pikepdf.Stream)):
            yield held
            inner: list[Any] = [value for _, value in held.items()]
        elif isinstance(held, pikepdf.Array):
            inner = list(held)
        else:
            continue
        waiting.extend(
            (value, depth + 1)
            for value in inner
            if isinstance(value, (pikepdf.Dictionary, pikepdf.Array)) and not value.is_indirect
        )


def _refuse_active(held: Any) -> None:
    what = next((_KEYS[key] for key in _KEYS if key in held), None)
    what = what or _ACTIONS.get(str(held.get("/S", "")))
    what = what or (_SUBTYPES.get(str(held.get("/Subtype", ""))) if held.get("/Type") != "/Font" else None)
    what = what or ("attached files" if held.get("/Type") == "/EmbeddedFile" else None)
    if what:
        raise Refused("active_content", f"the PDF holds {what}")


def _unpacked(stream: pikepdf.Stream, limits: dict[str, Any]) -> int:
    """How many bytes a stream unpacks to, pictures apart, whose size is known before.  Raises Refused above the limit."""
    filters = _filters(stream)
    allowed = int(limits["unpacked_stream"])
    picture = stream.get("/Subtype") == "/Image"
    if picture:
        pixels = _number(stream.get("/Width")) * _number(stream.get("/Height"))
        if pixels > limits["pixels"]:
            raise Refused(
                "too_many_pixels", f"the PDF holds a picture of {pixels} pixels, more than {limits['pixels']}"
            )
        if len(filters) <= 1:
            # It is unpacked line by line, up to its size, when it is drawn.
            return 0
        allowed = max(allowed, pixels * 4)
    data = stream.read_raw_bytes()
    if len(filters) > 4:
        raise Refused("bomb", "the PDF holds data packed more than four times")
    for name in filters:
        if name in _PICTURE_FILTERS:
            break
        data = _step(data, name, allowed)
    return 0 if picture else len(data)


def _step(data: bytes, name: str, allowed: int) -> bytes:
    """One filter undone; those that hardly swell are left to the reader, under the limits of the process."""
    if name not in {"/FlateDecode", "/Fl"}:
        return data
    engine = zlib.decompressobj()
    try:
        out = engine.decompress(data, allowed + 1)
    except zlib.error:
        # Readers show what they can of a damaged stream; what is left of the bytes bounds it.
        return b""
    if len(out) > allowed:
        raise Refused("bomb", "the PDF unpacks to far more than it is")
    return out


def _filters(stream: pikepdf.Stream) -> list[str]:
    held = stream.get("/Filter")
    if held is None:
        return []
    return [str(name) for name in held] if isinstance(held, pikepdf.Array) else [str(held)]


def _number(value: Any) -> int:
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        return 0
