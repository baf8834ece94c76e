"""Structured logs: an event name plus fields, on stderr, as text for people or JSON for machines."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Literal, TextIO

import structlog

LogFormat = Literal["text", "json"]


class Lines:
    """A stream for a log.  A line that cannot be written is dropped, and nobody fails for it: the disk is full, the
    reader has gone, stderr is closed.  When lines can be written again, the first one says how many were lost.
    """

    def __init__(self, stream: TextIO | None, lost: Callable[[int], str]) -> None:
        self._stream = stream
        self._lost_line = lost
        self._lost = 0
        # Something that was not ended by a line end has been written.
        self._is_torn = False

    def write(self, text: str) -> int:
        try:
            if self._lost:
                self._put(self._lost_line(self._lost) + "\n")
                self._lost = 0
            self._put(text)
        except (OSError, ValueError):
            # ValueError: the stream is closed.
            self._lost += 1
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""

    def _put(self, text: str) -> None:
        if self._stream is None:
            raise ValueError("there is no stream")
        try:
            number = self._stream.fileno()
        except OSError:
            # Not a file of the system, as in tests.
            self._stream.write(text)
            self._stream.flush()
            return
        # What others have left in its buffer comes first, if it can be written at all.
        with contextlib.suppress(OSError):
            self._stream.flush()
        # Past that buffer: it would keep what it cannot write, and Python ends with status 120 when that stays so.
        left = ("\n" * self._is_torn + text).encode(self._stream.encoding or "utf-8", "backslashreplace")
        while left:
            written = os.write(number, left)
            self._is_torn = written < len(left)
            left = left[written:]


def configure(log_format: LogFormat = "text", *, level: str = "info") -> None:
    is_terminal = sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=is_terminal, pad_event_to=24)
    )
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        renderer,
    ]

    def lost(count: int) -> str:
        # Of no job, though it is written beside a line of one.
        line: Any = {"event": "log_lines_lost", "count": count}
        for processor in processors[1:]:
            line = processor(None, "warning", line)
        return str(line)

    lines: Any = Lines(sys.stderr, lost)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        # Line and line end in one write: several processes share the stream.
        logger_factory=structlog.WriteLoggerFactory(lines),
        cache_logger_on_first_use=True,
    )


def flush() -> None:
    """Before a process ends at once.  What cannot be written is given up."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def configure_if_nobody_has() -> None:
    """For workers and pages inside other programs: warnings on stderr, unless the program has its own configuration."""
    if not structlog.is_configured():
        configure(level="warning")


def get(name: str) -> Any:
    return structlog.get_logger(name)
