"""`onceward job enqueue`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from onceward import calls, jsonsafe
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Delay, RunAt
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.errors import InvalidArgument, UnknownTask, shown
from onceward.model import JobRef, Json, Options

AFTER_POLICIES = ("fail", "ignore", "compensate")


def enqueue(
    ctx: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task.", show_default=False)],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON object, @file, or - for standard input.")
    ] = "{}",
    lane: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Lane to wait in. Without it: default, or the task's with --app."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option(metavar="N", help="Higher runs first, -1000 to 1000. Without it: 0.")
    ] = None,
    delay: Delay = None,
    run_at: RunAt = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Idempotency key: the same key gives the same job.")
    ] = None,
    key_window: Annotated[
        str | None,
        typer.Option(
            metavar="WINDOW", help="How long the key holds: live, forever, or a duration. Without it: live."
        ),
    ] = None,
    concurrency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Jobs with this key share a limit on running at once.")
    ] = None,
    concurrency_limit: Annotated[
        int | None, typer.Option(metavar="N", help="How many with that key run at once. Without it: 1.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option(metavar="N", help="Attempts before it is a dead letter. Without it: 8.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Longest time one attempt may take.")
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Never start later than this after its time.")
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(metavar="IDS", help="Run after these jobs have ended; repeat it or use commas."),
    ] = None,
    after_policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="When one of them fails: fail (this one is cancelled), ignore (it runs all the same), or "
            "compensate (it runs only then). Without it: fail.",
            autocompletion=lambda: list(AFTER_POLICIES),
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="APP", help="Check task and payload by this application: package.module:app."
        ),
    ] = None,
    unknown_task_ok: Annotated[
        bool, typer.Option("--unknown-task-ok", help="Also a task that no worker has announced yet.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue one job and print its id."""
    if concurrency_limit is not None and concurrency_key is None:
        raise UsageProblem(
            "--concurrency-limit goes with --concurrency-key", hint="Add the key, or drop the limit."
        )
    if key_window is not None and key is None:
        raise UsageProblem("--key-window goes with --key", hint="Add the key, or drop the window.")
    jobs_before = values.listed_job_ids(after)
    if after_policy is not None:
        values.one_of("--after-policy", after_policy, AFTER_POLICIES)
        if not jobs_before:
            raise UsageProblem("--after-policy goes with --after", hint="Add the jobs, or drop the policy.")
    values.between("--priority", priority, -1000, 1000)
    values.between("--concurrency-limit", concurrency_limit, 1, 10_000)
    values.between("--max-attempts", max_attempts, 1, 1000)
    session = session_of(ctx)
    read = values.payload("payload", payload)
    wait, limit = (
        values.duration("--expires-in", expires_in, zero=False),
        values.duration("--timeout", timeout, zero=False),
    )
    clock: list[datetime] = []

    def now() -> datetime:
        # The engine's clock, read once and only when it is needed.
        clock[:] = clock or [session.run(calls.now())]
        return clock[0]

    start = values.start_time(delay, run_at, now)
    text, defaults = _checked(session, task, read, target, unknown_task_ok=unknown_task_ok)
    given = {
        "lane": lane,
        "priority": priority,
        "run_at": start,
        "expires_at": None if wait is None else values.later("--expires-in", start or now(), wait),
        "timeout": limit,
        "key": key,
        "key_window": None if key_window is None else values.key_window(key_window),
        "concurrency_key": concurrency_key,
        "concurrency_limit": concurrency_limit,
        "max_attempts": max_attempts,
        "after": jobs_before or None,
        "after_policy": after_policy,
        "tenant": None if session.tenant == "*" else session.tenant,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    options: Options = replace(defaults, **changes)  # type: ignore[arg-type]  # names and types as in Options
    if target is not None and lane is None:
        # As a client does: the lane that the task itself names need not exist yet.
        session.run(calls.declare_lanes([options.lane]))
    try:
        job = session.run_in_lane(options.lane, calls.enqueue(task, text, options))
    except InvalidArgument as error:
        raise _in_words_of_options(error) from error
    _report(job, key, as_json=as_json)


def _in_words_of_options(error: InvalidArgument) -> InvalidArgument:
    """`run_at must …` becomes `--run-at must …`: the database names arguments, a person typed options."""
    name, _, rest = error.message.partition(" ")
    option = {"expires_at": "--expires-in"}.get(name, "--" + name.replace("_", "-"))
    hint = None if error.hint == f"Correct {name} and call again." else error.hint
    if name in {"task", "payload"}:
        return error
    return InvalidArgument(f"{option} {rest}", detail=error.detail, hint=hint)


def _report(job: JobRef, key: str | None, *, as_json: bool) -> None:
    if as_json:
        output.print_json(job)
        return
    if not job.created:
        output.note(f'key "{key}" belongs to this job already; nothing was added')
    print(job.id)


def _checked(
    session: Session, task: str, payload: Json, target: str | None, *, unknown_task_ok: bool
) -> tuple[str, Options]:
    """The payload as JSON text, checked as far as the task is known, and the task's own options."""
    if target is not None:
        from onceward.cli.target import load

        found = load(target).tasks.find(task)
        return found.dump(payload), found.options
    if not unknown_task_ok:
        known = session.run(calls.task_names())
        if task not in known:
            raise unknown_task(task, known)
    if not isinstance(payload, dict):
        raise UsageProblem(
            f"payload must be a JSON object, got {values.kind_of(payload)}: {output.compact_json(payload)[:80]}",
            hint="""Name the values, as in '{"to": "a@example.com"}'.""",
        )
    return jsonsafe.dumps(payload), Options()


def unknown_task(task: str, known: Sequence[str]) -> UnknownTask:
    return UnknownTask(
        f'task "{shown(task)}" is not known',
        detail=f"Known tasks: {', '.join(known[:20])}." if known else "No worker has announced a task yet.",
        hint=values.join_hints(
            values.did_you_mean(task, known),
            "Start a worker that has it, name its application with --app, or add --unknown-task-ok.",
        ),
    )
