"""Structured logs: an event name plus fields, on stderr, as text for people or JSON for machines."""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog

LogFormat = Literal["text", "json"]


def configure(log_format: LogFormat = "text", *, level: str = "info") -> None:
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=24)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # Line and line end in one write: several processes share the stream.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def configure_if_nobody_has() -> None:
    """For workers and pages inside other programs: warnings on stderr, unless the program has its own configuration."""
    if not structlog.is_configured():
        configure(level="warning")


def get(name: str) -> Any:
    return structlog.get_logger(name)
