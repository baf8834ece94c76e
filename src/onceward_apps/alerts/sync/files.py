"""CSV and Parquet files in a folder: those that grow, those that are replaced, and those that are being written.

A run reads what was there when it began.  The cursor holds, for each file, how far it was read.
"""

from __future__ import annotations

import asyncio
import codecs
import csv
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, Self

from pydantic import Field, field_validator

from onceward_apps.alerts.sync.access import Access
from onceward_apps.alerts.sync.model import Cursor, Page, Row, Unreadable
from onceward_apps.alerts.sync.targets import Settings

# By its beginning a file is known again: one that was replaced begins otherwise, or is shorter.
HEAD = 1024
LONGEST_LINE = 1_000_000


class FileSettings(Settings):
    # A name below the tenant's folder; * and ? stand for anything.
    path: str = Field(min_length=1, max_length=500)
    # Read a file anew from its beginning whenever it has changed, for files that are written over.
    reread: bool = False
    # Seconds for which a file has to rest before its end is trusted: a last line without its newline, a missing footer.
    quiet: float = Field(default=60, ge=0, le=86_400)


class CsvSettings(FileSettings):
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    encoding: str = "utf-8"

    @field_validator("encoding")
    @classmethod
    def _is_read_by_lines(cls, value: str) -> str:
        try:
            if "a,\n".encode(codecs.lookup(value).name) == b"a,\n":
                return value
        except LookupError:
            pass
        raise ValueError("must be an encoding that contains ASCII, as utf-8, latin-1 or cp1252")


class Files(ABC):
    """What both kinds share: which file is next, and whether it is the one of last time."""

    def __init__(self, settings: FileSettings, access: Access, tenant: str) -> None:
        self._settings = settings
        self._access = access
        self._tenant = tenant
        # Path → size when this run began, and whether nothing more is to be had of it in this run.
        self._sizes: dict[Path, int] | None = None
        self._left: set[Path] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *unused: object) -> None:  # noqa: B027 - each file is closed as it is read
        pass

    async def fetch(self, cursor: Cursor) -> Page:
        return await asyncio.to_thread(self._fetch, cursor)

    def _fetch(self, cursor: Cursor) -> Page:
        if self._sizes is None:
            found = self._access.matching(self._tenant, self._settings.path)
            self._sizes = {path: path.stat().st_size for path in found}
        before: dict[str, Any] = (cursor or {}).get("files", {})
        # Files that are gone are forgotten.
        states = {path.name: before[path.name] for path in self._sizes if path.name in before}
        while (path := self._next(states)) is not None:
            page = self._read(path, self._known(path, states.get(path.name)), self._sizes[path])
            if page is None:
                self._left.add(path)
                continue
            rows, columns, state = page
            states[path.name] = state
            return Page(rows, columns, True, {"files": states}, self._next(states) is not None)
        return Page([], {}, False, {"files": states} if states else cursor, False)

    def _next(self, states: dict[str, Any]) -> Path | None:
        assert self._sizes is not None
        for path, size in self._sizes.items():
            if path not in self._left and not self._is_read(path, size, states.get(path.name)):
                return path
        return None

    @abstractmethod
    def _is_read(self, path: Path, size: int, state: dict[str, Any] | None) -> bool: ...

    @abstractmethod
    def _known(self, path: Path, state: dict[str, Any] | None) -> dict[str, Any] | None:
        """The state, unless it is that of another file of the same name."""

    @abstractmethod
    def _read(
        self, path: Path, state: dict[str, Any] | None, size: int
    ) -> tuple[list[Row], dict[str, str], dict[str, Any]] | None:
        """Some rows, the columns, and the state after them.  None when the rest has to wait."""

    def _rests(self, path: Path) -> bool:
        # Of the machine that wrote the file, which is this one or a share: no rule of the engine depends on it.
        return time.time() - path.stat().st_mtime >= self._settings.quiet


class CsvFiles(Files):
    """Read by records, from where the last one ended.  The state holds bytes and lines."""

    _settings: CsvSettings

    def _is_read(self, path: Path, size: int, state: dict[str, Any] | None) -> bool:
        return self._known(path, state) is not None and state is not None and state["offset"] >= size

    def _known(self, path: Path, state: dict[str, Any] | None) -> dict[str, Any] | None:
        if state is None:
            return None
        stat = path.stat()
        same = stat.st_size >= state["offset"] and _head(path, state["offset"]) == state["head"]
        if self._settings.reread:
            same = same and state["written"] == [stat.st_size, stat.st_mtime_ns]
        return state if same else None

    def _read(
        self, path: Path, state: dict[str, Any] | None, size: int
    ) -> tuple[list[Row], dict[str, str], dict[str, Any]] | None:
        stat = path.stat()
        with path.open("rb") as file:
            # One that has grown since this run began may end in the middle of a line, however long ago that was.
            waits = stat.st_size != size or not self._rests(path)
            lines = _Lines(file, path.name, self._settings.encoding, until=size, waits=waits)
            header = next(self._records(lines, path.name), None)
            if header is None:
                return None
            columns = [name.strip() for name in header]
            twice = {name for name in columns if columns.count(name) > 1}
            if twice:
                raise Unreadable(f'file "{path.name}" has the column "{min(twice)}" twice')
            if state is not None:
                lines.go(state["offset"], state["line"])
            rows: list[Row] = []
            for record in self._records(lines, path.name):
                place = f'line {lines.first} of "{path.name}"'
                if record:
                    if len(record) != len(columns):
                        raise Unreadable(
                            f"{place} has {len(record)} fields, and the header has {len(columns)}"
                        )
                    rows.append(Row(place, dict(zip(columns, record, strict=True))))
                if len(rows) >= self._settings.page_size:
                    break
        if not rows and state is not None and state["offset"] == lines.offset:
            return None
        after = {
            "offset": lines.offset,
            "line": lines.line,
            "head": _head(path, lines.offset),
            "written": [stat.st_size, stat.st_mtime_ns],
        }
        return rows, dict.fromkeys(columns, "text"), after

    def _records(self, lines: _Lines, name: str) -> Iterator[list[str]]:
        """Whole records only: one whose end is not there yet is left for another run."""
        reader = csv.reader(lines, delimiter=self._settings.delimiter, strict=True)
        while True:
            lines.begin()
            try:
                record = next(reader)
            except StopIteration:
                lines.back()
                return
            except csv.Error as error:
                if lines.ended and lines.waits:
                    lines.back()
                    return
                raise Unreadable(f'line {lines.first} of "{name}" is not CSV: {error}') from None
            yield record


class _Lines:
    """Lines of a file with their place in it.  Ends before a last line whose end may not be written yet."""

    def __init__(self, file: IO[bytes], name: str, encoding: str, *, until: int, waits: bool) -> None:
        self._file, self._name, self._until = file, name, until
        self._encoding = encoding
        # Whether only lines with a newline are taken, and a record that is cut off is waited for.
        self.waits = waits
        self.offset = self.line = 0
        self.first = 1
        self.ended = False
        self._began = (0, 0)

    def go(self, offset: int, line: int) -> None:
        self._file.seek(offset)
        self.offset, self.line, self.ended = offset, line, False

    def begin(self) -> None:
        """A record begins here."""
        self._began, self.first = (self.offset, self.line), self.line + 1

    def back(self) -> None:
        self.go(*self._began)
        self.ended = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        raw = self._file.readline(min(LONGEST_LINE, self._until - self.offset)) if not self.ended else b""
        cut = not raw.endswith(b"\n")
        if cut and len(raw) >= LONGEST_LINE:
            raise Unreadable(f'line {self.line + 1} of "{self._name}" is longer than {LONGEST_LINE} bytes')
        if not raw or (cut and self.waits):
            self.ended = True
            raise StopIteration
        text = raw.removeprefix(codecs.BOM_UTF8) if self.offset == 0 else raw
        try:
            decoded = text.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise Unreadable(
                f'line {self.line + 1} of "{self._name}" is not {self._encoding}: byte {error.start + 1} is '
                f"{text[error.start]:#04x}",
                hint="Name its encoding in the settings of the source, as cp1252.",
            ) from None
        self.offset += len(raw)
        self.line += 1
        return decoded


class ParquetFiles(Files):
    """Read by row groups.  A file that has changed is another file, and read from its beginning."""

    def _is_read(self, path: Path, size: int, state: dict[str, Any] | None) -> bool:
        known = self._known(path, state)
        return known is not None and bool(known["done"])

    def _known(self, path: Path, state: dict[str, Any] | None) -> dict[str, Any] | None:
        stat = path.stat()
        same = state is not None and state["written"] == [stat.st_size, stat.st_mtime_ns]
        return state if same else None

    def _read(
        self, path: Path, state: dict[str, Any] | None, size: int
    ) -> tuple[list[Row], dict[str, str], dict[str, Any]] | None:
        pyarrow, parquet = _arrow()
        stat = path.stat()
        written = [stat.st_size, stat.st_mtime_ns]
        group, row = (state["group"], state["row"]) if state else (0, 0)
        try:
            with parquet.ParquetFile(path) as file:
                columns = {field.name: _arrow_kind(pyarrow, field.type) for field in file.schema_arrow}
                rows: list[Row] = []
                groups = file.metadata.num_row_groups
                if group < groups:
                    table = file.read_row_group(group).slice(row, self._settings.page_size)
                    begins = sum(file.metadata.row_group(number).num_rows for number in range(group)) + row
                    rows = [
                        Row(f'row {begins + index + 1} of "{path.name}"', values)
                        for index, values in enumerate(table.to_pylist())
                    ]
                    row += len(rows)
                    if row >= file.metadata.row_group(group).num_rows:
                        group, row = group + 1, 0
        except (pyarrow.ArrowException, OSError) as error:
            if not self._rests(path):
                # It is being written: its footer comes last.
                return None
            raise Unreadable(f'file "{path.name}" is not Parquet: {error!s:.200}') from None
        return rows, columns, {"written": written, "group": group, "row": row, "done": group >= groups}


def _head(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(min(HEAD, offset))).hexdigest()[:16]


def _arrow() -> tuple[Any, Any]:
    try:
        # Without stubs, and needed only where there are such files.
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise Unreadable(
            "Parquet needs the package pyarrow", hint='Install it with pip install "onceward[apps]".'
        ) from None
    return pyarrow, parquet


Kind = Literal["text", "number", "boolean", "timestamp", "json", "binary", "null"]


def _arrow_kind(pyarrow: Any, kind: Any) -> str:
    types = pyarrow.types
    if types.is_dictionary(kind):
        return _arrow_kind(pyarrow, kind.value_type)
    tests: list[tuple[Kind, tuple[Any, ...]]] = [
        ("text", (types.is_string, types.is_large_string)),
        ("number", (types.is_integer, types.is_floating, types.is_decimal)),
        ("boolean", (types.is_boolean,)),
        ("timestamp", (types.is_timestamp, types.is_date)),
        ("json", (types.is_nested,)),
        ("binary", (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)),
        ("null", (types.is_null,)),
    ]
    return next((name for name, checks in tests if any(check(kind) for check in checks)), str(kind))
