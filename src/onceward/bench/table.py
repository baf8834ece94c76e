"""Results for reading."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onceward.bench.metrics import rounded

MARKS = {True: Text("reached", "green"), False: Text("missed", "red"), None: Text("not measured", "dim")}


def show(document: dict[str, Any], console: Console) -> None:
    machine, server = document["machine"], document["server"]
    console.print(
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, Python {machine['python']}, "
        f"PostgreSQL {server['version']}, fsync {server['settings']['fsync']}, "
        f"synchronous_commit {server['settings']['synchronous_commit']}",
        highlight=False,
    )
    console.print(_figures(document))
    console.print(_verdicts(document))
    for skipped in document["skipped"]:
        console.print(f"skipped: {skipped['system']}: {skipped['why']}", markup=False)
    for error in document["errors"]:
        console.print(f"failed: {error['group']}, {error['system']}: {error['error']}", markup=False)
    if document["noisy_runs"]:
        console.print(
            f"{document['noisy_runs']} runs shared the machine with others: measure again when it is quiet"
        )


def _figures(document: dict[str, Any]) -> Table:
    found = Table(title="Figures: median (lowest to highest)", title_justify="left")
    for heading in ("figure", "system", "median", "spread", "× raw", "× PgQueuer"):
        found.add_column(heading, justify="left" if heading in {"figure", "system"} else "right")
    for metric in document["metrics"]:
        title = f"{metric['title']} [{metric['unit']}]" if metric["unit"] else metric["title"]
        for system, value in metric["systems"].items():
            spread = "" if len(value["runs"]) < 2 else f"{number(value['min'])} to {number(value['max'])}"
            ratios = value.get("ratios", {})
            raw = [ratios[name] for name in ratios if name.startswith("raw")]
            # Against the strongest of the raw loops.
            worst = (min(raw) if metric["better"] == "higher" else max(raw)) if raw else None
            found.add_row(
                Text(title), document["labels"][system], number(value["median"]), spread, number(worst),
                number(ratios.get("pgqueuer")),
            )  # fmt: skip
            title = ""
        found.add_section()
    return found


def _verdicts(document: dict[str, Any]) -> Table:
    found = Table(title="Held against", title_justify="left")
    for heading in ("figure", "", "to reach", "is", ""):
        found.add_column(heading, justify="right" if heading == "is" else "left")
    for metric in document["metrics"]:
        for bar in metric["bars"]:
            found.add_row(
                metric["title"], bar["kind"], bar["text"], number(bar["value"]), MARKS[bar["passed"]]
            )
    return found


def number(value: float | None) -> str:
    if value is None:
        return ""
    shown = rounded(value)
    return f"{shown:,.0f}" if abs(shown) >= 1000 else f"{shown:g}"
