"""The part of `onceward job show` that tells of steps and of the jobs around it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from onceward import calls
from onceward.cli import output
from onceward.cli.session import Session
from onceward.cli.workflow_graph import by_state
from onceward.model import JobInfo, StepInfo

# As many steps are shown, the last ones.
STEPS = 20


def relations(session: Session, job: JobInfo) -> list[tuple[str, object]]:
    """Fields about the workflow; none for a job that stands alone."""
    found = session.run(calls.workflow(job.workflow_id, tenant=job.tenant))
    if not found:
        return []
    children = session.run(calls.children(job.id, job.workflow_id))
    after = f"{output.counted(len(job.after), 'job')}, on failure: {job.after_policy}" if job.after else None
    return [
        ("workflow", f"{job.workflow_id} ({output.counted(found[0].jobs, 'job')}, {found[0].state})"),
        ("node", job.node),
        ("after", after),
        ("child of", job.parent_id),
        ("children", f"{sum(children.values()):,}: {by_state(children)}" if children else None),
    ]


def print_steps(steps: Sequence[StepInfo], now: datetime, *, full: bool) -> None:
    if not steps:
        return
    output.heading("Steps")
    console = output.stdout()
    hidden = 0 if full else max(len(steps) - STEPS, 0)
    if hidden:
        states = by_state_of_steps(steps[:hidden])
        console.print(
            Text(
                f"     … {output.counted(hidden, 'earlier step')} ({states}), shown with --full", style="dim"
            )
        )
    for number, step in enumerate(steps[hidden:], start=hidden + 1):
        line = Text(f"  {number}. {output.one_line(step.name)}  ")
        line.append_text(output.styled(step.state))
        line.append(f"  {output.one_line(', '.join(_facts(step, now)))}")
        console.print(line)
        if step.error:
            output.print_wrapped(f"{step.error.get('type')}: {step.error.get('message')}", indent=5)


def by_state_of_steps(steps: Sequence[StepInfo]) -> str:
    counted = [(sum(step.state == state for step in steps), state) for state in ("done", "failed", "waiting")]
    return ", ".join(f"{count} {state}" for count, state in counted if count)


def _facts(step: StepInfo, now: datetime) -> list[str]:
    facts = [] if step.kind == "step" else [step.kind]
    if step.tries > 1:
        facts.append(f"{step.tries} tries")
    if step.took is not None:
        facts.append(f"took {output.short(step.took)}")
    if step.finished_at is not None:
        facts.append(f"finished {output.ago(step.finished_at, now)}")
    elif step.until is not None and step.until.year < output.NEVER:
        facts.append(f"until {output.when_and_ago(step.until, now)}")
    else:
        facts.append(f"since {output.when_and_ago(step.started_at, now)}")
    return facts
