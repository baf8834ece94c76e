"""`onceward audit`: who did what, and whether the log still says so."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer

from onceward import calls
from onceward.cli import audit_check, output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.errors import UnknownEntry
from onceward.model_audit import AuditEntry, AuditFilter

app = Noun(help="Read, seal, verify and export the audit log.")
Entry = Annotated[int, typer.Argument(metavar="ENTRY", help="Number of the entry.", show_default=False)]


@app.command("list")
def list_(
    ctx: typer.Context,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Only this kind, as job.dead_letter; job. is all that begin so."),
    ] = None,
    actor: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this one did.")] = None,
    job: Annotated[
        str | None, typer.Option(metavar="ID", help="Only about this job, from its beginning.")
    ] = None,
    entity: Annotated[
        str | None,
        typer.Option(metavar="TYPE[:ID]", help="Only about this entity, as lane:mail or invoice:42."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only from this time on, ISO 8601, or as 2h.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 50,
    before: Annotated[
        int | None, typer.Option(metavar="ENTRY", help="Go on after this entry of the previous page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List entries, newest first; those of one job from its beginning."""
    session = session_of(ctx)
    most = values.whole("--limit", limit, least=1, most=100_000)
    if job is not None:
        for option, value in {"--kind": kind, "--actor": actor, "--entity": entity, "--since": since, "--before": before}.items():  # fmt: skip
            if value is not None:
                raise values.UsageProblem(f"--job does not go with {option}")
        found = session.run(calls.audit_of(values.job_id(job)))[:most]
    else:
        entity_type, _, entity_id = (entity or "").partition(":")
        found = session.run(
            calls.audit_entries(
                AuditFilter(
                    kind=kind,
                    actor=actor,
                    entity_type=entity_type or None,
                    entity_id=entity_id or None,
                    tenant=None if session.tenant == "*" else session.tenant,
                    since=values.past_moment("--since", since, session.run(calls.now())) if since else None,
                    before=before,
                    limit=most,
                )
            )
        )
    if not found:
        session.explain_empty()
    if as_json:
        output.print_json(found)
        return
    _print_list(session, found)
    if job is None and len(found) == most:
        output.note(f"there may be more: add --before {found[-1].seq}")


def _print_list(session: Session, found: list[AuditEntry]) -> None:
    if not found:
        output.note("no entries")
        return
    now = session.run(calls.now())
    tenants = {entry.tenant for entry in found} - {None, "default"}
    output.print_table(
        [
            Column("ENTRY", right=True),
            Column("AGE"),
            Column("KIND"),
            Column("ACTOR", flexible=12),
            Column("ABOUT", flexible=16),
            *([Column("TENANT", optional=True)] if tenants else []),
            Column("CHANGE", optional=True, flexible=20),
            Column("MESSAGE", optional=True, flexible=24),
        ],
        [
            (
                entry.seq,
                output.ago(entry.at, now),
                entry.kind,
                entry.actor,
                _about(entry),
                *([entry.tenant or "-"] if tenants else []),
                _change(entry),
                entry.message or "-",
            )
            for entry in found
        ],
    )


def _about(entry: AuditEntry) -> str:
    if entry.entity_type is not None:
        return entry.entity_type if entry.entity_id is None else f"{entry.entity_type} {entry.entity_id}"
    if entry.jobs is not None:
        return f"job {entry.jobs[0]}" if len(entry.jobs) == 1 else output.counted(len(entry.jobs), "job")
    return f"job {entry.job_id}" if entry.job_id else "-"


def _change(entry: AuditEntry) -> str:
    def side(value: object) -> str:
        if isinstance(value, dict) and list(value) == ["state"]:
            return str(value["state"])
        return output.compact_json(value)

    sides = [side(value) for value in (entry.before, entry.after) if value is not None]
    return " → ".join(sides) or "-"


@app.command("show")
def show(ctx: typer.Context, entry: Entry, as_json: AsJson = False) -> None:
    """Show one entry, and the seal that holds it."""
    session = session_of(ctx)
    found = session.run(calls.audit_entry(entry))
    if found is None or session.tenant not in {None, "*", found.tenant}:
        session.explain_empty()
        raise UnknownEntry(
            f"audit entry {entry} does not exist", hint='Look for it with "onceward audit list".'
        )
    # Who sees one tenant sees its entries, and not the seals, which hold those of all.
    sees_all = session.tenant in {None, "*"} and session.reach.sees_all
    seal = session.run(calls.seal_of(entry)).number if sees_all else None
    if as_json:
        output.print_json({**output.to_json(found), **({"seal": seal} if sees_all else {})})
        return
    now = session.run(calls.now())
    output.print_fields(
        [
            ("entry", found.seq),
            ("at", output.when_and_ago(found.at, now)),
            ("kind", found.kind),
            ("source", found.source),
            ("actor", found.actor),
            ("role", found.role),
            ("tenant", found.tenant or "-"),
            ("about", _about(found)),
            ("before", "-" if found.before is None else output.compact_json(found.before)),
            ("after", "-" if found.after is None else output.compact_json(found.after)),
            ("message", found.message or "-"),
            ("meta", "-" if found.meta is None else output.compact_json(found.meta)),
            *([("seal", "not sealed yet" if seal is None else seal)] if sees_all else []),
        ]
    )
    if found.jobs and len(found.jobs) > 1:
        output.heading("Jobs")
        for job in found.jobs:
            print(job)


@app.command("status")
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show how far the log is sealed."""
    session = session_of(ctx)
    found = session.run(calls.audit_status())
    if as_json:
        facts = found._asdict()
        output.print_json({name: v.hex() if isinstance(v, bytes) else v for name, v in facts.items()})
        return
    now = session.run(calls.now())
    output.print_fields(
        [
            ("log", found.log.hex()),
            ("seals", found.seals),
            ("sealed entries", found.sealed),
            ("last seal", output.when_and_ago(found.sealed_at, now)),
            ("not sealed yet", found.unsealed),
            ("since", output.when_and_ago(found.unsealed_since, now)),
            ("head", found.head.hex()),
            ("root", found.root.hex()),
        ]
    )
    if found.held:
        output.note(
            f"{output.counted(found.held, 'entry', 'entries')} can be sealed when open transactions have ended"
        )


@app.command("seal")
def seal(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Seal what is complete, now. Workers do this about every ten seconds."""
    session = session_of(ctx)
    seals = entries = 0
    while True:
        made = session.run(calls.seal())
        seals, entries = seals + made.seals, entries + made.entries
        if not made.entries:
            break
    if as_json:
        output.print_json({"seals": seals, "entries": entries})
        return
    output.note(
        f"{output.counted(entries, 'entry', 'entries')} sealed in {output.counted(seals, 'seal')}"
        if entries
        else "nothing to seal"
    )


@app.command("drop")
def drop(
    ctx: typer.Context,
    before: Annotated[
        str, typer.Option(metavar="DATE", help="Drop the days before this one (UTC), as 2026-01-31.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Drop whole days that are sealed and covered by an exported checkpoint. Their seals stay."""
    try:
        day = date.fromisoformat(before)
    except ValueError:
        raise values.UsageProblem(
            f"--before must be a date such as 2026-01-31, got {values.quoted(before)}"
        ) from None
    if not yes and not output.confirm(f"Drop the audit log before {day}?"):
        raise typer.Abort
    dropped = session_of(ctx).run(calls.drop_audit(day))
    output.note(
        f"{output.counted(dropped.entries, 'entry', 'entries')} of {output.counted(dropped.days, 'day')} dropped"
    )


app.command("verify")(audit_check.verify_command)
app.command("checkpoint")(audit_check.checkpoint)
app.command("proof")(audit_check.proof)
app.command("keygen")(audit_check.keygen)
