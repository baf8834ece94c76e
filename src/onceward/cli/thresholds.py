"""Thresholds as people write and read them: 10m, 20%, 50GB, 5."""

from __future__ import annotations

import re
from datetime import timedelta

from onceward.cli import output, values
from onceward.cli.values import UsageProblem

_SIZES = {"": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
          "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4}  # fmt: skip
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z%]*)")
_HINTS = {
    "seconds": "Write it like 30s, 5m or 2h.",
    "count": "Write a number, as 20.",
    "share": "Write it like 20% or 0.2.",
    "bytes": "Write it like 500MB, 50GB or 20GiB.",
}


def read_threshold(name: str, text: str, unit: str) -> float | str | None:
    """The number in the unit of the threshold; `default`, or None for `off`."""
    plain = text.strip().lower()
    if plain == "default":
        return "default"
    if plain == "off":
        return None
    if unit == "seconds" and not plain.replace(".", "", 1).isdigit():
        span = values.duration(name, text)
        assert span is not None
        return span.total_seconds()
    found = _NUMBER.fullmatch(plain)
    if found is not None:
        number, suffix = float(found[1]), found[2]
        if unit == "share" and suffix == "%":
            return number / 100
        if unit == "bytes" and suffix in _SIZES:
            return number * _SIZES[suffix]
        if not suffix and unit != "bytes":
            return int(number) if number == int(number) else number
    raise UsageProblem(
        f"{name} must be a number of {unit}, off or default, got {values.quoted(text)}", hint=_HINTS[unit]
    )


def shown_threshold(value: float | None, unit: str) -> str:
    if value is None:
        return "off"
    if unit == "seconds":
        return output.short(timedelta(seconds=value)) if value else "0s"
    if unit == "share":
        return f"{value * 100:g}%"
    if unit == "bytes":
        return _shown_bytes(value)
    return f"{value:,g}" if value < 1_000_000 else f"{value:,.0f}"


def _shown_bytes(value: float) -> str:
    for name in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:g}{name}" if value == int(value) else f"{value:.1f}{name}"
        value /= 1024
    return f"{value:.1f}TiB"
