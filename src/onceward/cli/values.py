"""Reading what a person typed: durations, times, ids, sizes, JSON.  A value that cannot be read is a usage error."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import NoReturn
from uuid import UUID

from onceward.errors import OncewardError, shown
from onceward.model import Json

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_BYTES = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": 1024**2, "mb": 1024**2, "mib": 1024**2}
_LARGEST = timedelta(days=36525)
SHELL_HINT = (
    """Quote it for the shell, as in '{"to": "a@example.com"}', or pass @file or - for standard input."""
)
DURATION_HINT = "Write it like 500ms, 30s, 5m, 2h, 1d or 1h30m."


class UsageProblem(OncewardError):
    """The command line cannot be understood."""


def quoted(value: str) -> str:
    """What was typed, in quotes, and not more of it than is of use."""
    return repr(shown(value))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """`Did you mean "mail"?`, or None when nothing is near."""
    # Case is a frequent slip, and difflib counts every letter of it.
    by_lower = {item.lower(): item for item in known}
    near = get_close_matches(name.lower(), list(by_lower), n=2, cutoff=0.65)
    if not near:
        return None
    # A second name only when it is about as near as the first.
    likeness = [SequenceMatcher(None, name.lower(), item).ratio() for item in near]
    meant = [by_lower[item] for item, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - 0.1]
    return "Did you mean " + " or ".join(f'"{item}"' for item in meant) + "?"


def join_hints(*parts: str | None) -> str | None:
    return " ".join(part for part in parts if part) or None


def duration(option: str, value: str | None, *, zero: bool = True) -> timedelta | None:
    if value is None:
        return None
    text = value.strip().lower()
    if text.startswith("-"):
        raise UsageProblem(f"{option} must not be negative, got {shown(value)}", hint=DURATION_HINT)
    if not _DURATION.fullmatch(text):
        hint = (
            f"Add a unit: {text}s, {text}m or {text}h."
            if text.isdigit() and len(text) < 10
            else DURATION_HINT
        )
        raise UsageProblem(f"{option} must be a duration, got {quoted(value)}", hint=hint)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds > _LARGEST.total_seconds():
        raise UsageProblem(f"{option} must be at most 100 years, got {shown(value)}", hint=DURATION_HINT)
    if not zero and seconds == 0:
        raise UsageProblem(f"{option} must be more than 0, got {shown(value)}", hint=DURATION_HINT)
    return timedelta(seconds=seconds)


def moment(option: str, value: str | None) -> datetime | None:
    """An ISO 8601 time; without an offset it is UTC, as all times that are printed."""
    if value is None:
        return None
    try:
        read = datetime.fromisoformat(value.strip())
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageProblem(
            f"{option} must be a time, got {quoted(value)}",
            hint="Write it like 2030-01-31, 2030-01-31T18:00 (UTC) or 2030-01-31T18:00+02:00.",
        ) from None


def negative_duration(arguments: Sequence[str]) -> str | None:
    """What was typed as a duration below zero, and is read as an option."""
    return next(
        (text for text in arguments if text[:1] == "-" and _DURATION.fullmatch(text[1:].lower())), None
    )


def past_moment(option: str, value: str | None, now: datetime) -> datetime | None:
    """An ISO 8601 time, or a duration that counts back from now."""
    if value is not None and _DURATION.fullmatch(value.strip().lower()):
        ago = duration(option, value)
        assert ago is not None
        return now - ago
    return moment(option, value)


def later(option: str, start: datetime, wait: timedelta) -> datetime:
    try:
        return start + wait
    except OverflowError:
        raise UsageProblem(f"{option} leads past the year 9999", hint="Choose a shorter time.") from None


def job_id(value: str) -> UUID:
    return _id("job", value)


def workflow_id(value: str) -> UUID:
    return _id("workflow", value)


def alert_id(value: str) -> UUID:
    return _id("alert", value)


def delivery_id(value: str) -> UUID:
    return _id("delivery", value)


def silence_id(value: str) -> UUID:
    return _id("silence", value, listed_by="alert silences")


def _id(noun: str, value: str, *, listed_by: str | None = None) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise UsageProblem(
            f"{noun} id must be a UUID, got {quoted(value)}",
            hint=f'Ids are listed by "onceward {listed_by or f"{noun} list"}".',
        ) from None


def job_ids(values: Sequence[str]) -> list[UUID]:
    """Each id once, in the order given; all are read before anything is done."""
    return list(dict.fromkeys(job_id(value) for value in values))


def delivery_ids(values: Sequence[str]) -> list[UUID]:
    return list(dict.fromkeys(delivery_id(value) for value in values))


def listed_job_ids(values: Sequence[str] | None) -> list[UUID]:
    """Ids of an option that was repeated, or of a list with commas."""
    return job_ids([part.strip() for value in values or () for part in value.split(",") if part.strip()])


def size(option: str, value: str | None, *, least: int = 1) -> int | None:
    """Bytes; `least` is one, or a number of KiB."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", value.strip().lower())
    if match is None or match.group(2) not in _BYTES:
        raise UsageProblem(
            f"{option} must be a size, got {quoted(value)}", hint="Write it in bytes, or like 512KiB or 1MiB."
        )
    count = int(float(match.group(1)) * _BYTES[match.group(2)])
    # jsonb itself ends at 256 MiB.
    if not least <= count <= 256 * 1024**2:
        lowest = "1 byte" if least == 1 else f"{least // 1024} KiB"
        raise UsageProblem(f"{option} must be between {lowest} and 256 MiB, got {shown(value)}")
    return count


def one_of(option: str, value: str, choices: Sequence[str]) -> str:
    if value in choices:
        return value
    raise UsageProblem(
        f"{option} must be one of {', '.join(choices)}, got {quoted(value)}",
        hint=did_you_mean(value, choices),
    )


def many_of(option: str, values: Sequence[str] | None, choices: Sequence[str]) -> list[str]:
    """Repeated or comma-separated values."""
    given = [part.strip() for value in values or () for part in value.split(",") if part.strip()]
    # dead-letter is how the command is written.
    return [one_of(option, part.replace("-", "_"), choices) for part in given]


def whole(option: str, value: int, *, least: int, most: int | None = None) -> int:
    if value < least:
        raise UsageProblem(f"{option} must be at least {least}, got {shown(str(value))}")
    if most is not None and value > most:
        raise UsageProblem(f"{option} must be at most {most}, got {shown(str(value))}")
    return value


def between(option: str, value: int | None, least: int, most: int) -> int | None:
    if value is not None and not least <= value <= most:
        raise UsageProblem(f"{option} must be between {least} and {most}, got {shown(str(value))}")
    return value


def lanes(option: str, value: str | None) -> dict[str, int | None] | None:
    """`mail,ocr=5`: names, each with the most jobs to run at once, if limited."""
    if value is None:
        return None
    read: dict[str, int | None] = {}
    for part in value.split(","):
        name, equals, limit = (piece.strip() for piece in part.partition("="))
        if not name:
            raise UsageProblem(
                f"{option} has an empty name, got {quoted(value)}", hint="Write it like mail,ocr=5."
            )
        if name in read:
            raise UsageProblem(f'{option} names lane "{shown(name)}" twice, got {quoted(value)}')
        if equals and not (limit.isdecimal() and 1 <= int(limit) <= 10_000):
            raise UsageProblem(
                f'limit of lane "{shown(name)}" in {option} must be a whole number from 1 to 10000, got {quoted(limit)}',
                hint=f"Write it like {name}=5, or leave =… out.",
            )
        read[name] = int(limit) if equals else None
    return read


def payload(what: str, value: str) -> Json:
    """JSON from the argument itself, from a file (@name), or from standard input (-)."""
    if value != "-" and not value.startswith("@"):
        return _json(what, value, "")
    name = None if value == "-" else value[1:]
    return _json(what, *_read(what, name, hint="Name a file after @, or pass - for standard input."))


def document(what: str, name: str) -> Json:
    """JSON from a file, or from standard input (-)."""
    hint = "Name a file, or pass - for standard input."
    return _json(what, *_read(what, None if name == "-" else name, hint=hint))


def _json(what: str, text: str, source: str) -> Json:

    def refuse(constant: str) -> NoReturn:
        raise UsageProblem(
            f"{what} contains {constant}, which is not JSON", hint="Use null, or a string, instead."
        )

    def once(members: list[tuple[str, Json]]) -> dict[str, Json]:
        read = dict(members)
        if len(read) < len(members):
            ((twice, _),) = Counter(name for name, _ in members).most_common(1)
            # JSON readers keep the last one without a word.
            raise UsageProblem(f'{what} has the member "{shown(twice)}" twice{source}', hint="Leave one out.")
        return read

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        line = text.split("\n")[error.lineno - 1]
        near = line[max(error.colno - 30, 0) : error.colno + 30]
        raise UsageProblem(
            f"{what} is not JSON: {error.msg.lower()} at line {error.lineno}, column {error.colno}{source}",
            detail=f"Near: {near}" if near else None,
            hint=None if source else SHELL_HINT,
        ) from None
    except RecursionError:
        raise UsageProblem(f"{what} is nested too deeply{source}", hint="Flatten it.") from None
    except ValueError as error:
        raise UsageProblem(f"{what} is not JSON: {error}{source}") from None


def _read(what: str, name: str | None, *, hint: str) -> tuple[str, str]:
    """The text of a file, or of standard input, and how to name it in an error."""
    try:
        raw = sys.stdin.buffer.read() if name is None else Path(name).read_bytes()
    except OSError as error:
        raise UsageProblem(f'could not read {what} from file "{name}": {error.strerror}', hint=hint) from None
    source = " of standard input" if name is None else f' of file "{name}"'
    try:
        return raw.decode("utf-8-sig"), source
    except UnicodeDecodeError as error:
        raise UsageProblem(
            f"{what} is not UTF-8 text: byte {error.start + 1}{source}", hint="Save it as UTF-8."
        ) from None


def kind_of(value: Json) -> str:
    """What JSON calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def start_time(delay: str | None, run_at: str | None, now: Callable[[], datetime]) -> datetime | None:
    """When a job is to run, from --delay or --run-at; `now` is the engine's clock."""
    if delay is not None and run_at is not None:
        raise UsageProblem("--delay and --run-at cannot be given together", hint="Leave one of them out.")
    wait = duration("--delay", delay)
    if wait is not None:
        return later("--delay", now(), wait)
    return moment("--run-at", run_at)


def key_window(value: str) -> str:
    """`live`, `forever`, or a duration in PostgreSQL's words."""
    if value in {"live", "forever"}:
        return value
    if not value[:1].isdigit() and not value.startswith("-"):
        one_of("--key-window", value, ("live", "forever", "a duration"))
    window = duration("--key-window", value, zero=False)
    assert window is not None
    return f"{window.total_seconds():g} seconds"
