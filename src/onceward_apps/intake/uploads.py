"""Uploads: who may, what it is, where it lies; then row, usage and job in one transaction.

The object is written first, under a new name in the profile's own folder, and hashed on its way.  What goes wrong afterwards
leaves an object that no row knows, which is deleted at once or by the sweep; it never leaves a row without an object.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid4

from onceward.logs import get as get_log
from onceward_apps.intake import store
from onceward_apps.intake.reading import kinds
from onceward_apps.intake.reading.model import Kind
from onceward_apps.intake.settings import Settings
from onceward_apps.kit.streams import put_stream

log = get_log("onceward_apps.intake")
# A key is sent back in headers and logged: plain characters.
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
# Of a page of a PDF, and of a page in tokens; both are guesses that OCR replaces.
_BYTES_OF_PAGE: Final = 60_000
_TOKENS_OF_PAGE: Final = 1500


class Refusal(Exception):
    """A request that is not done, and why, in words for whoever sent it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for, before its file is read."""

    user: UUID
    profile: UUID
    filename: str
    key: str | None
    correlation: UUID

    @classmethod
    def read(cls, user: UUID, *, profile: str, filename: str, key: str | None, correlation: UUID) -> Wish:
        """Raises Refusal."""
        try:
            profile_id = UUID(profile)
        except ValueError:
            raise Refusal(400, "bad_request", "profile_id must be the id of a profile.") from None
        if key is not None and not _KEY.fullmatch(key):
            raise Refusal(
                400,
                "bad_request",
                "The idempotency key must be 1 to 200 printable characters without spaces.",
            )
        name = plain_name(filename)
        if not name:
            raise Refusal(400, "bad_request", "filename is missing.")
        return cls(user, profile_id, name, key, correlation)


def plain_name(filename: str) -> str:
    """The last part of a name, without control characters, at most 200 characters and with its extension."""
    name = re.split(r"[/\\]", filename)[-1]
    name = "".join(char for char in unicodedata.normalize("NFC", name) if char.isprintable()).strip()
    if len(name) <= 200:
        return name
    stem, dot, extension = name.rpartition(".")
    return (
        f"{stem[: 200 - len(extension) - 1]}{dot}{extension}" if dot and len(extension) < 10 else name[:200]
    )


class Meter:
    """Passes chunks on: counts and hashes them, and looks at the first bytes before anything is written."""

    def __init__(self, chunks: AsyncIterator[bytes], name: str, most: int) -> None:
        self._chunks = chunks
        self._declared = kinds.declared(name)
        self._most = most
        self._hash = hashlib.sha256()
        self.size = 0
        self.kind: Kind | None = None

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    async def begin(self) -> AsyncIterator[bytes]:
        """The chunks, once enough is there to know what it is.  Raises Refusal."""
        head = b""
        async for chunk in self._chunks:
            head += chunk
            if len(head) >= kinds.HEAD:
                break
        if not head:
            raise Refusal(400, "empty", "The file is empty.")
        self.kind = kinds.sniff(head[: kinds.HEAD])
        if self.kind is None:
            raise Refusal(415, "unsupported_type", "Only PDF, JPEG, PNG, TIFF and HEIC files can be read.")
        if self._declared != self.kind:
            raise Refusal(
                415, "type_mismatch", f"The file is {self.kind.upper()}, which is not what its name says."
            )
        return self._rest(head)

    async def _rest(self, head: bytes) -> AsyncIterator[bytes]:
        yield self._count(head)
        async for chunk in self._chunks:
            yield self._count(chunk)

    def _count(self, chunk: bytes) -> bytes:
        self.size += len(chunk)
        if self.size > self._most:
            raise Refusal(413, "too_large", f"The file is larger than {self._most // 1024 // 1024} MB.")
        self._hash.update(chunk)
        return chunk


class Uploads:
    def __init__(self, settings: Settings, database: store.Database) -> None:
        self._settings = settings
        self._database = database

    async def check(self, wish: Wish) -> None:
        """Whether the user may, before a byte of the file is read.  Raises Refusal."""
        async with self._database.serving(wish.user) as connection:
            refused = await store.call(connection, "select intake.may_upload(%s)", wish.profile)
        _refuse(refused)

    async def receive(self, wish: Wish, chunks: AsyncIterator[bytes]) -> dict[str, Any]:
        """Store the file and record it.  Raises Refusal, and whatever the chunks raise."""
        meter = Meter(chunks, wish.filename, self._settings.most_bytes)
        stream = await meter.begin()
        assert meter.kind is not None
        file_id = uuid4()
        path = f"{wish.profile}/{file_id}.{kinds.EXTENSIONS[meter.kind][0]}"
        await put_stream(self._settings.storage, path, stream)
        try:
            answer = await self._record(wish, file_id, path, meter)
        except BaseException:
            await self._forget(path)
            raise
        if answer["outcome"] != "created":
            # The object of the first one is the file; this copy belongs to nobody.
            await self._forget(path)
        log.info(
            "file_received", outcome=answer["outcome"], correlation_id=str(answer.get("correlation_id")),
            file_id=answer.get("shell_file_id"), job_id=answer.get("job_id"), bytes=meter.size, kind=meter.kind,
        )  # fmt: skip
        if answer["outcome"] == "key_conflict":
            raise Refusal(
                409, "key_conflict", "This idempotency key was used for a file with other contents."
            )
        _refuse(None if answer["outcome"] in {"created", "repeated"} else answer["outcome"])
        return answer

    async def _record(self, wish: Wish, file_id: UUID, path: str, meter: Meter) -> dict[str, Any]:
        kind = meter.kind
        assert kind is not None
        async with self._database.serving(wish.user) as connection:
            answer: dict[str, Any] = await store.call(
                connection,
                "select intake.accept_upload(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                file_id, wish.profile, wish.filename, kinds.CONTENT_TYPES[kind], meter.size, meter.digest, path,
                wish.key or f"sha256:{meter.digest.hex()}", estimated_tokens(kind, meter.size), wish.correlation,
            )  # fmt: skip
        return answer

    async def _forget(self, path: str) -> None:
        try:
            await self._settings.storage.delete(path)
        except Exception as trouble:
            # The sweep deletes it later.
            log.warning("object_not_deleted", error=type(trouble).__name__)


def estimated_tokens(kind: Kind, size: int) -> int:
    """Before anybody has looked into the file; the OCR's count replaces it."""
    pages = min(200, max(1, size // _BYTES_OF_PAGE)) if kind in {"pdf", "tiff"} else 1
    return pages * _TOKENS_OF_PAGE


def _refuse(why: str | None) -> None:
    match why:
        case None:
            return
        case "plan_limit_reached":
            raise Refusal(403, why, "This profile has used up its plan for this month.")
        case _:
            # The same for a profile that does not exist.
            raise Refusal(403, "forbidden", "You have no access to this profile.")
