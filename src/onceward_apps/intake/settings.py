"""Settings, from the environment.  The names are those of the contract where it has one."""

from __future__ import annotations

import os
import secrets as random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal, cast

from onceward.errors import InvalidArgument
from onceward_apps.intake.reading.model import MEGABYTE, Limits
from onceward_apps.kit.storage import Storage

OcrName = Literal["rapidocr", "tesseract", "google-vision"]
ExtractorName = Literal["embedded", "openai", "anthropic"]
BUCKET = "medical-docs"
MOST_BYTES = 50 * MEGABYTE

# The provider's name and endpoint in intake.api_rate_limits; none: it is not somebody else's.
OCR_ENDPOINTS: dict[str, tuple[str, str]] = {"google-vision": ("google_vision", "document_text_detection")}
EXTRACTOR_ENDPOINTS: dict[str, tuple[str, str]] = {
    "embedded": ("embedded", "extractor"),
    "openai": ("openai", "gpt-4o-mini"),
    "anthropic": ("anthropic", "claude"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the intake system needs to know of the world around it."""

    storage: Storage
    # They verify tokens; the first one signs the links of the demo.
    jwt_secrets: tuple[str, ...] = field(repr=False)
    audience: str = "authenticated"
    ocr: OcrName = "rapidocr"
    extractor: ExtractorName = "embedded"
    clamd: str | None = None
    limits: Limits = field(default_factory=Limits)
    most_bytes: int = MOST_BYTES
    # Other origins whose pages may call the functions.
    origins: tuple[str, ...] = ()
    session: timedelta = timedelta(hours=8)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """
        INTAKE_STORAGE_URL      file:///folder, s3://…, gs://…, az://…; by default a folder in ONCEWARD_HOME
        INTAKE_JWT_SECRETS      secrets that verify tokens (HS256), the newest first, separated by commas
        INTAKE_JWT_AUDIENCE     the audience that tokens must name: authenticated
        INTAKE_OCR              rapidocr, tesseract or google-vision
        INTAKE_EXTRACTOR        embedded, openai or anthropic
        INTAKE_CLAMD            unix:/path or host:port of a virus scanner
        INTAKE_ORIGINS          origins that may call the functions from their pages, separated by commas
        """
        home = Path(environ.get("ONCEWARD_HOME") or Path.home() / ".local/share/onceward")
        url = environ.get("INTAKE_STORAGE_URL") or (home / BUCKET).absolute().as_uri()
        secrets = _listed(environ.get("INTAKE_JWT_SECRETS", ""))
        if any(len(secret) < 32 for secret in secrets):
            raise InvalidArgument(
                "INTAKE_JWT_SECRETS must each be at least 32 characters",
                hint="Make one with: openssl rand -hex 32",
            )
        secrets = secrets or (_own_secret(home),)
        return cls(
            storage=Storage(
                url=url, base_url="/records/objects", secrets=[secret.encode() for secret in secrets]
            ),
            jwt_secrets=secrets,
            audience=environ.get("INTAKE_JWT_AUDIENCE", "authenticated"),
            ocr=cast("OcrName", _one_of(environ, "INTAKE_OCR", ("rapidocr", "tesseract", "google-vision"))),
            extractor=cast(
                "ExtractorName", _one_of(environ, "INTAKE_EXTRACTOR", ("embedded", "openai", "anthropic"))
            ),
            clamd=environ.get("INTAKE_CLAMD") or None,
            origins=_listed(environ.get("INTAKE_ORIGINS", "")),
        )

    @property
    def ocr_endpoint(self) -> tuple[str, str] | None:
        return OCR_ENDPOINTS.get(self.ocr)

    @property
    def extractor_endpoint(self) -> dict[str, str]:
        name, endpoint = EXTRACTOR_ENDPOINTS[self.extractor]
        return {"provider_name": name, "api_endpoint": endpoint}


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The documented settings of a worker, as `python -m onceward_apps.intake worker` reads them."""

    concurrency: int = 50
    poll: timedelta = timedelta(milliseconds=5000)
    health_port: int | None = 8080
    log_level: str = "info"
    name: str | None = None
    # Written into system_configuration, where every process finds them.
    fast_timeout_ms: int | None = None
    ai_timeout_ms: int | None = None
    max_retries: int | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> WorkerEnvironment:
        """
        WORKER_CONCURRENCY=50, QUEUE_POLL_INTERVAL=5000 (ms), HEALTH_CHECK_PORT=8080, LOG_LEVEL=info, WORKER_ID,
        FAST_QUEUE_TIMEOUT_MS=120000, AI_QUEUE_TIMEOUT_MS=600000, MAX_RETRIES=6
        """
        level = environ.get("LOG_LEVEL", "info").lower()
        if level not in {"debug", "info", "warning", "error"}:
            raise InvalidArgument(f"LOG_LEVEL must be debug, info, warning or error, got {level!r:.40}")
        return cls(
            concurrency=_whole(environ, "WORKER_CONCURRENCY", 1, 1000) or 50,
            poll=timedelta(milliseconds=_whole(environ, "QUEUE_POLL_INTERVAL", 100, 60_000) or 5000),
            health_port=_whole(environ, "HEALTH_CHECK_PORT", 1, 65535) or 8080,
            log_level=level,
            name=environ.get("WORKER_ID") or None,
            fast_timeout_ms=_whole(environ, "FAST_QUEUE_TIMEOUT_MS", 1000, 86_400_000),
            ai_timeout_ms=_whole(environ, "AI_QUEUE_TIMEOUT_MS", 1000, 86_400_000),
            max_retries=_whole(environ, "MAX_RETRIES", 1, 50),
        )

    @property
    def configuration(self) -> dict[str, int]:
        """What was set, by key of system_configuration."""
        given = {
            "worker.fast_queue_timeout_ms": self.fast_timeout_ms,
            "worker.ai_queue_timeout_ms": self.ai_timeout_ms,
            "worker.max_retries": self.max_retries,
        }
        return {key: value for key, value in given.items() if value is not None}


def _whole(environ: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    given = environ.get(name, "")
    if not given:
        return None
    if not given.isdecimal() or not least <= int(given) <= most:
        raise InvalidArgument(f"{name} must be a whole number between {least} and {most}, got {given!r:.40}")
    return int(given)


def _one_of(environ: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    given = environ.get(name) or known[0]
    if given not in known:
        raise InvalidArgument(f"{name} must be one of {', '.join(known)}, got {given!r:.40}")
    return given


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _own_secret(home: Path) -> str:
    """On one machine, a secret that is made once and kept beside the files."""
    place = home / "intake-jwt-secret"
    home.mkdir(parents=True, exist_ok=True)
    try:
        with open(place, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(random.token_hex(32))
    except FileExistsError:
        pass
    return place.read_text().strip()
