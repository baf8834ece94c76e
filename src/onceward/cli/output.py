"""What commands print: data on standard output, messages on standard error, colours only on a terminal."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO
from uuid import UUID

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from onceward.errors import OncewardError
from onceward.model import Json

STATE_STYLES = {
    "scheduled": "magenta",
    "ready": "cyan",
    "running": "bold blue",
    "blocked": "yellow",
    "done": "green",
    "cancelled": "dim",
    "dead_letter": "bold red",
    "resolved": "dim green",
    "waiting": "magenta",
    "failed": "bold red",
    "pending": "cyan",
    "sending": "bold blue",
    "sent": "green",
    "uncertain": "bold yellow",
    "abandoned": "bold red",
    "live": "green",
    "expired": "bold red",
    "retired": "dim",
    "paused": "bold yellow",
    "open": "green",
    "lane_paused": "bold yellow",
    "lane_full": "yellow",
    "no_worker": "bold red",
    "no_worker_for_task": "bold red",
    "busy": "yellow",
    "working": "green",
    "idle": "dim",
    "ok": "green",
    "warn": "bold yellow",
    "fail": "bold red",
    "firing": "bold red",
    "error": "bold red",
    "disabled": "dim",
    "critical": "bold red",
    "warning": "bold yellow",
    "info": "cyan",
    "acknowledged": "yellow",
    "closed": "dim",
}
# The year that the database writes for a moment that does not come.
NEVER = 9999
# Nothing is cut when another program reads.
UNLIMITED_WIDTH = 100_000
# Escape sequences in a payload or an error must not reach the terminal; tab and newline may.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def stdout() -> Console:
    return _console(sys.stdout)


def stderr() -> Console:
    # What was printed before comes before, also where both go into one file.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    return _console(sys.stderr)


def _console(file: TextIO) -> Console:
    # Made anew each time: tests and pagers exchange the streams.
    console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = UNLIMITED_WIDTH
    return console


def clean(text: object) -> str:
    """The text with control characters written as escapes."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", str(text))


def one_line(text: object) -> str:
    return " ".join(clean(text).split())


# ---------------------------------------------------------------- JSON


def to_json(value: object) -> Json:
    """Plain JSON: records as objects, times as ISO 8601 in UTC, durations as seconds."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def print_json(value: object) -> None:
    """One document."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print_json_text(json.dumps(to_json(value), indent=2, ensure_ascii=not unicode) + "\n")


def print_json_text(text: str) -> None:
    """JSON that is written already.  What a terminal would obey stands only within strings, where it may be an escape."""
    sys.stdout.write(_CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", text))


def compact_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------- times


def when(value: datetime | None) -> str:
    return "-" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def short(span: timedelta) -> str:
    """Two figures at most: 340ms, 12s, 5m, 3h, 2d."""
    seconds = abs(span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f}{name}"
    return f"{seconds / 86400:.0f}d"


def ago(value: datetime | None, now: datetime) -> str:
    if value is None:
        return "-"
    if value > now:
        return f"in {short(value - now)}"
    return f"{short(now - value)} ago" if now - value >= timedelta(seconds=1) else "just now"


def when_and_ago(value: datetime | None, now: datetime) -> str:
    return "-" if value is None else f"{when(value)} ({ago(value, now)})"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


# ---------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is `optional` makes way on a narrow terminal, the last of them first.

    One that is `flexible` is cut instead, down to that many characters.
    """

    title: str
    style: str = ""
    right: bool = False
    optional: bool = False
    flexible: int | None = None


def styled(word: str) -> Text:
    """A state in its colour."""
    return Text(clean(word), style=STATE_STYLES.get(word, ""))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    console = stdout()
    texts = [[cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in row] for row in rows]
    widths = _fitting(columns, texts, console.width)
    for row in [[Text(column.title, style="bold") for column in columns], *texts]:
        line = Text()
        for index, width in widths.items():
            cell = row[index].copy()
            cell.truncate(width, overflow="ellipsis")
            if not cell.style:
                cell.style = columns[index].style
            cell.align("right" if columns[index].right else "left", width)
            line.append_text(cell).append("  ")
        line.rstrip()
        console.print(line)


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> dict[int, int]:
    """Widths of the columns that are shown.  First optional columns give way, then flexible ones are cut."""
    wanted = [
        max([cell_len(column.title), *(cell_len(row[index].plain) for row in rows)])
        for index, column in enumerate(columns)
    ]
    least = [min(size, columns[index].flexible or size) for index, size in enumerate(wanted)]
    shown = list(range(len(columns)))
    for index in reversed(range(len(columns))):
        if sum(least[i] + 2 for i in shown) - 2 > width and columns[index].optional:
            shown.remove(index)
    widths = {index: least[index] for index in shown}
    for index in reversed(shown):
        surplus = sum(widths.values()) + 2 * (len(shown) - 1) - width
        if surplus > 0 and columns[index].flexible:
            widths[index] -= min(surplus, max(widths[index] - 10, 0))
    for index in shown:
        room = width - (sum(widths.values()) + 2 * (len(shown) - 1))
        widths[index] += max(min(room, wanted[index] - widths[index]), 0)
    return widths


def print_fields(pairs: Iterable[tuple[str, object]], *, console: Console | None = None) -> None:
    """Names and values, one per line, the names in a column."""
    console = console or stdout()
    given = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in given), default=0)
    for name, value in given:
        line = Text("  " + name.ljust(width + 2), style="dim")
        line.append_text(value if isinstance(value, Text) else Text(clean(value), style="not dim"))
        console.print(line)


def print_wrapped(text: str | Text, *, indent: int = 0, style: str = "") -> None:
    """A paragraph, broken between words on a terminal and left whole elsewhere."""
    console = stdout()
    whole = text if isinstance(text, Text) else Text(one_line(text), style=style)
    for line in whole.wrap(console, max(console.width - indent, 30)):
        console.print(Text(" " * indent) + line)


def print_text(text: str, *, style: str = "") -> None:
    """As it is, line ends included, but for what a terminal would obey."""
    stdout().print(Text(clean(text), style=style))


def heading(title: str) -> None:
    stdout().print(Text("\n" + one_line(title), style="bold"))


# ---------------------------------------------------------------- messages


def note(message: str) -> None:
    """Something to know; never part of the data."""
    stderr().print(Text(clean(message)), soft_wrap=False)


def warn(message: str) -> None:
    stderr().print(Text("warning: ", style="bold yellow") + Text(clean(message)), soft_wrap=False)


def print_error(message: str, *, detail: str | None = None, hint: str | None = None) -> None:
    console = stderr()
    for label, style, text in (
        ("error", "bold red", message),
        ("detail", "dim", detail),
        ("hint", "cyan", hint),
    ):
        if text:
            # Where nothing can be printed, the exit status still tells; the console has its own for a broken pipe.
            with contextlib.suppress(OSError, SystemExit):
                console.print(Text(f"{label}: ", style=style) + Text(clean(text).strip()), soft_wrap=False)


def print_onceward_error(error: OncewardError) -> None:
    message = error.message
    if message == (type(error).__doc__ or "").strip():
        # A default message is a sentence of the documentation.
        message = message[:1].lower() + message[1:].rstrip(".")
    print_error(message, detail=error.detail, hint=error.hint)


def confirm(question: str) -> bool:
    """Ask on standard error; the end of input means no."""
    stderr().print(Text(f"{clean(question)} [y/N] "), end="")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        stderr().print()
    return answer.strip().lower() in {"y", "yes"}


def progress_total(items: Sequence[Any], label: str) -> Iterable[Any]:
    """The items, with a progress bar on standard error when that is a terminal and there are many."""
    console = stderr()
    if not console.is_terminal or len(items) < 20:
        return items
    from rich.progress import track

    return track(items, description=label, console=console, transient=True)
