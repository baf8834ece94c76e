"""`onceward doctor`: what could lose work, slow it down, or keep it from running."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from onceward.cli import output
from onceward.cli.framework import AsJson
from onceward.cli.session import session_of
from onceward.doctor import examine
from onceward.doctor_model import Finding


def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Look for what could lose, slow down or stop work. Only reads; exit status 1 if anything fails."""
    print_findings(examine(session_of(ctx)), as_json=as_json)


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print, and end with 1 if any of them failed."""
    if as_json:
        output.print_json(list(findings))
    else:
        _print_table(findings)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)


def _print_table(findings: Sequence[Finding]) -> None:
    console = output.stdout()
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        line = output.styled(finding.status.ljust(4))
        line.stylize(output.STATE_STYLES[finding.status])
        line.append("  " + finding.name.ljust(width) + "  ", style="not bold default")
        line.append(output.one_line(finding.value), style="default")
        console.print(line)
        if finding.status == "ok":
            continue
        for text, style in ((finding.meaning, "default"), (finding.action, "cyan")):
            if text:
                output.print_wrapped(text, indent=8 + width, style=style)
    counts = {word: sum(finding.status == word for finding in findings) for word in ("ok", "warn", "fail")}
    output.note(f"{counts['ok']} ok, {output.counted(counts['warn'], 'warning')}, {counts['fail']} failed")
