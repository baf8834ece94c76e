"""Numbers, durations and moments, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from onceward.model_web import Count

# A job that waits for an event without a limit waits until then.
NEVER = 9000


def number(value: float) -> str:
    return f"{value:,.0f}"


def counted(value: int, word: str, plural: str | None = None) -> str:
    """`1 job`, `1,204 jobs`."""
    return f"{value:,} {word if value == 1 else plural or word + 's'}"


def count(found: Count) -> str:
    """`214`, `about 1.2 million`, `more than 20,000`."""
    if found.kind == "about":
        return f"about {rounded(found.number)}"
    return f"{'' if found.kind == 'exactly' else found.kind + ' '}{found.number:,}"


def rounded(value: int) -> str:
    """Two figures: an estimate that is written out to the last one would pretend."""
    if value < 100:
        return str(value)
    if value >= 1_000_000:
        return f"{value / 1_000_000:.1f} million"
    power = 10 ** (len(str(value)) - 2)
    return f"{round(value / power) * power:,}"


def span(value: timedelta | None) -> str:
    """`240 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `3 days 4 h`."""
    if value is None:
        return "–"
    seconds = value.total_seconds()
    if seconds < 0:
        return "–" + span(-value)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 60:
        return f"{seconds:.0f} s"
    for size, unit, smaller, smaller_unit in (
        (60, "min", 1, "s"),
        (3600, "h", 60, "min"),
        (86400, "days", 3600, "h"),
    ):
        if seconds < size * {60: 60, 3600: 24, 86400: 10**9}[size]:
            whole, rest = divmod(int(seconds), size)
            word = "day" if unit == "days" and whole == 1 else unit
            part = rest // smaller
            return f"{whole} {word}" + (f" {part} {smaller_unit}" if part else "")
    raise AssertionError(seconds)


def per(value: timedelta) -> str:
    """`min` for one minute, `5 min` for five: what follows a number and "per"."""
    text = span(value)
    return text.removeprefix("1 ") if text.count(" ") == 1 else text


def facts(value: object, most: int = 160) -> str:
    """An object in one line: `role: admin, tenant: acme`; what it does not have is told only when there is nothing else."""
    if not isinstance(value, dict):
        return str(value)[:most]
    told = {name: each for name, each in value.items() if each is not None} or value
    text = ", ".join(f"{name.replace('_', ' ')}: {_plain(each)}" for name, each in told.items())
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(value: object) -> object:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else value


def compact(value: timedelta | None) -> str:
    """`1h30m`, `500ms`, `30d`: as a form takes it."""
    if value is None:
        return ""
    rest = round(value.total_seconds() * 1000)
    parts = []
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")):
        whole, rest = divmod(rest, size)
        parts += [f"{whole}{unit}"] if whole else []
    return "".join(parts) or "0s"


def measure(value: float | None, unit: str) -> str:
    """A threshold or what was measured against it, as a form takes it: `10m`, `20%`, `50GiB`, `5`, `off`."""
    if value is None:
        return "off"
    if unit == "seconds":
        return compact(timedelta(seconds=float(value)))
    if unit == "share":
        return f"{value * 100:g}%"
    if unit == "bytes":
        return size(value)
    return f"{value:g}" if value < 1_000_000 else f"{value:.0f}"


def size(value: float) -> str:
    """`512B`, `1.5MiB`."""
    for name in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:g}{name}" if value == int(value) else f"{value:.1f}{name}"
        value /= 1024
    return f"{value:.1f}TiB"


def ago(moment: datetime | None, now: datetime) -> str:
    """`3 min ago`, `in 2 h`, `now`: one unit only."""
    if moment is None:
        return "–"
    if moment.year >= NEVER:
        return "never"
    seconds = (now - moment).total_seconds()
    size = abs(seconds)
    if size < 1.5:
        return "now"
    for limit, divisor, unit in (
        (90, 1, "s"),
        (5400, 60, "min"),
        (129600, 3600, "h"),
        (10**12, 86400, "days"),
    ):
        if size < limit:
            text = f"{size / divisor:.0f} {unit}"
            return f"{text} ago" if seconds > 0 else f"in {text}"
    raise AssertionError(seconds)


def exact(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def short_id(value: object) -> str:
    """The end of an id: its beginning is the time, which neighbours share."""
    return str(value)[-6:]


def listed(items: list[str], most: int = 3) -> str:
    rest = len(items) - most
    return ", ".join(items[:most]) + (f" and {rest} more" if rest > 0 else "")


def slot(text: str) -> str:
    """`2026-11-16T07:00:00` as `Mon 16 Nov 2026, 07:00`; what else a slot has, as seconds or an offset, stays."""
    try:
        day, _, clock = text.partition("T")
        date = datetime.fromisoformat(day)
    except ValueError:
        return text
    minutes, seconds = clock[:5], clock[5:]
    return f"{date:%a} {date.day} {date:%b %Y}, {minutes}{seconds.removeprefix(':00')}"
