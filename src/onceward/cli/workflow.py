"""`onceward workflow`: jobs that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from onceward import calls, jsonsafe
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.job_enqueue import unknown_task
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.cli.workflow_graph import print_graph
from onceward.errors import UnknownJob
from onceward.model import Json, WorkflowInfo

app = Noun(help="List, show, enqueue, cancel and requeue workflows.")
WORKFLOW_STATES = ("running", "done", "dead_letter", "cancelled")
MOST_JOBS = 10_000
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the workflow.", show_default=False)]


@app.command("list")
def list_(
    ctx: typer.Context,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help=f"Only this state: {', '.join(WORKFLOW_STATES)}.",
            autocompletion=lambda: list(WORKFLOW_STATES),
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 50,
    count: Annotated[bool, typer.Option("--count", help="Print only how many there are.")] = False,
    as_json: AsJson = False,
) -> None:
    """List workflows, newest first."""
    session = session_of(ctx)
    wanted = None if state is None else values.one_of("--state", state.replace("-", "_"), WORKFLOW_STATES)
    most = values.whole("--limit", limit, least=1, most=100_000)
    if count:
        number = session.run(calls.count_workflows(wanted, tenant=_tenant(session)))
        output.print_json({"count": number}) if as_json else print(number)
        return
    workflows = session.run(calls.workflows(wanted, most, tenant=_tenant(session)))
    if not workflows:
        session.explain_empty()
    if as_json:
        output.print_json(workflows)
        return
    _print_list(session, workflows)
    if len(workflows) == most:
        output.note("there may be more: raise --limit")


def _tenant(session: Session) -> str | None:
    return None if session.tenant == "*" else session.tenant


def _print_list(session: Session, workflows: Sequence[WorkflowInfo]) -> None:
    if not workflows:
        output.note("no workflows")
        return
    now = session.run(calls.now())
    tenants = {workflow.tenant for workflow in workflows} != {"default"}
    output.print_table(
        [
            Column("ID"),
            Column("STATE"),
            Column("JOBS", right=True),
            Column("DONE", right=True),
            Column("LIVE", right=True),
            Column("DEAD", right=True),
            Column("STOPPED", right=True),
            Column("CREATED"),
            Column("FINISHED", optional=True),
            *([Column("TENANT", optional=True)] if tenants else []),
        ],
        [
            (
                workflow.id,
                output.styled(workflow.state),
                workflow.jobs,
                workflow.done,
                workflow.live,
                workflow.dead_letters,
                workflow.stopped,
                output.ago(workflow.created_at, now),
                output.ago(workflow.finished_at, now),
                *([workflow.tenant] if tenants else []),
            )
            for workflow in workflows
        ],
    )


@app.command("show")
def show(
    ctx: typer.Context,
    workflow: Id,
    full: Annotated[bool, typer.Option("--full", help="One line per job, however many are equal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one workflow: its jobs, and what each waits for. Many equal jobs are one line."""
    session = session_of(ctx)
    found = _find(session, values.workflow_id(workflow))
    members = session.run(calls.workflow_jobs(found.id, MOST_JOBS, tenant=found.tenant))
    hidden = found.jobs - len(members)
    if hidden > 0:
        output.note(f"{output.counted(hidden, 'job')} beyond the first {MOST_JOBS:,} left out")
    if as_json:
        output.print_json({**output.to_json(found), "members": members})
        return
    now = session.run(calls.now())
    output.stdout().print(Text(f"Workflow {found.id}  ", style="bold") + output.styled(found.state))
    output.print_wrapped(_summary(found), indent=2)
    output.stdout().print()
    output.print_fields(
        [
            ("tenant", found.tenant),
            ("created", output.when_and_ago(found.created_at, now)),
            ("finished", output.when_and_ago(found.finished_at, now) if found.finished_at else None),
        ]
    )
    output.stdout().print()
    print_graph(members, full=full)


def _summary(workflow: WorkflowInfo) -> str:
    parts = (
        (workflow.done, "done"),
        (workflow.live, "not ended"),
        (workflow.dead_letters, "dead letters" if workflow.dead_letters > 1 else "dead letter"),
        (workflow.stopped, "cancelled or resolved"),
    )
    states = ", ".join(f"{count:,} {word}" for count, word in parts if count)
    return f"{output.counted(workflow.jobs, 'job')}: {states}."


def _find(session: Session, workflow: UUID) -> WorkflowInfo:
    found = session.run(calls.workflow(workflow, tenant=_tenant(session)))
    if len(found) > 1:
        raise UsageProblem(
            f"workflow {workflow} has jobs of several tenants",
            detail=f"Tenants: {', '.join(info.tenant for info in found[:20])}.",
            hint="Name one with --tenant.",
        )
    if found:
        return found[0]
    session.explain_empty()
    where = "" if _tenant(session) is None else f' of tenant "{session.tenant}"'
    job = session.run(calls.job(workflow))
    if job is None or _tenant(session) not in {None, job.tenant}:
        hint = 'Look for it with "onceward workflow list".'
    elif job.workflow_id != job.id:
        hint = f'It is a job of workflow {job.workflow_id}: see "onceward workflow show {job.workflow_id}".'
    else:
        hint = f'It is a job that stands alone: see "onceward job show {job.id}".'
    raise UnknownJob(f"workflow {workflow}{where} does not exist", hint=hint)


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    workflow: Id,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept with each job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cancel every job of a workflow that has not ended; those that run are asked to stop."""
    session = session_of(ctx)
    found = _find(session, values.workflow_id(workflow))
    count = session.run(calls.cancel_workflow(found.id, reason))
    if as_json:
        output.print_json({"id": found.id, "jobs": count})
        return
    output.note(
        f"{output.counted(count, 'job')} cancelled" if count else "nothing to cancel: every job has ended"
    )


@app.command("requeue")
def requeue(ctx: typer.Context, workflow: Id, as_json: AsJson = False) -> None:
    """Run the dead letters and cancelled jobs of a workflow again, each after those that it waits for."""
    session = session_of(ctx)
    found = _find(session, values.workflow_id(workflow))
    count = session.run(calls.requeue_workflow(found.id))
    if as_json:
        output.print_json({"id": found.id, "jobs": count})
        return
    output.note(
        f"{output.counted(count, 'job')} requeued"
        if count
        else "nothing to requeue: no job is a dead letter or cancelled"
    )


@app.command("enqueue")
def enqueue(
    ctx: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="JSON array of nodes with name, task, payload, after (names) and options; - for standard input.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="APP", help="Check tasks and payloads by this application: package.module:app."
        ),
    ] = None,
    unknown_task_ok: Annotated[
        bool, typer.Option("--unknown-task-ok", help="Also tasks that no worker has announced yet.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Idempotency key: the same key gives the same workflow."),
    ] = None,
    key_window: Annotated[
        str | None,
        typer.Option(
            metavar="WINDOW", help="How long the key stays taken: forever (the default) or a duration."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Enqueue jobs that wait for each other, all or none, and print the workflow's id."""
    if key_window is not None and key is None:
        raise UsageProblem("--key-window goes with --key", hint="Add the key, or drop the window.")
    session = session_of(ctx)
    nodes = _nodes(values.document("workflow", file))
    if target is not None:
        nodes = _by_application(session, nodes, target)
    elif not unknown_task_ok:
        known = session.run(calls.task_names())
        for node in nodes:
            if isinstance(node.get("task"), str) and node["task"] not in known:
                raise unknown_task(node["task"], known)
    texts = [{**node, "payload": _payload_text(node)} for node in nodes]
    window = None if key_window is None else values.key_window(key_window)
    flow = session.run(calls.enqueue_workflow(texts, tenant=_tenant(session), key=key, key_window=window))
    if as_json:
        output.print_json({"id": flow.id, "created": flow.created, "jobs": dict(flow)})
        return
    output.note(
        f"{output.counted(len(flow), 'job')} enqueued" if flow.created else "enqueued before, under this key"
    )
    print(flow.id)


def _nodes(read: Json) -> list[dict[str, Any]]:
    if not isinstance(read, list) or not all(isinstance(node, dict) for node in read):
        wrong = read if not isinstance(read, list) else next(n for n in read if not isinstance(n, dict))
        what = "a JSON array of nodes" if wrong is read else "an array of JSON objects"
        raise UsageProblem(
            f"workflow must be {what}, got {values.kind_of(wrong)}: {output.compact_json(wrong)[:80]}",
            hint="""Write it like [{"name": "a", "task": "t"}, {"name": "b", "task": "t", "after": ["a"]}].""",
        )
    return read


def _payload_text(node: dict[str, Any]) -> str:
    return jsonsafe.dumps(node.get("payload", {}), what=f'payload of node "{node.get("name")}"')


def _by_application(session: Session, nodes: list[dict[str, Any]], target: str) -> list[dict[str, Any]]:
    """The nodes with payloads that were checked, and what the declarations of their tasks say."""
    from onceward.cli.target import load

    tasks = load(target).tasks
    complete = []
    for node in nodes:
        task = tasks.find(str(node.get("task")))
        options = task.options
        declared: dict[str, Any] = {
            "lane": options.lane,
            "priority": options.priority,
            "max_attempts": options.max_attempts,
            "timeout": f"{options.timeout.total_seconds()} seconds" if options.timeout else None,
            "retry": options.retry.to_json() if options.retry else None,
        }
        # What was left out: a name that is wrong is for the database to refuse.
        given = {name: value for name, value in declared.items() if value is not None} | node
        complete.append(given | {"payload": jsonsafe.loads(task.dump(node.get("payload", {})))})
    # As a client does: lanes that tasks themselves name need not exist yet.
    lanes = {tasks.find(node["task"]).options.lane for node in nodes if "lane" not in node}
    session.run(calls.declare_lanes(sorted(lanes)))
    return complete
