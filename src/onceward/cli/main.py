"""The program `onceward`: its commands put together, its global options, and how errors end."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import psycopg
import typer
from typer.main import get_command

from onceward.cli import (
    alert,
    audit,
    bench,
    channel,
    db,
    dead_letter,
    delivery,
    demo,
    doctor,
    event,
    job,
    lane,
    legal_hold,
    limit,
    metrics,
    monitor,
    new,
    operator,
    output,
    retention,
    schedule,
    step,
    token,
    web,
    worker,
    workflow,
)
from onceward.cli import run as run_noun
from onceward.cli.framework import Command, Group
from onceward.cli.session import Session
from onceward.cli.values import (
    DURATION_HINT,
    UsageProblem,
    did_you_mean,
    join_hints,
    negative_duration,
    quoted,
)
from onceward.errors import OncewardError
from onceward.jsonsafe import printable

# A disk or a quota that is full, a device that fails.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
SET_UP, RUN, LOOK, TRY = "Set up", "Run", "Look and act", "Try"


class Root(Group):
    """The program itself; its help lists the commands in this order."""

    order: ClassVar[tuple[str, ...]] = (
        "db", "doctor", "operator", "token", "up", "worker", "workers", "web", "metrics", "job", "step", "workflow", "event",
        "lane", "limit", "schedule", "run", "dead-letter", "delivery", "monitor", "alert", "channel", "audit", "retention",
        "legal-hold", "new", "demo", "bench",
    )  # fmt: skip

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=self.order.index)


app = typer.Typer(
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Durable work on PostgreSQL.",
    epilog="Exit status: 0 done, 1 failed, 2 the command line was not understood.",
)
app.add_typer(db.app, name="db", rich_help_panel=SET_UP)
app.command("doctor", cls=Command, rich_help_panel=SET_UP)(doctor.doctor)
app.add_typer(operator.app, name="operator", rich_help_panel=SET_UP)
app.add_typer(token.app, name="token", rich_help_panel=SET_UP)
app.command("up", cls=Command, rich_help_panel=RUN)(web.up)
app.command("worker", cls=Command, rich_help_panel=RUN)(worker.worker)
app.command("workers", cls=Command, rich_help_panel=RUN)(worker.workers)
app.command("metrics", cls=Command, rich_help_panel=RUN)(metrics.metrics)
app.command("web", cls=Command, rich_help_panel=RUN)(web.web)
app.add_typer(job.app, name="job", rich_help_panel=LOOK)
app.add_typer(step.app, name="step", rich_help_panel=LOOK)
app.add_typer(workflow.app, name="workflow", rich_help_panel=LOOK)
app.add_typer(event.app, name="event", rich_help_panel=LOOK)
app.add_typer(lane.app, name="lane", rich_help_panel=LOOK)
app.add_typer(limit.app, name="limit", rich_help_panel=LOOK)
app.add_typer(schedule.app, name="schedule", rich_help_panel=LOOK)
app.add_typer(run_noun.app, name="run", rich_help_panel=LOOK)
app.add_typer(dead_letter.app, name="dead-letter", rich_help_panel=LOOK)
app.add_typer(delivery.app, name="delivery", rich_help_panel=LOOK)
app.add_typer(audit.app, name="audit", rich_help_panel=LOOK)
app.add_typer(monitor.app, name="monitor", rich_help_panel=LOOK)
app.add_typer(alert.app, name="alert", rich_help_panel=LOOK)
app.add_typer(channel.app, name="channel", rich_help_panel=LOOK)
app.add_typer(retention.app, name="retention", rich_help_panel=LOOK)
app.add_typer(legal_hold.app, name="legal-hold", rich_help_panel=LOOK)
app.add_typer(new.app, name="new", rich_help_panel=TRY)
app.command("demo", cls=Command, rich_help_panel=TRY)(demo.demo)
app.command("bench", cls=Command, rich_help_panel=TRY)(bench.bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"onceward {version('onceward')}")
        raise typer.Exit


@app.callback()
def globals_(
    ctx: typer.Context,
    dsn: Annotated[
        str | None,
        typer.Option(
            metavar="DSN",
            help="The database, as URI or key=value text. Without it: ONCEWARD_DSN, the PG* variables, or the "
            "embedded server.",
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="TENANT", help="Act for this tenant. Without it: all that the role may see."),
    ] = None,
    print_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    session = Session()
    session.choose(dsn, tenant)
    ctx.obj = session
    ctx.call_on_close(session.close)


@cache
def _command() -> Any:
    """Once for the whole process: to read all declarations takes longer than most commands."""
    return get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status.  Errors that can be expected are printed without traceback."""
    try:
        _check_encoding(sys.argv[1:] if arguments is None else arguments)
        status = _command().main(args=arguments, prog_name="onceward", standalone_mode=False)
    except UsageProblem as error:
        output.print_onceward_error(error)
        return 2
    except OncewardError as error:
        output.print_onceward_error(error)
        return 1
    except typer.Abort:
        output.print_error("stopped", detail="Nothing more was changed.")
        return 1
    except KeyboardInterrupt:
        return 130
    except psycopg.Error as error:
        _print_database_error(error)
        return 1
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            traceback.print_exc()
        else:
            _print_unwritable(error)
        return 1
    except Exception as error:
        # Usage errors of typer, whose classes moved between its versions.
        if not hasattr(error, "format_message"):
            traceback.print_exc()
            return 1
        return _print_usage_error(error, sys.argv[1:] if arguments is None else arguments)
    return status if isinstance(status, int) else 0


def _check_encoding(arguments: Sequence[str]) -> None:
    """Bytes that are no UTF-8 arrive as lone surrogates, which can be neither stored nor printed."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageProblem(
                f"argument is not valid UTF-8: {quoted(printable(argument))}",
                hint="Check the locale of the shell, or pass the text in a file.",
            ) from None


def _print_database_error(error: psycopg.Error) -> None:
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        output.print_error(
            "the connection to the database was lost",
            detail=" ".join(str(error).split()),
            hint="Try again; what was not confirmed may or may not have happened.",
        )
        return
    diag = error.diag
    hint = diag.message_hint
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        hint = '"onceward doctor" tells what the connected role may do.'
    message = diag.message_primary or " ".join(str(error).split())
    output.print_error(message, detail=diag.message_detail, hint=hint)


def _print_usage_error(error: Any, arguments: Sequence[str]) -> int:
    """typer's errors in our words; its classes are known by name, because they moved between its versions."""
    kind, ctx = type(error).__name__, getattr(error, "ctx", None)
    see = f'See "{ctx.command_path if ctx else "onceward"} --help".'
    if kind == "NoArgsIsHelpError":
        print(error.format_message(), file=sys.stderr)
    elif kind == "NoSuchOption" and (negative := negative_duration(arguments)):
        hint = join_hints(DURATION_HINT, see)
        output.print_error(f"a duration cannot be negative, got {quoted(negative)}", hint=hint)
    elif kind == "NoSuchOption":
        known = [name for param in ctx.command.params for name in param.opts] if ctx else []
        hint = join_hints(did_you_mean(error.option_name, known), see)
        output.print_error(f"unknown option {error.option_name}", hint=hint)
    elif kind == "BadParameter" and error.param is not None and error.param.param_type_name == "option":
        # Whole numbers are the only values that typer reads; all others are read by ours.
        name = error.param.opts[-1]
        output.print_error(f"{name} must be a whole number, got {quoted(_given(name, arguments))}", hint=see)
    else:
        message = error.format_message().rstrip(".")
        output.print_error(message[:1].lower() + message[1:], hint=see)
    return int(error.exit_code)


def _given(name: str, arguments: Sequence[str]) -> str:
    """What was typed for an option."""
    following = [value for option, value in pairwise(arguments) if option == name]
    joined = [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{name}=")]
    return [*following, *joined, ""][0]


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point."""
    try:
        status = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone, as in "onceward job list | head".
        status = _output_to_nowhere()
    except OSError as error:
        _print_unwritable(error)
        status = _output_to_nowhere()
    sys.exit(status)


def _print_unwritable(error: OSError) -> None:
    where = f' to "{error.filename}"' if error.filename else ""
    output.print_error(
        f"the output could not be written{where}: {error.strerror or error}",
        detail="What the command does in the database may have happened.",
        hint="Make room where it goes, and look before you repeat the command.",
    )
    # What is still in the buffer would be tried again at the end of the program, with a traceback.
    _output_to_nowhere()


def _output_to_nowhere() -> int:
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
