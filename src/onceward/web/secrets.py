"""Secrets that open something: made here, shown once, stored as their SHA-256."""

from __future__ import annotations

import hashlib
import hmac
import secrets

# By its beginning, a secret that has leaked is recognised.
LINK, TOKEN = "owl_", "owt_"


def new(prefix: str = "") -> str:
    """256 random bits, in characters that need no quoting."""
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def csrf_of(session: str) -> str:
    """The token that a form of this session carries.  It tells nothing about the session's secret."""
    return hmac.new(session.encode("utf-8", "surrogatepass"), b"onceward csrf", hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))
