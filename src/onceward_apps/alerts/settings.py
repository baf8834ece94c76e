"""What the system needs to know, from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    # Where the pages are, without a slash at the end: links in notifications lead there.
    base_url: str = "http://localhost:8080"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """ALERTS_BASE_URL; how emails leave is the engine's setting, ONCEWARD_EMAIL."""
        given = environ.get("ALERTS_BASE_URL", cls().base_url).rstrip("/")
        if not given.startswith(("http://", "https://")):
            raise ValueError(f"ALERTS_BASE_URL must begin with http:// or https://, got {given[:100]!r}")
        return cls(base_url=given)
