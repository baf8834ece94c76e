"""`python -m onceward_apps.proof`: install, try, print."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer

from onceward.dsn import resolve_dsn
from onceward.install import upgrade
from onceward_apps.proof import drawing, sample, store
from onceward_apps.proof.domain import Batch

cli = typer.Typer(
    help="Proof of safety: batches, labels, insert cards.", no_args_is_help=True, add_completion=False
)
Output = Annotated[Path, typer.Argument(help="The PDF to write.", dir_okay=False)]
Fonts = Annotated[
    list[Path] | None, typer.Option("--fonts", help="A folder with Montserrat.", file_okay=False, exists=True)
]


@cli.command()
def install(
    *,
    with_sample: Annotated[
        bool, typer.Option("--sample/--no-sample", help="Also a product to try it with.")
    ] = False,
) -> None:
    """Install the engine and the schema raw_ops, or bring them up to date."""
    dsn = resolve_dsn()
    upgrade(dsn)
    applied = store.install(dsn)
    if with_sample:
        sample.load(dsn)
    typer.echo("schema raw_ops: " + ("installed" if applied else "up to date"))


@cli.command("create-batch")
def create_batch(
    production_date: Annotated[datetime, typer.Argument(formats=["%Y-%m-%d"])],
    kg_produced: Annotated[str, typer.Argument(metavar="KG")],
) -> None:
    """Create a batch; a worker makes its QR code and label and sends the email."""
    answer = _ask("select raw_ops.fn_create_batch_v1(%s, %s::numeric)", production_date.date(), kg_produced)
    typer.echo(json.dumps(answer, indent=2))
    raise typer.Exit(0 if answer["success"] else 1)


@cli.command()
def jobs() -> None:
    """List proof jobs as JSON lines, the newest first."""
    with psycopg.connect(resolve_dsn()) as connection:
        for (row,) in connection.execute(
            "select to_jsonb(p) || jsonb_build_object('batch_code', b.batch_code) from raw_ops.proof_jobs as p"
            " join raw_ops.batches as b on b.id = p.batch_id order by p.created_at desc limit 100"
        ):
            typer.echo(json.dumps(row))


@cli.command()
def label(batch_id: UUID, out: Output, fonts: Fonts = None) -> None:
    """Draw the label of a batch."""
    found = _ask("select raw_ops.fn_get_batch_v1(%s)", batch_id)
    if found is None:
        typer.echo(f"error: batch {batch_id} does not exist", err=True)
        raise typer.Exit(1)
    out.write_bytes(drawing.label_pdf(Batch.model_validate(found), fonts=fonts or ()))


@cli.command()
def card(
    out: Output,
    *,
    url: Annotated[
        str, typer.Option(help="What the QR code opens.")
    ] = "https://portal.protocolraw.co.uk?view=transition",
    bleed: Annotated[
        bool, typer.Option("--bleed/--no-bleed", help="3 mm more on every side, for trimming.")
    ] = False,
    fonts: Fonts = None,
) -> None:
    """Draw the insert card, A7, front and back."""
    out.write_bytes(drawing.card_pdf(url, bleed=bleed, fonts=fonts or ()))


@cli.command()
def link(batch_code: str) -> None:
    """A link that opens the label of a batch for a quarter of an hour."""
    from datetime import timedelta

    from onceward_apps.proof.settings import Settings

    storage = Settings.from_environ().storage
    typer.echo(
        storage.link(f"batch-labels/{batch_code}.pdf", now=datetime.now(UTC), lasts=timedelta(minutes=15))
    )


def _ask(statement: str, *params: object) -> Any:
    with psycopg.connect(resolve_dsn()) as connection:
        row = connection.execute(statement.encode(), params).fetchone()
    return row[0] if row else None


if __name__ == "__main__":
    cli()
