"""Secrets in messages: sealed in the ledger, opened when they are sent.

A message holds links and codes that open something for whoever has them, and the ledger keeps messages for as long as they
may have to be sent again.  So those parts are encrypted with a key that the database never sees: a dump, a backup or an
operator who reads a message has nothing that can be used.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from onceward.deliveries import NotSent, Outgoing, Provider, Report

_SEALED = re.compile(r"\[sealed:([A-Za-z0-9_=-]+)\]")
_PREFIX = b"sealed:"


class Seal:
    """Seals with the first key, opens with any of them."""

    def __init__(self, keys: Sequence[str]) -> None:
        if not keys:
            raise ValueError("at least one key is needed to seal messages")
        self._fernet = MultiFernet([Fernet(key) for key in keys])

    def text(self, secret: str) -> str:
        """A mark that stands for the secret within a text."""
        return f"[sealed:{self._fernet.encrypt(secret.encode()).decode()}]"

    def data(self, secret: bytes) -> bytes:
        """The same for the content of an attachment."""
        return _PREFIX + self._fernet.encrypt(secret)

    def open(self, content: dict[str, Any]) -> dict[str, Any]:
        """The message with everything in it opened.  Raises InvalidToken."""
        opened: dict[str, Any] = {
            name: self._open_text(part) if isinstance(part, str) else part for name, part in content.items()
        }
        if opened.get("attachments"):
            opened["attachments"] = [self._open_attachment(item) for item in opened["attachments"]]
        if opened.get("photo"):
            opened["photo"] = self._open_attachment(opened["photo"])
        return opened

    def _open_text(self, text: str) -> str:
        return _SEALED.sub(lambda found: self._fernet.decrypt(found.group(1)).decode(), text)

    def _open_attachment(self, item: dict[str, Any]) -> dict[str, Any]:
        data = base64.b64decode(item["content"])
        if not data.startswith(_PREFIX):
            return item
        return item | {"content": base64.b64encode(self._fernet.decrypt(data[len(_PREFIX) :])).decode()}


class Opening:
    """A provider that opens what it sends.  `watch` hears of every delivery that is tried."""

    def __init__(self, inner: Provider, seal: Seal, watch: Callable[[UUID], None] | None = None) -> None:
        self._inner = inner
        self._seal = seal
        self._watch = watch

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def idempotent_for(self) -> timedelta | None:
        return self._inner.idempotent_for

    async def send(self, outgoing: Outgoing) -> Report:
        if self._watch is not None:
            self._watch(outgoing.id)
        try:
            content = self._seal.open(outgoing.content)
        except InvalidToken:
            # A worker with the right key may come.
            return NotSent("sealed", "this worker has no key that opens the message")
        return await self._inner.send(replace(outgoing, content=content))
