"""The charts of the saved questions: bars in several parts, drawn on the server, with their figures as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from onceward.web.charts import nice


@dataclass(frozen=True, slots=True)
class Part:
    """One part of each bar: its name, its class in the style sheet, and a figure per bar."""

    name: str
    tone: str
    values: Sequence[int]


def stacked(labels: Sequence[str], parts: Sequence[Part], title: str, unit: str = "") -> Markup:
    """Bars whose parts stand on each other, on a grid of round numbers."""
    top = nice(max((sum(column) for column in zip(*(part.values for part in parts), strict=True)), default=0))
    width = 1000 / max(len(labels), 1)
    bars = Markup("").join(_bar(at, width, label, parts, top, unit) for at, label in enumerate(labels))
    lines = Markup("").join(
        Markup('<line class="grid" x1="0" x2="1000" y1="{0}" y2="{0}"/>').format(y) for y in (0.5, 50, 99.5)
    )
    return Markup(
        '<figure class="chart"><div class="chart-scale" aria-hidden="true"><span>{top}</span><span>{half}</span><span>0</span></div>'
        '<svg class="bars" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{title}">{lines}{bars}</svg>'
        '<div class="chart-axis" aria-hidden="true"><span>{first}</span><span>{middle}</span><span>{last}</span></div>'
        "{table}</figure>"
    ).format(
        top=f"{top:,}", half=f"{top // 2:,}" if top > 1 else "", title=title, lines=lines, bars=bars, table=_table(labels, parts, title),
        first=labels[0] if labels else "", middle=labels[len(labels) // 2] if labels else "", last=labels[-1] if labels else "",
    )  # fmt: skip


def legend(parts: Sequence[Part]) -> Markup:
    keys = Markup("").join(
        Markup('<span class="proof-key"><i class="{}"></i>{}</span>').format(part.tone, part.name)
        for part in parts
    )
    return Markup('<p class="proof-legend">{}</p>').format(keys)


def _bar(at: int, width: float, label: str, parts: Sequence[Part], top: int, unit: str) -> Markup:
    told = ", ".join(f"{part.values[at]:,}{unit} {part.name}" for part in parts)
    shapes, level = Markup(""), 100.0
    for part in parts:
        height = part.values[at] / top * 100
        level -= height
        if height:
            shapes += Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                part.tone,
                f"{(at + 0.12) * width:.2f}",
                f"{level:.2f}",
                f"{width * 0.76:.2f}",
                f"{height:.2f}",
            )
    return Markup(
        '<g>{}<rect class="bar-hit" x="{}" y="0" width="{}" height="100"/><title>{}: {}</title></g>'
    ).format(shapes, f"{at * width:.2f}", f"{width:.2f}", label, told)


def _table(labels: Sequence[str], parts: Sequence[Part], title: str) -> Markup:
    head = Markup("").join(Markup("<th scope=col>{}</th>").format(part.name) for part in parts)
    body = Markup("").join(
        Markup("<tr><th scope=row>{}</th>{}</tr>").format(
            label, Markup("").join(Markup("<td>{}</td>").format(part.values[at]) for part in parts)
        )
        for at, label in enumerate(labels)
    )
    return Markup(
        '<div class="hidden"><table><caption>{}</caption><tr><th scope=col>When</th>{}</tr>{}</table></div>'
    ).format(title, head, body)
