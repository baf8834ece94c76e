"""Email into a folder: what a first run does, before any server is named."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
from datetime import timedelta
from pathlib import Path

from onceward.deliveries.content import parse_address
from onceward.deliveries.message import build
from onceward.deliveries.outgoing import NotSent, Outgoing, Report, Sent

FOR_EVER = timedelta.max


class Outbox:
    """One .eml file per delivery, named by its id; it appears whole or not at all."""

    name = "outbox"
    # The second writing replaces the file by the same file.
    idempotent_for: timedelta | None = FOR_EVER

    def __init__(self, folder: str | Path | None = None, *, sender: str = "onceward@localhost") -> None:
        """Without a folder: `outbox` beside the embedded server's data, see ONCEWARD_HOME."""
        self.folder = Path(folder).expanduser() if folder is not None else default_folder()
        self._sender = parse_address("sender", sender)

    async def send(self, outgoing: Outgoing) -> Report:
        try:
            message = build(outgoing, self._sender)
        except (ValueError, KeyError, TypeError):
            return NotSent("content", "the content cannot be made into a message", permanent=True)
        try:
            return await asyncio.to_thread(self._write, f"{outgoing.id}.eml", message.as_bytes())
        except OSError as error:
            reason = errno.errorcode.get(error.errno or 0, "OSError")
            return NotSent("disk", f"could not write to the outbox folder: {reason}")

    def _write(self, name: str, message: bytes) -> Sent:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = self.folder / f".{name}.{secrets.token_hex(4)}"
        try:
            with unfinished.open("xb") as file:
                file.write(message)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.folder / name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return Sent(name)


def default_folder() -> Path:
    from onceward.embedded import default_data_dir

    return default_data_dir().parent / "outbox"
