"""The bodies of uploads, raw or as a form, read while they arrive and never held whole."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

MOST_FIELDS = 10
MOST_FIELD_BYTES = 1000


class BadForm(Exception):
    """The body is no form that can be read."""


@dataclass(slots=True)
class Part:
    """One field of a form, or the file."""

    name: str = ""
    filename: str | None = None
    content_type: str = ""
    data: bytearray = field(default_factory=bytearray)


class Form:
    """A multipart form with one file.  Fields that are to be known before it have to stand before it."""

    def __init__(self, content_type: str, stream: AsyncIterator[bytes]) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise BadForm
        self.fields: dict[str, str] = {}
        self.file: Part | None = None
        self._stream = stream
        self._part = Part()
        self._header = (bytearray(), bytearray())
        self._chunks: deque[bytes] = deque()
        self._is_over = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_part_data": self._part_data,
                "on_part_end": self._end_part,
                "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
            },
        )

    async def begin(self) -> Part:
        """Read up to the file.  Raises BadForm when there is none."""
        while self.file is None:
            if not await self._feed():
                raise BadForm
        return self.file

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes of the file.  Raises BadForm when the form ends before it does."""
        while True:
            while self._chunks:
                yield self._chunks.popleft()
            if self._is_over:
                return
            if not await self._feed():
                raise BadForm

    async def _feed(self) -> bool:
        async for chunk in self._stream:
            if not chunk:
                continue
            try:
                self._parser.write(chunk)
            except MultipartParseError:
                raise BadForm from None
            return True
        return False

    # ------------------------------------------------------------ what the parser calls

    def _begin_part(self) -> None:
        self._part = Part()

    def _end_header(self) -> None:
        name, value = (bytes(part) for part in self._header)
        self._header = (bytearray(), bytearray())
        if name.lower() == b"content-disposition":
            _, options = parse_options_header(value)
            self._part.name = options.get(b"name", b"").decode("utf-8", "replace")
            if b"filename" in options:
                self._part.filename = options[b"filename"].decode("utf-8", "replace")
        elif name.lower() == b"content-type":
            self._part.content_type = value.decode("latin-1")

    def _end_headers(self) -> None:
        if self._part.filename is not None and self.file is None:
            self.file = self._part

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._part is self.file:
            self._chunks.append(data[start:end])
            return
        if self._part.filename is not None or len(self._part.data) + end - start > MOST_FIELD_BYTES:
            raise BadForm
        self._part.data += data[start:end]

    def _end_part(self) -> None:
        if self._part is self.file:
            self._is_over = True
            return
        if len(self.fields) >= MOST_FIELDS:
            raise BadForm
        self.fields[self._part.name] = bytes(self._part.data).decode("utf-8", "replace")
