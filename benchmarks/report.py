"""Write docs/operations/performance.md from benchmarks/results.json.  No number in that page is typed by hand."""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What onceward.bench.pages notes of each address.
PAGE = re.compile(r"(?P<name>.+): p50 (?P<p50>\d+) ms, p95 (?P<p95>\d+) ms, own work (?P<own>\d+) ms$")
SECTIONS = {
    "Enqueue": ("single", "bulk", "transaction"),
    "Drain": ("drain", "drain-two", "drain-threads"),
    "Start latency": ("latency",),
    "Growth": ("growth",),
    "An old snapshot": ("horizon",),
    "Concurrency keys": ("keys",),
    "Steps": ("steps",),
    "The audit log": ("audit",),
    "Cost": ("log", "import"),
}
NOTES = {
    "Enqueue": "Payloads are validated against the handler's signature. "
    "The sync client is `Client`, the other one `AsyncClient`.",
    "Drain": "Handlers do nothing, so this is the cost of the queue alone. "
    "Onceward runs with fencing, archive, attempts, heartbeats and rescue; the raw loop has none of that.",
    "Start latency": "From the start of the enqueue call to handler entry: the commit of the enqueue is part of it.",
    "Growth": "A deep queue must not be slower than a shallow one.",
    "An old snapshot": "Another session holds a snapshot from before the first job, "
    "so that PostgreSQL cannot remove what dies meanwhile.",
    "Concurrency keys": "Every job is blocked at first, and each finish lets the next one of its key in.",
    "Steps": "Each step is a statement and a commit of its own. "
    "What sleeps, or waits for an event or for other jobs, sends none at all.",
    "The audit log": "By default it has the ends of jobs, which every other figure here includes; a lane may have every transition.",
    "Cost": "Write-ahead log is what replication and backups carry.",
}
# What has to be said with a figure that not every file of results has.
MORE = {
    "keys_apart": "In turn means that job i has key i modulo the number of keys, as when many users each send some work. "
    "This order is held against the bar. "
    "One after another means that all jobs of a key are enqueued before the next key begins: "
    "each job that a batch of finishes lets in then lies on another page, which is harder for a database. "
    "It is published beside the other, without a bar.",
}
MARKS = {True: "yes", False: "**no**", None: "not measured"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the page of the documentation from the results.")
    parser.add_argument("results", nargs="?", type=Path, default=ROOT / "benchmarks" / "results.json")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "operations" / "performance.md")
    given = parser.parse_args()
    document = json.loads(given.results.read_text(encoding="utf-8"))
    given.to.parent.mkdir(parents=True, exist_ok=True)
    given.to.write_text("\n".join(page(document)), encoding="utf-8")
    print(given.to.name)


def page(document: dict[str, Any]) -> list[str]:
    lines = [
        "# Performance",
        "",
        "<!-- Written by benchmarks/report.py from benchmarks/results.json. Change those. -->",
        "",
        "Speed is a ratio: Onceward beside the raw limit of PostgreSQL and beside PgQueuer, in one run on one machine.",
        "Measure on yours; `benchmarks/README.md` in the repository tells what is measured, and how.",
        "",
        "<picture>",
        '  <source media="(prefers-color-scheme: dark)" srcset="../images/performance-dark.svg">',
        (
            '  <img alt="Bars: drain, bulk and single enqueue, start latency and the rate under an old snapshot, of Onceward, '
            'PgQueuer and the raw loop" src="../images/performance-light.svg">'
        ),
        "</picture>",
        "",
        *setting(document),
    ]
    for title, groups in SECTIONS.items():
        metrics = [metric for metric in document["metrics"] if metric["group"] in groups]
        if metrics:
            more = [MORE[metric["name"]] for metric in metrics if metric["name"] in MORE]
            lines += [
                "",
                f"## {title}",
                "",
                " ".join([NOTES[title], *more]),
                "",
                *figures(metrics, document["labels"]),
            ]
    lines += ["", *verdicts(document), *pages(document), "", *caveats(document), ""]
    return lines


def setting(document: dict[str, Any]) -> list[str]:
    machine, server = document["machine"], document["server"]
    durable = ", ".join(f"`{name}` {server['settings'][name]}" for name in ("fsync", "synchronous_commit"))
    lines = [
        "| | |",
        "|---|---|",
        f"| date | {document['date'][:10]} |",
        f"| command | `{document['command']}` |",
        f"| machine | {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']:g} GB, {machine['system']} |",
        (
            f"| server | PostgreSQL {server['version']}, all settings default: {durable}, "
            f"`shared_buffers` {server['settings']['shared_buffers']} |"
        ),
        f"| software | Onceward {document['onceward']}, Python {machine['python']}, {packages(document)} |",
        f"| repeats | {document['sizes']['repeats']}, systems in turn; the whole run took {document['seconds'] // 60 + 1} minutes |",
    ]
    if "--quick" in document["command"]:
        lines += ["", "This was a quick run: its windows are too short for more than a first impression."]
    if document["noisy_runs"]:
        lines += [
            "",
            f"In {document['noisy_runs']} of {len(document['runs'])} runs, other programs used the machine as well.",
        ]
    lines += [f"\n{entry['system']} was skipped: {entry['why']}." for entry in document["skipped"]]
    return lines


def packages(document: dict[str, Any]) -> str:
    ours, peer = document["packages"]["onceward"], document["packages"]["pgqueuer"] or {}
    found = {**ours, "PgQueuer": peer.get("pgqueuer")}
    return ", ".join(f"{name} {version}" for name, version in found.items() if version)


def figures(metrics: list[dict[str, Any]], labels: dict[str, str]) -> list[str]:
    lines = [
        "| figure | system | median | lowest to highest | ÷ raw | ÷ PgQueuer |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for metric in metrics:
        title = f"{metric['title']} ({metric['unit']})" if metric["unit"] else metric["title"]
        for system, found in metric["systems"].items():
            spread = f"{number(found['min'])} to {number(found['max'])}" if len(found["runs"]) > 1 else ""
            ratios = found.get("ratios", {})
            raw = [value for name, value in ratios.items() if name.startswith("raw")]
            strongest = (min(raw) if metric["better"] == "higher" else max(raw)) if raw else None
            lines.append(
                f"| {title} | {labels[system]} | {number(found['median'])} | {spread} | {number(strongest)} "
                f"| {number(ratios.get('pgqueuer'))} |"
            )
            title = ""
    return lines


def verdicts(document: dict[str, Any]) -> list[str]:
    bars = [(metric["title"], bar) for metric in document["metrics"] for bar in metric["bars"]]
    lines = [
        "## Held against what we want to reach",
        "",
        f"{sum(bar['passed'] is True for _, bar in bars)} reached, {sum(bar['passed'] is False for _, bar in bars)} missed.",
        "",
        "| figure | | to reach | is | reached |",
        "|---|---|---|--:|---|",
    ]
    lines += [
        f"| {title} | {bar['kind']} | {bar['text']} | {number(bar['value'])} | {MARKS[bar['passed']]} |"
        for title, bar in bars
    ]
    lines += ["", "Not decided by this run:", ""]
    return [*lines, *(f"- {entry}" for entry in document["not_measured"])]


def pages(document: dict[str, Any]) -> list[str]:
    """Every address that was asked for, slowest first: medians over the repeats."""
    found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for run in document["runs"]:
        for note in run["notes"]:
            if page := PAGE.match(note):
                found[page["name"]].append(tuple(int(page[part]) for part in ("p50", "p95", "own")))
    middle = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in found.items()
    }
    if not found:
        return []
    lines = [
        "",
        "## Each page",
        "",
        "Milliseconds until the answer is there, and of the web process' own work for it. What stands in brackets is one of its kind.",
        "",
        "| page | p50 | p95 | own work |",
        "|---|--:|--:|--:|",
    ]
    slowest = sorted(middle.items(), key=lambda each: (-each[1][1], each[0]))
    return lines + [f"| `{name}` | {p50:.0f} | {p95:.0f} | {own:.0f} |" for name, (p50, p95, own) in slowest]


def caveats(document: dict[str, Any]) -> list[str]:
    lines = [
        "## Reading these figures",
        "",
        "- Handlers that do nothing show the cost of the queue alone; real handlers narrow every difference.",
        "- Producer, workers and server share the machine.",
        (
            "- ÷ raw is against the fastest of the raw variants. The raw loop keeps a history row, and has no fencing, no "
            "attempts, no heartbeat and no validation."
        ),
        "- Repeats of one system spread by up to a quarter on a virtual machine. Differences below 1.5 times are noise.",
        "- Latency and single enqueue depend on how fast the disk confirms a commit.",
    ]
    notes = {
        (run["group"], run["system"], note)
        for run in document["runs"]
        for note in run["notes"]
        if not PAGE.match(note)
    }
    lines += [f"- {group}, {document['labels'][system]}: {note}." for group, system, note in sorted(notes)]
    errors = {(error["group"], error["system"]) for error in document["errors"]}
    lines += [
        f"- {group}, {document['labels'][system]}: could not be measured." for group, system in sorted(errors)
    ]
    return lines


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
