"""The help of a command, as data and as text: the reference in the docs is made from the same data."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 100
# Shorter than what typer says.
HELP = {
    "--install-completion": "Install completion for this shell.",
    "--show-completion": "Print the completion script of this shell.",
    "--help": "Show this help.",
}


@dataclass(frozen=True)
class Page:
    """One command: what it is called, what it does, what it takes."""

    path: str
    usage: str
    text: str
    arguments: list[tuple[str, str]] = field(default_factory=list)
    options: list[tuple[str, str]] = field(default_factory=list)
    # Panel → (name, first sentence).
    commands: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    epilog: str | None = None


def page(ctx: Any) -> Page:
    """Read a command of typer; its classes moved between versions, the names of attributes did not."""
    command = ctx.command
    arguments, options = [], []
    for param in command.get_params(ctx):
        if getattr(param, "hidden", False):
            continue
        shorter = next((HELP[name] for name in param.opts if name in HELP), None)
        entry = shorter or (param.help or "") + _default(param)
        if param.param_type_name == "argument":
            arguments.append((param.metavar or param.name.upper(), entry))
        else:
            options.append((_option_names(param), entry))
    commands: dict[str, list[tuple[str, str]]] = {}
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        child = command.get_command(ctx, name)
        if child is not None and not child.hidden:
            panel = getattr(child, "rich_help_panel", None)
            commands.setdefault(panel if isinstance(panel, str) else "Commands", []).append(
                (name, first_sentence(child.help or ""))
            )
    words = [ctx.command_path]
    words += (
        ["COMMAND"]
        if commands
        else [name if name.startswith("[") else _usage_word(command, name) for name, _ in arguments]
    )
    words += ["[OPTIONS]"] if options else []
    text = " ".join((command.help or "").split())
    return Page(ctx.command_path, " ".join(words), text, arguments, options, commands, command.epilog)


def _usage_word(command: Any, shown: str) -> str:
    param = next(p for p in command.params if (p.metavar or p.name.upper()) == shown)
    return shown if param.required else f"[{shown}]"


def first_sentence(text: str) -> str:
    words = " ".join(text.split())
    return words.partition(". ")[0].rstrip(".") + "." if words else ""


def _option_names(param: Any) -> str:
    long = [name for name in param.opts if name.startswith("--")]
    short = [name for name in param.opts if not name.startswith("--")]
    names = ", ".join([*short, *long])
    flag = getattr(param, "is_flag", False) or not param.metavar
    return names if flag else f"{names} {param.metavar}"


def _default(param: Any) -> str:
    value = param.default
    nothing = value is None or value is False or value is ... or callable(value) or value in ((), [], "")
    # A folder named by a dot would be lost in the sentence.
    shown = f'"{value}"' if str(value) == "." else value
    return "" if nothing else f" Default: {shown}."


def render(page: Page, *, width: int, colours: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colours,
        no_color=not colours,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(Text(page.text))
    console.print(Text.assemble("\n", ("Usage: ", "bold"), page.usage))
    sections: list[tuple[str, Sequence[tuple[str, str]]]] = [
        *page.commands.items(),
        ("Arguments", page.arguments),
        ("Options", page.options),
    ]
    indent = min(max((len(name) for _, rows in sections for name, _ in rows), default=0), 30)
    for title, rows in sections:
        if rows:
            console.print(Text("\n" + title, style="bold"))
            console.print(_grid(rows, indent))
    if page.commands:
        console.print(Text(f'\nMore about each: "{page.path} COMMAND --help".', style="dim"))
    else:
        console.print(Text("\nAlso: --dsn and --tenant, as before the command.", style="dim"))
    if page.epilog:
        console.print(Text(page.epilog, style="dim"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _grid(rows: Iterable[tuple[str, str]], indent: int) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=indent + 2, style="cyan", overflow="fold")
    grid.add_column()
    for name, text in rows:
        grid.add_row(Text("  " + name), Text(text))
    return grid


def write_help(ctx: Any, formatter: Any) -> None:
    """The help as a command prints it."""
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((80, 24)).columns, WIDEST) if terminal else 80
    formatter.write(render(page(ctx), width=width, colours=terminal))
