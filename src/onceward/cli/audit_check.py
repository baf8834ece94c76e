"""Verifying the audit log, and what is kept of it outside: checkpoints, proofs and keys."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer

from onceward import audit, calls, jsonsafe
from onceward.cli import output, values
from onceward.cli.framework import AsJson
from onceward.cli.session import Session, session_of
from onceward.errors import shown
from onceward.model import Options

SHOWN = 50


def verify_command(
    ctx: typer.Context,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Compare with this checkpoint; may be repeated.", show_default=False
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Public key (PEM) that must have signed the checkpoints.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute the whole log and say where it is not as it was sealed. Ends with 1 if anything is found."""
    session = session_of(ctx)
    if key is not None and not checkpoint:
        raise values.UsageProblem("--key goes with --checkpoint", hint="It is the key that signed them.")
    kept = [audit.read_checkpoint(path) for path in checkpoint or ()]
    public_key = audit.read_public_key(key) if key else None
    console = output.stderr()
    waiting = console.status("Verifying …") if console.is_terminal else nullcontext()
    with waiting as spinner:

        def show(done: int, seals: int) -> None:
            if spinner is not None:
                spinner.update(f"Verifying … seal {done} of {seals}")

        found = audit.Audit(session).verify(kept, public_key=public_key, progress=show)
    if as_json:
        output.print_json({"whole": found.whole, **output.to_json(found)})
    else:
        _print_findings(found)
    if not found.whole:
        raise typer.Exit(1)


def _print_findings(found: audit.Verification) -> None:
    if found.findings:
        output.print_table(
            [
                output.Column("FOUND"),
                output.Column("SEAL", right=True),
                output.Column("ENTRY", right=True),
                output.Column("DAY", optional=True),
                output.Column("DETAIL", flexible=24),
            ],
            [
                (
                    f.kind,
                    "-" if f.seal is None else f.seal,
                    "-" if f.entry is None else f.entry,
                    f.day or "-",
                    f.detail,
                )
                for f in found.findings[:SHOWN]
            ],
        )
    hidden = len(found.findings[SHOWN:]) + found.more_findings
    if hidden:
        output.note(f"{hidden} more findings; --json prints up to a thousand")
    output.note(
        f"{output.counted(found.entries, 'entry', 'entries')} in {output.counted(found.seals, 'seal')}"
        + (f", {found.unsealed} not sealed yet" if found.unsealed else "")
        + (f", {found.dropped} before {found.dropped_before} dropped" if found.dropped_before else "")
    )
    if found.findings:
        output.print_error(
            f"the log is not whole: {output.counted(len(found.findings) + found.more_findings, 'finding')}"
        )
    elif found.checkpoints:
        output.note(
            "the log is whole, and goes on from the checkpoint" + ("s" if found.checkpoints > 1 else "")
        )
    else:
        output.note("the log is whole")
        output.note(
            "hint: Only a checkpoint kept elsewhere tells whether its end was cut off. Give it with --checkpoint."
        )


def checkpoint(
    ctx: typer.Context,
    to_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Where to write it. Without it: standard output."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Private key (PEM) to sign it with; see keygen.")
    ] = None,
    deliver_to: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Also send it: email:ADDRESS, webhook:URL, slack:NAME or telegram:CHAT."
        ),
    ] = None,
) -> None:
    """Export the head of the log, to be kept where nobody who can change the database can change it."""
    session = session_of(ctx)
    private = audit.read_private_key(key) if key else None
    target = _target(deliver_to) if deliver_to else None
    log = audit.Audit(session)
    made = log.checkpoint(private)
    text = json.dumps(made, indent=2) + "\n"
    where = []
    if to_file is not None:
        _write(to_file, text)
        where.append(f"file {to_file.name}")
    elif target is None:
        output.print_json_text(text)
        where.append("standard output")
    if target is not None:
        _deliver(session, target, made, text)
        where.append(f"delivery by {target['kind']}")
    log.exported(made, ", ".join(where))
    output.note(f"checkpoint of {output.counted(made['seals'], 'seal')} exported to {' and '.join(where)}")


def _target(text: str) -> dict[str, Any]:
    # Here, because every command would wait for it: what sends takes a third of all imports.
    from onceward.deliveries import content

    return content.target(text, "--deliver-to")


def _deliver(session: Session, target: dict[str, Any], made: audit.Checkpoint, text: str) -> None:
    subject = f"Audit checkpoint: {made['seals']} seals, {made['entries']} entries"
    kinds: dict[str, dict[str, Any]] = {
        "email": {"subject": subject, "text": text},
        "webhook": {"payload": {"type": "onceward.audit.checkpoint", "checkpoint": made}},
    }
    parts = kinds.get(target["kind"], {"text": f"{subject}\n{text}"})
    body = {**target["content"], **parts}
    to = json.dumps(target["content"], sort_keys=True)
    name = sha256(to.encode()).hexdigest()[:16]
    options = Options(key=f"audit-checkpoint:{made['log'][:16]}:{made['seals']}:{target['kind']}:{name}")
    session.run(calls.deliver(target["kind"], jsonsafe.dumps(body, what="content"), options))


def proof(
    ctx: typer.Context,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="Number of the entry.", show_default=False)],
    kept: Annotated[
        Path, typer.Option("--checkpoint", metavar="FILE", help="The checkpoint against which it proves.")
    ],
    to_file: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Where to write it. Without it: standard output."),
    ] = None,
) -> None:
    """Prove that an entry is in the log. Checked by "python -m onceward.audit.verifier PROOF CHECKPOINT"."""
    made = audit.Audit(session_of(ctx)).proof(entry, audit.read_checkpoint(kept))
    text = json.dumps(made, indent=2, ensure_ascii=False) + "\n"
    if to_file is None:
        output.print_json_text(text)
        return
    _write(to_file, text)
    output.note(f"proof of entry {entry} written to {to_file.name}")


def keygen(
    to_file: Annotated[
        Path,
        typer.Option(
            "--output", metavar="FILE", help="Where the private key goes; the public one gets .pub."
        ),
    ],
) -> None:
    """Make a key pair (Ed25519) that signs checkpoints. Keep the private key away from the database."""
    public = audit.new_key(to_file)
    output.note(f"private key in {to_file}, public key in {public}")


def _write(path: Path, text: str) -> None:
    """All of it or nothing: a reader never finds half a file."""
    if not path.name:
        raise values.UsageProblem("--output must name a file, got ''")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise values.UsageProblem(f"cannot write {shown(str(path))}: {error.strerror}") from None
