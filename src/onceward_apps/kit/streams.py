"""Files that are written while they arrive, and looked through by age."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import obstore

from onceward_apps.kit.storage import Storage, checked

# What is written at once; S3 wants at least 5 MiB for all parts but the last.
PART = 5 * 1024 * 1024


async def put_stream(storage: Storage, path: str, chunks: AsyncIterator[bytes]) -> None:
    """Write a file of unknown size.  When the chunks end with an error, nothing is left of it, and the error goes on."""
    await obstore.put_async(storage.store(), checked(path), chunks, chunk_size=PART, max_concurrency=2)


async def names_before(
    storage: Storage, moment: datetime, *, prefix: str | None = None
) -> AsyncIterator[list[str]]:
    """Paths of files that were last written before this moment, some at a time."""
    async for some in obstore.list(storage.store(), prefix=prefix):
        if old := [item["path"] for item in some if item["last_modified"] < moment]:
            yield old
