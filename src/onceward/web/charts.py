"""Charts as inline SVG: drawn on the server, coloured by the style sheet, with the numbers as a table for who cannot see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


@dataclass(frozen=True, slots=True)
class Point:
    """One bar: what was done and what failed, under a label."""

    label: str
    done: int
    failed: int = 0


def sparkline(values: Sequence[float], label: str) -> Markup:
    """A line without axes, for a figure; the label says it in words."""
    if len(values) < 2:
        return Markup("")
    top = max(*values, 1)
    step = 100 / (len(values) - 1)
    points = [f"{i * step:.1f},{26 - value / top * 24:.1f}" for i, value in enumerate(values)]
    line = " ".join(points)
    return Markup(
        '<svg class="spark" viewBox="0 0 100 28" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<polygon class="spark-area" points="0,28 {line} 100,28"/>'
        '<polyline class="spark-line" points="{line}"/></svg>'
    ).format(label=label, line=line)


def bars(points: Sequence[Point], title: str, names: tuple[str, str] = ("done", "failed")) -> Markup:
    """Bars of what was done, with what failed standing on top, on a grid of round numbers.  `names` says what they are."""
    top = nice(max((point.done + point.failed for point in points), default=0))
    width = 1000 / max(len(points), 1)
    parts: list[str] = []
    for i, point in enumerate(points):
        done, failed = point.done / top * 100, point.failed / top * 100
        parts.append("<g>")
        if point.done:
            parts.append(_rect("bar-done", i * width + width * 0.12, 100 - done, width * 0.76, done))
        if point.failed:
            parts.append(
                _rect("bar-failed", i * width + width * 0.12, 100 - done - failed, width * 0.76, failed)
            )
        # A transparent one over the whole height, so that the text appears above small bars, too.
        parts.append(
            f'<rect class="bar-hit" x="{i * width:.2f}" y="0" width="{width:.2f}" height="100"/>'
            f"<title>{_said(point, names)}</title></g>"
        )
    lines = "".join(f'<line class="grid" x1="0" x2="1000" y1="{y}" y2="{y}"/>' for y in (0.5, 50, 99.5))
    return Markup(
        '<figure class="chart"><div class="chart-scale" aria-hidden="true"><span>{top}</span><span>{half}</span><span>0</span></div>'
        '<svg class="bars" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{title}">{bars}</svg>'
        '<div class="chart-axis" aria-hidden="true"><span>{first}</span><span>{middle}</span><span>{last}</span></div>'
        "{table}</figure>"
    ).format(
        top=f"{top:,}",
        half=f"{top // 2:,}" if top > 1 else "",
        title=title,
        bars=_shapes(lines, *parts),
        first=points[0].label if points else "",
        middle=points[len(points) // 2].label if points else "",
        last=points[-1].label if points else "",
        table=_table(title, points, names),
    )


def heat(points: Sequence[Point], title: str, top: int) -> Markup:
    """One cell per point, darker for more; a cell in which something failed has a mark."""
    cells: list[str] = []
    for i, point in enumerate(points):
        level = 0 if not point.done else min(5, 1 + point.done * 4 // max(top, 1))
        mark = f'<rect class="heat-failed" x="{i * 10 + 1}" y="11" width="8" height="3"/>'
        cells.append(
            f'<g><rect class="heat heat-{level}" x="{i * 10}" y="0" width="9" height="14"/>'
            f"{mark if point.failed else ''}<title>{_said(point)}</title></g>"
        )
    total = sum(point.done for point in points)
    failed = sum(point.failed for point in points)
    label = f"{title}: {total:,} done, {failed:,} failed"
    return Markup(
        '<svg class="heat-strip" viewBox="0 0 {} 14" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(len(points) * 10 - 1, label, _shapes(*cells))


def _shapes(*parts: str) -> Markup:
    """Text that is put together here, of numbers and of what escape has gone over."""
    return Markup("".join(parts))  # noqa: S704 - see above


def _said(point: Point, names: tuple[str, str] = ("done", "failed")) -> str:
    """What a bar says, escaped: there are hundreds of them on a page, and each is put together as text."""
    done, failed = escape(names[0]), escape(names[1])
    also = f", {point.failed:,} {failed}" if point.failed else ""
    return f"{escape(point.label)}: {point.done:,} {done}{also}"


@dataclass(frozen=True, slots=True)
class LevelPoint:
    """A moment of a limit: what was left of it from 0 to 1, how many waited, and whether it was paused."""

    label: str
    level: float
    waiting: int
    paused: bool


def levels(points: Sequence[LevelPoint], title: str) -> Markup:
    """What was left, as a line that falls to the ground when there is no room; under it, a mark where it was paused."""
    if len(points) < 2:
        return Markup("")
    step = 1000 / (len(points) - 1)
    line = " ".join(f"{i * step:.1f},{98 - point.level * 96:.1f}" for i, point in enumerate(points))
    marks = "".join(
        f'<rect class="level-paused" x="{max(i * step - step / 2, 0):.1f}" y="0" width="{step:.1f}" height="100"/>'
        for i, point in enumerate(points)
        if point.paused
    )
    hits = "".join(
        f'<g><rect class="bar-hit" x="{max(i * step - step / 2, 0):.1f}" y="0" width="{step:.1f}" height="100"/>'
        f"<title>{escape(point.label)}: {point.level:.0%} left, {point.waiting:,} waiting{', paused' if point.paused else ''}</title></g>"
        for i, point in enumerate(points)
    )
    lines = "".join(f'<line class="grid" x1="0" x2="1000" y1="{y}" y2="{y}"/>' for y in (2, 50, 98))
    rows = "".join(
        f"<tr><th scope=row>{escape(point.label)}</th><td>{point.level:.0%}</td><td>{point.waiting}</td>"
        f"<td>{'yes' if point.paused else 'no'}</td></tr>"
        for point in points
    )
    return Markup(
        '<figure class="chart"><div class="chart-scale" aria-hidden="true"><span>100%</span><span>50%</span><span>0</span></div>'
        '<svg class="bars" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{title}">{shapes}</svg>'
        '<div class="chart-axis" aria-hidden="true"><span>{first}</span><span>{middle}</span><span>{last}</span></div>'
        '<div class="hidden"><table><caption>{title}</caption><tr><th scope=col>Time</th><th scope=col>Left</th>'
        "<th scope=col>Waiting</th><th scope=col>Paused</th></tr>{rows}</table></div></figure>"
    ).format(
        title=title,
        shapes=_shapes(
            lines,
            marks,
            f'<polygon class="spark-area" points="0,98 {line} 1000,98"/><polyline class="spark-line" points="{line}"/>',
            hits,
        ),
        first=points[0].label,
        middle=points[len(points) // 2].label,
        last=points[-1].label,
        rows=_shapes(rows),
    )


def nice(value: int) -> int:
    """The next round number: 1, 2, 4, 6, 10, 20, 40, 60, 100 …"""
    if value <= 1:
        return 2
    power = int(10 ** (len(str(value)) - 1))
    return next(step * power for step in (1, 2, 4, 6, 10) if step * power >= value)


def _rect(name: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{name}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'


def _table(title: str, points: Sequence[Point], names: tuple[str, str]) -> Markup:
    rows = _shapes(
        *(
            f"<tr><th scope=row>{escape(point.label)}</th><td>{point.done}</td><td>{point.failed}</td></tr>"
            for point in points
            if point.done or point.failed
        )
    )
    return Markup(
        # A table does not become narrower than its words; what is around it does.
        '<div class="hidden"><table><caption>{}</caption><tr><th scope=col>Time</th><th scope=col>{}</th>'
        "<th scope=col>{}</th></tr>{}</table></div>"
    ).format(
        title, *(name.capitalize() for name in names), rows or Markup('<tr><td colspan="3">nothing</td></tr>')
    )
