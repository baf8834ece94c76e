"""Files: in a folder, or in S3, GCS or Azure by URL; public by their address, private by a signed link that expires.

Links are signed here and not by the provider: they work alike for every store, for longer than a provider's seven days, and
stop working when the secret is changed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import obstore
from obstore.exceptions import (
    InvalidPathError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import LocalStore, from_url

# Errors that the same request meets again, however often it is made.
REFUSALS = (InvalidPathError, PermissionDeniedError, UnauthenticatedError, UnknownConfigurationKeyError)
_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


@dataclass(frozen=True, slots=True)
class Storage:
    """A bucket.

    `url` is where its files lie: a folder as `file:///…`, `s3://bucket/prefix`, `gs://…`, `az://…` (credentials come from
    the provider's own environment variables).  `base_url` is where the world finds them.  `secrets` sign links: the first
    one signs, all of them open, so that a secret can be changed without breaking the links of yesterday.
    """

    url: str
    base_url: str
    secrets: Sequence[bytes] = field(repr=False)
    public: Sequence[str] = ()

    async def put(self, path: str, content: bytes, *, content_type: str) -> None:
        """Write a whole file.  The same path again replaces it; a reader never sees half of it."""
        store = self.store()
        attributes = None if isinstance(store, LocalStore) else {"Content-Type": content_type}
        await obstore.put_async(store, checked(path), content, attributes=attributes, use_multipart=False)

    async def get(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        answer = await obstore.get_async(self.store(), checked(path))
        return bytes(await answer.bytes_async())

    async def delete(self, path: str) -> None:
        """Nothing happens when it is not there."""
        try:
            await obstore.delete_async(self.store(), checked(path))
        except FileNotFoundError:
            return

    async def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        async for some in obstore.list(self.store(), prefix=prefix):
            found += [item["path"] for item in some]
        return sorted(found)

    def address(self, path: str) -> str:
        """Where a file is found: enough for a public one; a private one needs a link."""
        return f"{self.base_url.rstrip('/')}/{quote(checked(path))}"

    def path_of(self, address: str) -> str:
        """The path behind an address, signed or not."""
        start = self.base_url.rstrip("/") + "/"
        if not address.startswith(start):
            raise ValueError("address is not one of this storage")
        return checked(unquote(address[len(start) :].partition("?")[0]))

    def link(self, path: str, *, now: datetime, lasts: timedelta) -> str:
        """An address that opens a private file until it expires."""
        expires = int((now + lasts).timestamp())
        return (
            f"{self.address(path)}?expires={expires}&signature={self._sign(self.secrets[0], path, expires)}"
        )

    def opens(self, path: str, *, expires: str, signature: str, now: datetime | None = None) -> bool:
        """Whether these two, taken from a link, open the file at this moment."""
        if not re.fullmatch(r"[0-9]{1,12}", expires) or not _PATH.fullmatch(path):
            return False
        moment = now or datetime.now(UTC)
        # All of them, and in constant time: how long it takes tells nothing.
        matches = [
            hmac.compare_digest(self._sign(secret, path, int(expires)), signature) for secret in self.secrets
        ]
        return any(matches) and moment.timestamp() < int(expires)

    def is_public(self, path: str) -> bool:
        return any(path.startswith(prefix) for prefix in self.public)

    def store(self) -> obstore.store.ObjectStore:
        if self.url.startswith("file:"):
            return LocalStore(Path(unquote(urlsplit(self.url).path)), mkdir=True)
        return from_url(self.url)

    @staticmethod
    def _sign(secret: bytes, path: str, expires: int) -> str:
        return hmac.new(secret, f"{path}\n{expires}".encode(), hashlib.sha256).hexdigest()


def checked(path: str) -> str:
    """A path made of plain names: no way out of the bucket.  Raises ValueError."""
    if not _PATH.fullmatch(path):
        raise ValueError(f"path {path!r:.80} is not made of plain names")
    return path
