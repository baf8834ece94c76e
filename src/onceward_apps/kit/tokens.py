"""Tokens that open something for whoever holds them.  The database keeps the digest; a dump contains no usable token."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field

# 256 bits; the rule is at least 128.
_BYTES = 32


@dataclass(frozen=True, slots=True)
class Token:
    # The only moment at which the token itself exists on this side: send it, do not store it.
    text: str = field(repr=False)
    digest: bytes


def new() -> Token:
    text = secrets.token_urlsafe(_BYTES)
    return Token(text, digest(text))


def digest(text: str) -> bytes:
    """What is stored and looked up.  Plain SHA-256: a random token of 256 bits needs no salt and no slow hash."""
    return hashlib.sha256(text.encode()).digest()
