"""What people write into forms: durations, numbers, thresholds.  What cannot be read says which field, and how to write it."""

from __future__ import annotations

import re
from datetime import timedelta

from onceward.errors import InvalidArgument, shown
from onceward.web import words

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
# Written out, a unit begins with its letter.
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*((?:second|minute|hour|day|week)s?|ms|min|[smhdw])\s*")
_BYTES = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
          "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}  # fmt: skip
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z%]*)")
_LONGEST = timedelta(days=36525)
_HINTS = {
    "seconds": "Write it as 30s, 5m or 2h.",
    "count": "Write a number, as 20.",
    "share": "Write it as 20% or 0.2.",
    "bytes": "Write it as 500MB, 50GB or 20GiB.",
}


def duration(name: str, text: str, *, zero: bool = True) -> timedelta:
    """`500ms`, `30s`, `5m`, `2h`, `1d`, `1h30m`; `10 minutes`, `1 hour 30 minutes`."""
    plain = text.strip().lower()
    if not re.fullmatch(f"(?:{_PART.pattern})+", plain):
        raise InvalidArgument(
            f"{name} must be a duration, got {shown(text)!r}", hint="Write it as 30s, 5m, 2h, 1d or 1h30m."
        )
    seconds = sum(
        float(number) * _SECONDS[unit if unit in _SECONDS else unit[0]]
        for number, unit in _PART.findall(plain)
    )
    if seconds > _LONGEST.total_seconds():
        raise InvalidArgument(f"{name} must be at most 100 years, got {shown(text)!r}")
    if not zero and seconds == 0:
        raise InvalidArgument(f"{name} must be more than 0, got {shown(text)!r}")
    return timedelta(seconds=seconds)


def duration_or_none(name: str, text: str, *, zero: bool = True) -> timedelta | None:
    """None for an empty field."""
    return duration(name, text, zero=zero) if text.strip() else None


def whole(name: str, text: str, *, least: int = 0, most: int = 2**31 - 1) -> int:
    plain = text.strip().replace(",", "").replace(" ", "")
    if not re.fullmatch(r"[0-9]{1,18}", plain) or not least <= int(plain) <= most:
        raise InvalidArgument(f"{name} must be a whole number from {least} to {most}, got {shown(text)!r}")
    return int(plain)


def whole_or_none(name: str, text: str, *, least: int = 0, most: int = 2**31 - 1) -> int | None:
    """None for an empty field."""
    return whole(name, text, least=least, most=most) if text.strip() else None


def size_or_none(name: str, text: str, *, least: int = 0, most: int = 2**53) -> int | None:
    """Bytes, as 64MiB; None for an empty field."""
    if not text.strip():
        return None
    found = _NUMBER.fullmatch(text.strip().lower())
    if found is None or found[2] not in _BYTES:
        raise InvalidArgument(
            f"{name} must be a size, got {shown(text)!r}", hint="Write it as 512KiB or 64MiB."
        )
    size = int(float(found[1]) * _BYTES[found[2]])
    if not least <= size <= most:
        raise InvalidArgument(
            f"{name} must be from {words.size(least)} to {words.size(most)}, got {shown(text)!r}"
        )
    return size


def threshold(name: str, text: str, unit: str) -> float | str | None:
    """The number in the unit of the threshold; `default`, or None for `off`."""
    plain = text.strip().lower()
    if plain in {"default", "off"}:
        return "default" if plain == "default" else None
    if unit == "seconds" and not re.fullmatch(r"[0-9.]+", plain):
        return duration(name, text).total_seconds()
    found = _NUMBER.fullmatch(plain)
    if found is not None:
        number, suffix = float(found[1]), found[2]
        if unit == "share" and suffix == "%":
            return number / 100
        if unit == "bytes" and suffix in _BYTES:
            return number * _BYTES[suffix]
        if not suffix:
            return int(number) if number == int(number) else number
    raise InvalidArgument(
        f"{name} must be a number of {unit}, off or default, got {shown(text)!r}", hint=_HINTS[unit]
    )
