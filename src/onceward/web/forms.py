"""What a form sends, within bounds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from onceward.errors import InvalidArgument

MOST_BYTES = 1024 * 1024
MOST_FIELDS = 2000
# With files, which only people send who have signed in.
MOST_UPLOAD = 16 * 1024 * 1024
MOST_FILES = 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of a form.  Name and kind are what the browser says: to be checked, and not to be used as a path."""

    filename: str
    content_type: str
    content: bytes


class Form:
    """Fields of a form, each a text."""

    def __init__(self, fields: dict[str, list[str]], files: Mapping[str, Upload] | None = None) -> None:
        self._fields = fields
        # By the name of the field; one that was left empty is not there.
        self.files = files or {}

    def text(self, name: str, default: str = "") -> str:
        """The last value of the field, without spaces around it."""
        return self._fields.get(name, [default])[-1].strip()

    def all(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def names(self) -> list[str]:
        return list(self._fields)

    def raw(self, name: str) -> str:
        return self._fields.get(name, [""])[-1]

    def checked(self, name: str) -> bool:
        return bool(self.text(name))


class TooLarge(InvalidArgument):
    """The form is larger than a form may be."""


async def read_form(request: Request, *, files: bool = False) -> Form:
    """Read once per request; asking again gives the same.  With files, where somebody has signed in.

    Raises TooLarge, and InvalidArgument when a field has a NUL character, which no database keeps.
    """
    known: Form | None = getattr(request.state, "form", None)
    if known is not None:
        return known
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data" and files:
        sent = request.state.form = await _read_multipart(request)
        return sent
    body = b"".join([chunk async for chunk in _bounded(request, MOST_BYTES)])
    if kind and kind != "application/x-www-form-urlencoded":
        raise InvalidArgument(f"a form is sent as application/x-www-form-urlencoded, got {kind[:60]!r}")
    try:
        fields = parse_qs(
            body.decode("utf-8"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise InvalidArgument("the form cannot be read", detail=str(error)[:200]) from None
    # Browsers send line ends as CR LF.
    form = _storable(
        {name: [value.replace("\r\n", "\n") for value in values] for name, values in fields.items()}
    )
    request.state.form = form
    return form


def _storable(fields: dict[str, list[str]], files: Mapping[str, Upload] | None = None) -> Form:
    for name, values in fields.items():
        if any("\0" in text for text in (name, *values)):
            raise InvalidArgument(f"{name.replace(chr(0), '')[:60]} must not contain NUL characters")
    return Form(fields, files)


async def _bounded(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """The body, as it comes in.  Raises TooLarge."""
    size = 0
    said = request.headers.get("content-length", "")
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            whole = f"{int(said) // 1024:,} KiB" if said.isascii() and said.isdigit() else "more"
            raise TooLarge(
                f"a form may have {most // 1024:,} KiB, and this one has {whole}",
                detail="Nothing was changed.",
                hint="Go back: the browser still has what you have typed. Make it smaller, and send it again.",
            )
        yield chunk


async def _read_multipart(request: Request) -> Form:
    parser = MultiPartParser(
        request.headers,
        _bounded(request, MOST_UPLOAD),
        max_files=MOST_FILES,
        max_fields=MOST_FIELDS,
        max_part_size=MOST_BYTES,
    )
    try:
        parsed = await parser.parse()
    except MultiPartException as error:
        raise InvalidArgument("the form cannot be read", detail=error.message[:200]) from None
    fields: dict[str, list[str]] = {}
    files: dict[str, Upload] = {}
    async with contextlib.AsyncExitStack() as closing:
        for name, value in parsed.multi_items():
            if not isinstance(value, UploadFile):
                fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
                continue
            closing.push_async_callback(value.close)
            content = await value.read()
            if value.filename or content:
                files[name] = Upload(value.filename or "", value.content_type or "", content)
    return _storable(fields, files)
