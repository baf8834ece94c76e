"""What declarations in code may say.

The rules are those of the database, which has the last word.  Applied when a program is loaded, an error names the
declaration that is wrong; applied at enqueue, it would meet whoever enqueues first, perhaps another task.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import timedelta

from onceward.errors import InvalidArgument, kinds_of, shown
from onceward.model import Retry

_LANE = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_LIMIT = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_TENANT = re.compile(r"[^*\x00-\x1f\x7f]{1,200}")
_A_YEAR = timedelta(days=365)
_DURATION = "For durations: timedelta(seconds=5)."
_KINDS: dict[str, type | tuple[type, ...]] = {
    "lane": str, "priority": int, "max_attempts": int, "retry": Retry, "timeout": timedelta, "concurrency_limit": int,
    "key_window": str, "tenant": str, "expires_in": timedelta, "catch_up": int, "grace": timedelta, "jitter": timedelta,
}  # fmt: skip
_NUMBERS = {
    "priority": (-1000, 1000),
    "max_attempts": (1, 1000),
    "concurrency_limit": (1, 10_000),
    "catch_up": (1, 100_000),
}
_SPANS = {
    "timeout": (timedelta(microseconds=1), timedelta(days=30), "more than 0 and at most 30 days"),
    "expires_in": (timedelta(microseconds=1), timedelta(days=366), "more than 0 and at most 366 days"),
    "grace": (timedelta(seconds=1), timedelta(days=366), "between 1 second and 366 days"),
    "jitter": (timedelta(0), timedelta(days=1), "between 0 and 1 day"),
}
_LIMIT_NUMBERS = {"requests": 10**9, "tokens": 10**12, "slots": 10_000}
_LIMIT_BURSTS = {"burst": "requests", "tokens_burst": "tokens"}
_LIMIT_SPANS = {
    "per": (timedelta(milliseconds=100), timedelta(days=31), "between 100 milliseconds and 31 days"),
    "tokens_per": (timedelta(milliseconds=100), timedelta(days=31), "between 100 milliseconds and 31 days"),
    "allowance": (timedelta(0), timedelta(hours=1), "between 0 and 1 hour"),
}
_HINTS = {
    "lane": 'Name it like "mail" or "mail.bulk".',
    "retry": "Pass Retry(waits=[timedelta(minutes=1)]) or Retry(base=timedelta(seconds=5)).",
    "key_window": 'Pass "live", "forever", or a length of time such as "24 hours".',
    "max_attempts": "Pass 1 for a task whose attempts are never repeated.",
    "concurrency_limit": "Leave it out for one at a time.",
    "priority": "Higher is sooner; 0 unless given.",
}


def lane_problem(name: str) -> str | None:
    """What is wrong with the name of a lane, by the same rule as onceward.add_lane."""
    if not _LANE.fullmatch(name):
        return "must be 1 to 100 letters, digits or . _ : -"
    return None if name.strip(".") else "must not be dots alone"


def check_options(of: str, options: Mapping[str, object]) -> None:
    """Raises InvalidArgument.  `of` is whose they are, as in `task "send"`; None means that an option was not given."""
    for name, value in options.items():
        if value is not None and name in _KINDS:
            check_kind(f"{name} of {of}", value, _KINDS[name], _HINTS.get(name))
            _check_value(name, of, value)


def check_kind(what: str, value: object, kinds: type | tuple[type, ...], hint: str | None = None) -> None:
    """Raises InvalidArgument when the value is not of this type.  A bool is no number."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        hint = hint or (_DURATION if kinds is timedelta else None)
        raise InvalidArgument(f"{what} must be {kinds_of(kinds)}, got {_shown(value)}", hint=hint)


def check_number(what: str, value: object, low: int, high: int, hint: str | None = None) -> None:
    check_kind(what, value, int, hint)
    if isinstance(value, int) and not low <= value <= high:
        raise InvalidArgument(f"{what} must be between {low} and {high}, got {shown(value)}", hint=hint)


def check_span(what: str, value: object, low: timedelta, high: timedelta, *, rule: str) -> None:
    """`rule` says the bounds in words."""
    check_kind(what, value, timedelta)
    if isinstance(value, timedelta) and not low <= value <= high:
        raise InvalidArgument(f"{what} must be {rule}, got {value}", hint=_DURATION)


def _check_value(name: str, of: str, value: object) -> None:
    what, hint = f"{name} of {of}", _HINTS.get(name)
    if name in _NUMBERS:
        check_number(what, value, *_NUMBERS[name], hint)
    elif name in _SPANS:
        low, high, rule = _SPANS[name]
        check_span(what, value, low, high, rule=rule)
    elif isinstance(value, Retry):
        _check_retry(what, value)
    elif isinstance(value, str):
        problem = None
        if name == "lane":
            problem = lane_problem(value)
        elif name == "tenant" and not _TENANT.fullmatch(value):
            problem = "must be 1 to 200 characters, without * and control characters"
        elif name == "key_window" and value not in {"live", "forever"} and not re.search(r"\d", value):
            problem = "must be live, forever or an interval such as 24 hours"
        if problem:
            raise InvalidArgument(f"{what} {problem}, got {_shown(value)}", hint=hint)


def _check_retry(what: str, retry: Retry) -> None:
    rule = "between 0 seconds and a year"
    if retry.waits is not None:
        if not isinstance(retry.waits, (list, tuple)) or not 1 <= len(retry.waits) <= 100:
            raise InvalidArgument(
                f"waits in {what} must be a list of 1 to 100 durations, got {_shown(retry.waits)}",
                hint=_HINTS["retry"],
            )
        for wait in retry.waits:
            check_span(f"each wait in {what}", wait, timedelta(0), _A_YEAR, rule=rule)
    check_span(f"base in {what}", retry.base, timedelta(0), _A_YEAR, rule=rule)
    check_span(f"cap in {what}", retry.cap, timedelta(0), _A_YEAR, rule=rule)
    check_kind(f"factor in {what}", retry.factor, (int, float))
    if not 1 <= retry.factor <= 100:
        raise InvalidArgument(f"factor in {what} must be between 1 and 100, got {retry.factor}")
    if retry.jitter is not None:
        check_kind(f"jitter in {what}", retry.jitter, bool)
    if retry.max_snoozes is not None:
        check_number(f"max_snoozes in {what}", retry.max_snoozes, 0, 1_000_000)


def check_limit(name: object, options: Mapping[str, object]) -> None:
    """What app.limit takes.  Raises InvalidArgument."""
    if not isinstance(name, str) or not _LIMIT.fullmatch(name):
        raise InvalidArgument(
            f"name of a limit must be 1 to 200 letters, digits or . _ : / -, got {_shown(name)}",
            hint='Name it like "openai" or "openai:gpt-4o-mini".',
        )
    of = f'of limit "{name}"'
    given = {option: value for option, value in options.items() if value is not None}
    if not given.keys() & _LIMIT_NUMBERS.keys():
        raise InvalidArgument(
            f'limit "{name}" must have requests, tokens or slots',
            hint=f'Write app.limit("{name}", requests=500, per=timedelta(minutes=1)), or slots=5.',
        )
    for option, most in _LIMIT_NUMBERS.items():
        if option in given:
            check_number(f"{option} {of}", given[option], 1, most)
    for option, (low, high, rule) in _LIMIT_SPANS.items():
        if option in given:
            check_span(f"{option} {of}", given[option], low, high, rule=rule)
    for option, whole in _LIMIT_BURSTS.items():
        most_at_once = given.get(whole)
        if option in given and isinstance(most_at_once, int):
            check_number(f"{option} {of}", given[option], 1, most_at_once, f"At most all of {whole}.")
    if "per_key" in given:
        check_kind(f"per_key {of}", given["per_key"], bool)
    threshold = given.get("threshold", 0.8)
    check_kind(f"threshold {of}", threshold, (int, float))
    if isinstance(threshold, (int, float)) and not 0 <= threshold <= 100:
        raise InvalidArgument(f"threshold {of} must be between 0 and 100, got {threshold}")
    if given.get("over", "accept") not in ("accept", "defer"):
        raise InvalidArgument(f"over {of} must be accept or defer, got {_shown(given['over'])}")


def check_handler(of: str, handler: Callable[..., object]) -> None:
    """A generator's body does not run when it is called: nothing would be done, and its result is not JSON."""
    plain = inspect.unwrap(handler)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise InvalidArgument(
            f"{of} cannot have a handler with yield: {getattr(plain, '__name__', 'it')} is a generator",
            detail="Calling a generator does not run its body.",
            hint="Return the result, as a list if there are several; report progress with job.progress.",
        )


def _shown(value: object) -> str:
    return repr(shown(value)) if isinstance(value, str) else shown(value)
