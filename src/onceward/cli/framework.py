"""How commands are declared: groups that know near names, and global options that may follow the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from onceward.cli.help import write_help
from onceward.cli.session import Session
from onceward.cli.values import UsageProblem, did_you_mean, join_hints

if TYPE_CHECKING:
    from typer.models import CommandFunctionType

F = TypeVar("F", bound=Callable[..., Any])

# Declared once, for the commands that share them.
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of jobs.", show_default=False)]
Delay = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Run after this time, as 30s, 5m, 2h or 1d.")
]
RunAt = Annotated[
    str | None, typer.Option(metavar="TIME", help="Run at this time, ISO 8601; without an offset it is UTC.")
]


class Group(TyperGroup):
    """A noun.  An unknown verb is answered with the nearest one."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing and not name.startswith("-"):
            raise UsageProblem(
                f'unknown command "{ctx.command_path} {name}"',
                hint=join_hints(
                    did_you_mean(name, self.commands), f'See "{ctx.command_path} --help" for all commands.'
                ),
            )
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A verb.  Takes --dsn and --tenant after its name, too."""

    global_options: ClassVar[tuple[str, ...]] = ("--dsn", "--tenant")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        session = ctx.obj
        if isinstance(session, Session):
            given, args = split_options(args, self.global_options)
            session.choose(given.get("--dsn"), given.get("--tenant"))
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def split_options(args: list[str], names: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """The values of these options, and the arguments without them.  Nothing after -- is looked at."""
    found: dict[str, str] = {}
    rest: list[str] = []
    waiting = iter(args)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if argument == "--":
            return found, [*rest, argument, *waiting]
        if name not in names:
            rest.append(argument)
        elif equals:
            found[name] = value
        else:
            following = next(waiting, None)
            if following is None:
                raise UsageProblem(f"{name} needs a value")
            found[name] = following
    return found, rest


class Noun(typer.Typer):
    """A group of commands."""

    def __init__(self, *, help: str) -> None:  # noqa: A002 - typer's name for it
        super().__init__(cls=Group, help=help, no_args_is_help=True, rich_markup_mode="rich")

    def command(
        self, name: str | None = None, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        settings.setdefault("cls", Command)
        return super().command(name, **settings)
