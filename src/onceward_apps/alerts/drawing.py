"""Charts of this system as inline SVG, coloured by its style sheet, each with its numbers as a table for who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup

WIDTH, HEIGHT = 1000.0, 200.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment that matters, and the value then, if there was one."""

    at: datetime
    label: str
    value: float | None = None
    kind: str = "moment"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.  `kind` is its colour and `word` says it."""

    label: str
    value: float
    kind: str
    word: str
    href: str | None = None


def course(
    points: Sequence[tuple[datetime, float]],
    title: str,
    *,
    marks: Sequence[Mark] = (),
    level: float | None = None,
    unit: str = "",
) -> Markup:
    """The course of a metric, with moments marked on it and a level drawn through it."""
    if len(points) < 2:
        return Markup('<p class="muted">There are too few values to draw.</p>')
    first, last = points[0][0], max(points[-1][0], *(mark.at for mark in marks), points[0][0])
    span = max(last - first, timedelta(seconds=1))
    values = [value for _, value in points] + ([level] if level is not None else [])
    low, high = min(values), max(values)
    room = (high - low or abs(high) or 1.0) * 0.08
    low, high = low - room, high + room
    if min(values) >= 0 > low:
        low = 0.0

    def x(at: datetime) -> float:
        return (at - first) / span * WIDTH

    def y(value: float) -> float:
        return HEIGHT - (value - low) / (high - low) * HEIGHT

    line = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
    parts = [
        Markup('<polygon class="course-area" points="0,{h} {line} {end},{h}"/>').format(
            h=f"{HEIGHT:.0f}", line=line, end=f"{x(points[-1][0]):.1f}"
        ),
        Markup('<polyline class="course-line" points="{}"/>').format(line),
    ]
    if level is not None:
        parts.append(
            Markup(
                '<line class="course-level" x1="0" x2="1000" y1="{0}" y2="{0}"><title>{1}</title></line>'
            ).format(f"{y(level):.1f}", f"limit {shown(level, unit)}")
        )
    for mark in marks:
        at = f"{x(mark.at):.1f}"
        parts.append(
            Markup(
                '<line class="course-{kind}" x1="{x}" x2="{x}" y1="0" y2="200"><title>{label}</title></line>'
            ).format(kind=mark.kind, x=at, label=mark.label)
        )
        if mark.value is not None:
            # A line without length and with round ends: a dot that no scaling makes an egg.
            parts.append(
                Markup('<path class="course-dot" d="M{} {}h0.01"><title>{}</title></path>').format(
                    at, f"{y(mark.value):.1f}", mark.label
                )
            )
    rows = Markup("").join(
        Markup("<tr><th scope=row>{}</th><td>{}</td></tr>").format(f"{at:%Y-%m-%d %H:%M}", shown(value, unit))
        for at, value in points[:: max(1, len(points) // 60)]
    )
    return Markup(
        '<figure class="chart course"><div class="chart-scale" aria-hidden="true"><span>{high}</span><span>{low}</span></div>'
        '<svg class="course-plot" viewBox="0 0 1000 200" preserveAspectRatio="none" role="img" aria-label="{title}">{parts}</svg>'
        '<div class="chart-axis" aria-hidden="true"><span>{first}</span><span>{middle}</span><span>{last}</span></div>'
        '<div class="hidden"><table><caption>{title}</caption><tr><th scope=col>Time</th><th scope=col>Value</th></tr>{rows}</table></div>'
        "</figure>"
    ).format(
        high=shown(high, unit), low=shown(low, unit), title=title, parts=Markup("").join(parts),
        first=f"{first:%-d %b}", middle=f"{first + (last - first) / 2:%-d %b}", last=f"{last:%-d %b}", rows=rows,
    )  # fmt: skip


def bars(found: Sequence[Bar], title: str, unit: str = "") -> Markup:
    """Bars that stand on a line, or hang from it when they are below zero."""
    if not found:
        return Markup("")
    high, low = max(0.0, *(bar.value for bar in found)), min(0.0, *(bar.value for bar in found))
    high, low = (high, low) if high > low else (1.0, 0.0)
    width = WIDTH / max(len(found), 12)

    def y(value: float) -> float:
        return (high - value) / (high - low) * 100

    parts = []
    for number, bar in enumerate(found):
        top, bottom = y(max(bar.value, 0)), y(min(bar.value, 0))
        # Something happened, even if it took no time.
        tall = max(bottom - top, 1.0)
        text = f"{bar.label}: {shown(bar.value, unit)}, {bar.word}"
        parts.append(
            Markup(
                '<g><rect class="plot-{kind}" x="{x}" y="{y}" width="{w}" height="{h}"/>'
                '<rect class="bar-hit" x="{left}" y="0" width="{full}" height="100"/><title>{text}</title></g>'
            ).format(
                kind=bar.kind,
                x=f"{number * width + width * 0.14:.1f}",
                y=f"{bottom - tall if bar.value >= 0 else top:.1f}",
                w=f"{width * 0.72:.1f}",
                h=f"{tall:.1f}",
                left=f"{number * width:.1f}",
                full=f"{width:.1f}",
                text=text,
            )
        )
    rows = Markup("").join(
        Markup("<tr><th scope=row>{}</th><td>{}</td><td>{}</td></tr>").format(
            bar.label, shown(bar.value, unit), bar.word
        )
        for bar in found
    )
    return Markup(
        '<figure class="chart"><div class="chart-scale" aria-hidden="true"><span>{high}</span><span>{low}</span></div>'
        '<svg class="bars" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{title}">'
        '<line class="grid" x1="0" x2="1000" y1="{zero}" y2="{zero}"/>{parts}</svg>'
        '<div class="hidden"><table><caption>{title}</caption><tr><th scope=col>What</th><th scope=col>Value</th>'
        "<th scope=col>State</th></tr>{rows}</table></div></figure>"
    ).format(
        high=shown(high, unit), low=shown(low, unit), title=title, zero=f"{min(y(0), 99.5):.1f}",
        parts=Markup("").join(parts), rows=rows,
    )  # fmt: skip


def shown(value: float | None, unit: str = "") -> str:
    """A value in its unit, as people write it."""
    if value is None:
        return "–"
    text = (
        f"{value:,.0f}"
        if abs(value) >= 1000 or value == round(value)
        else f"{value:,.2f}".rstrip("0").rstrip(".")
    )
    if unit in {"$", "€", "£"}:
        return f"-{unit}{text[1:]}" if text.startswith("-") else unit + text
    return f"{text} {unit}".strip()
