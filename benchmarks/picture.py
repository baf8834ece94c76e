"""Draw benchmarks/results.json: docs/images/performance-light.svg and performance-dark.svg."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parent.parent
# The picture's own order, from top to bottom, and short names.
NAMES = {
    "onceward": "Onceward",
    "onceward_sync": "Onceward, sync client",
    "onceward_keys": "Onceward, with keys",
    "pgqueuer": "PgQueuer",
    "raw": "raw SQL",
    "raw_200": "raw loop, batch 200",
    "raw_1000": "raw loop, batch 1,000",
    "raw_unnest": "raw INSERT … unnest",
    "raw_copy": "raw COPY",
}


@dataclass(frozen=True)
class Panel:
    title: str
    metric: str
    # Drawn as a mark beside the bar.
    also: str | None = None
    note: str = ""


PANELS = (
    Panel("Drain, one worker process", "drain_one", note="jobs/s"),
    Panel("Drain, two worker processes", "drain_two", note="jobs/s"),
    Panel("Bulk enqueue", "bulk", note="jobs/s, calls of 1,000"),
    Panel("Single enqueue, awaited", "single", note="jobs/s"),
    Panel("Start latency", "start_p50", "start_p99", "ms, less is better; bar p50, mark p99"),
    Panel("Drain while xmin is pinned", "horizon_kept", note="× of the rate without"),
)


@dataclass(frozen=True)
class Theme:
    name: str
    ink: str
    quiet: str
    ours: str
    peer: str
    raw: str
    background: str


THEMES = (
    Theme("light", "#1f2328", "#59636e", "#0b7a75", "#c2803a", "#a8b1bb", "#ffffff"),
    Theme("dark", "#e6edf3", "#9198a1", "#34c3b7", "#d29a5c", "#59636e", "#0d1117"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the results of onceward bench.")
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / "benchmarks" / "results.json")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="folder of the pictures")
    parser.add_argument("--format", default="svg", choices=["svg", "png"])
    given = parser.parse_args()
    document = json.loads(given.results.read_text(encoding="utf-8"))
    given.to.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        target = given.to / f"performance-{theme.name}.{given.format}"
        draw(document, theme, target)
        print(target.name)


def draw(document: dict[str, Any], theme: Theme, target: Path) -> None:
    metrics = {metric["name"]: metric for metric in document["metrics"]}
    panels = [panel for panel in PANELS if panel.metric in metrics]
    # The same picture from the same results, byte for byte.
    style = {
        "svg.hashsalt": "onceward",
        "font.size": 10,
        "text.color": theme.ink,
        "font.family": "DejaVu Sans",
    }
    with plt.rc_context(style):
        rows = (len(panels) + 1) // 2
        figure, grid = plt.subplots(rows, 2, figsize=(11, 2.1 * rows + 0.7), squeeze=False)
        figure.patch.set_facecolor(theme.background)
        axes = [axis for row in grid for axis in row]
        for axis, panel in zip(axes, panels, strict=False):
            bars(axis, panel, metrics, theme)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        figure.text(0.01, 0.008, caption(document), color=theme.quiet, fontsize=8)
        figure.tight_layout(rect=(0, 0.035, 1, 1), h_pad=1.6, w_pad=2.5)
        metadata = {"Date": None, "Creator": None} if target.suffix == ".svg" else {}
        figure.savefig(target, facecolor=theme.background, metadata=metadata, dpi=110)
        plt.close(figure)


def bars(axis: Axes, panel: Panel, metrics: dict[str, Any], theme: Theme) -> None:
    systems = metrics[panel.metric]["systems"]
    names = [name for name in NAMES if name in systems]
    marks = metrics[panel.also]["systems"] if panel.also in metrics else {}
    longest = max(
        max(systems[name]["max"], marks[name]["median"] if name in marks else 0.0) for name in names
    )
    for place, name in enumerate(names):
        found = systems[name]
        ours = name.startswith("onceward")
        color = theme.ours if ours else theme.peer if name == "pgqueuer" else theme.raw
        axis.barh(
            place, found["median"], height=0.62, color=color, alpha=1.0 if name != "onceward_sync" else 0.75
        )
        end = found["median"]
        if found["max"] > found["min"]:
            axis.plot([found["min"], found["max"]], [place, place], color=theme.ink, linewidth=1)
            end = max(end, found["max"])
        label = number(found["median"])
        if name in marks:
            axis.plot(marks[name]["median"], place, marker="D", markersize=4, color=theme.ink)
            end = max(end, marks[name]["median"])
            label += f" / {number(marks[name]['median'])}"
        axis.text(
            end + longest * (0.04 if name in marks else 0.015), place, label, va="center", fontsize=9,
            color=theme.ink, fontweight="bold" if ours else "normal",
        )  # fmt: skip
    axis.set_yticks(range(len(names)), [NAMES[name] for name in names], color=theme.ink, fontsize=9)
    axis.invert_yaxis()
    axis.set_xlim(0, longest * (1.3 if marks else 1.18))
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.set_facecolor(theme.background)
    for side in ("top", "right", "bottom"):
        axis.spines[side].set_visible(False)
    axis.spines["left"].set_color(theme.quiet)
    axis.set_title(panel.title, loc="left", fontsize=11, fontweight="bold", color=theme.ink)
    axis.set_title(panel.note, loc="right", fontsize=8, color=theme.quiet)


def caption(document: dict[str, Any]) -> str:
    machine, server = document["machine"], document["server"]
    return (
        f"{document['command']} · {document['date'][:10]} · {machine['cores']} cores, {machine['memory_gb']:g} GB · "
        f"PostgreSQL {server['version']}, fsync {server['settings']['fsync']} · Python {machine['python']} · "
        "no-op handlers, medians, lines from lowest to highest"
    )


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
