"""Run keys: `function:tenant:window:hash`, the name of one run of something in one window of time.

The same text as `onceward.run_key` in SQL, from any process, without a database.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from onceward.errors import InvalidArgument, shown
from onceward.model import Json

__all__ = ["canonical_json", "entity_hash", "run_key"]

Grain = Literal["hour", "day"]
MOST_DIGITS = 38
_FUNCTION = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_TENANT = re.compile(r"[^*:\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,200}")
_ZONE = re.compile(r"UTC|[A-Za-z]+(/[A-Za-z0-9_+-]+)+")
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


def run_key(
    function: str,
    tenant: str,
    *,
    grain: Grain = "day",
    entity: Mapping[str, Json] | None = None,
    at: datetime | None = None,
    zone: str = "UTC",
) -> str:
    """The key of the window that holds `at` (now, when left out) in this time zone.

    The same entity gives the same hash, whatever the order of its keys at any depth and however its numbers are written.
    Raises InvalidArgument for what cannot be written alike in SQL.
    """
    if not isinstance(function, str) or not _FUNCTION.fullmatch(function):
        raise InvalidArgument(f"function must be 1 to 200 letters, digits or . _ -, got {shown(function)!r}")
    if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
        raise InvalidArgument(
            f"tenant must be 1 to 200 characters, without *, : and control characters, got {shown(tenant)!r}"
        )
    if grain not in {"hour", "day"}:
        raise InvalidArgument(f"grain must be hour or day, got {shown(grain)!r}")
    parts = [function, tenant, _window(grain, datetime.now(UTC) if at is None else at, zone)]
    if entity is not None:
        parts.append(entity_hash(entity))
    return ":".join(parts)


def entity_hash(entity: Mapping[str, Json]) -> str:
    """Twelve hexadecimal digits of SHA-256 over the entity in canonical form."""
    if not isinstance(entity, Mapping):
        raise InvalidArgument(f"entity must be an object of named values, got {shown(entity)}")
    # The top level as sorted pairs, [["a",1],["b",2]], as the standard writes it.
    pairs = [f"[{_text(key)},{canonical_json(entity[key])}]" for key in _sorted_keys(entity)]
    return hashlib.sha256(f"[{','.join(pairs)}]".encode()).hexdigest()[:12]


def canonical_json(value: Json) -> str:
    """JSON in one form only: keys sorted by code point at every depth, no white space, numbers in plain notation."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return _text(value)
        case UUID():
            return _text(str(value))
        case int() | float() | Decimal():
            return _number(value)
        case Mapping():
            inner = (f"{_text(key)}:{canonical_json(value[key])}" for key in _sorted_keys(value))
            return "{" + ",".join(inner) + "}"
        case list() | tuple():
            return "[" + ",".join(map(canonical_json, value)) + "]"
        case _:
            raise InvalidArgument(
                f"entity must hold JSON values only, got {type(value).__name__} {shown(value)}",
                hint="Convert it to a string.",
            )


def _sorted_keys(value: Mapping[str, Json]) -> list[str]:
    for key in value:
        if not isinstance(key, str):
            raise InvalidArgument(f"keys of an entity must be strings, got {shown(key)}")
    return sorted(value)


def _text(value: str) -> str:
    if _UNWRITABLE.search(value):
        raise InvalidArgument(f"entity must not contain NUL or lone surrogates, got {shown(value)!r}")
    return json.dumps(value, ensure_ascii=False)


def _number(value: float | Decimal) -> str:
    try:
        # repr gives the shortest text that reads back as the same float, which is what JSON carries.
        number = value if isinstance(value, Decimal) else Decimal(repr(value))
    except (InvalidOperation, ValueError):
        number = Decimal("NaN")
    if not number.is_finite():
        raise InvalidArgument(f"entity must hold finite numbers, got {shown(value)}")
    if abs(number.adjusted()) <= MOST_DIGITS:
        plain = f"{number:f}"
        plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
        if len(plain.replace("-", "").replace(".", "")) <= MOST_DIGITS:
            return "0" if number == 0 else plain
    if number == 0:
        return "0"
    raise InvalidArgument(
        f"numbers of an entity must have at most {MOST_DIGITS} digits, got {shown(value)}",
        hint="Send it as a string.",
    )


def _window(grain: Grain, at: datetime, zone: str) -> str:
    if at.tzinfo is None:
        raise InvalidArgument(
            f"at must have a time zone, got {at.isoformat()}", hint="Use datetime.now(UTC), or attach a zone."
        )
    if not isinstance(zone, str) or not _ZONE.fullmatch(zone):
        raise InvalidArgument(
            f"zone must be the name of a time zone, got {shown(zone)!r}",
            hint="Write it like America/Los_Angeles, or UTC.",
        )
    try:
        local = at.astimezone(ZoneInfo(zone))
    except (KeyError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"zone must be a known time zone, got {zone!r}",
            hint="On a system without zone files, install tzdata.",
        ) from error
    if grain == "day":
        return local.strftime("%Y-%m-%d")
    # With the offset: the hour that is repeated in autumn is two windows.
    return local.strftime("%Y-%m-%dT%H%z")
