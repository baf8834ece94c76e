"""What was wrong with an argument, when a driver or the server could not take it.

A call names the type of each of its parameters, so nothing has to be checked before: only after an error does anybody look
which value does not fit, and says so by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from onceward.calls.base import Call
from onceward.errors import InvalidArgument, is_connection_trouble, shown

_TYPED = re.compile(r"%\((\w+)\)s::(\w+(?:\[\])?)")
# What PostgreSQL cannot store in a text.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def unfit(error: BaseException, call: Call[Any]) -> InvalidArgument | None:
    """The error for an argument that is of the wrong type or out of its range, or None when all of them fit."""
    if is_connection_trouble(error):
        return None
    for name, kind in _TYPED.findall(call.sql):
        rule = _broken_rule(call.params.get(name), kind)
        if rule is None and getattr(error, "sqlstate", None) == "2201W" and name == "limit":
            rule = "must not be negative"
        if rule is not None:
            return InvalidArgument(
                f"{name} {rule}, got {shown(repr(call.params[name]))}", detail="Nothing was written."
            )
    return None


def _broken_rule(value: object, kind: str) -> str | None:
    if value is None:
        return None
    if kind.endswith("[]"):
        if not isinstance(value, (list, tuple)):
            return "must be a list"
        rules = (_broken_rule(item, kind.removesuffix("[]")) for item in value)
        return next((f"must be a list whose items each {rule}" for rule in rules if rule), None)
    fits, rule = _RULES.get(kind, (lambda _: True, ""))
    return None if fits(value) else rule


def _whole(bits: int) -> Callable[[Any], bool]:
    most = 2 ** (bits - 1)
    return lambda value: isinstance(value, int) and -most <= value < most


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and _UNSTORABLE.search(value) is None


def _is_uuid(value: Any) -> bool:
    try:
        return isinstance(value, UUID) or UUID(value) is not None
    except (ValueError, TypeError, AttributeError):
        return False


def _is_duration(value: Any) -> bool:
    # PostgreSQL's intervals reach further than timedelta, but not in microseconds.
    return isinstance(value, timedelta) and abs(value) < timedelta(days=100_000_000)


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_whole(32), "must be a whole number of 32 bits"),
    "bigint": (_whole(64), "must be a whole number of 64 bits"),
    "float": (lambda value: isinstance(value, (int, float)), "must be a number"),
    "boolean": (lambda value: isinstance(value, bool), "must be True or False"),
    "text": (_is_text, "must be text without NUL and lone surrogates"),
    "jsonb": (_is_text, "must be JSON text"),
    "uuid": (_is_uuid, "must be a UUID"),
    "interval": (_is_duration, "must be a timedelta"),
    "timestamptz": (lambda value: isinstance(value, datetime), "must be a datetime"),
    "date": (lambda value: isinstance(value, date), "must be a date"),
    "bytea": (lambda value: isinstance(value, (bytes, bytearray, memoryview, Sequence)), "must be bytes"),
}
