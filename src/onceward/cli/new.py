"""`onceward new`: write code to begin with."""

from __future__ import annotations

import keyword
import re
import sys
from datetime import timedelta
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from onceward.cli import output, values
from onceward.cli.framework import Noun
from onceward.cli.values import UsageProblem
from onceward.errors import OncewardError, shown

app = Noun(help="Write code to begin with.")

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
# Tables are called after the function, and PostgreSQL cuts names at 63.
LONGEST_NAME = 40
# Placeholders of the templates, which are programs themselves.
_FUNCTION, _MODULE, _EVERY = "my-function", "my_function", "timedelta(seconds=300)"
_UNITS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


class CannotWrite(OncewardError):
    """A file is there already, or its place cannot be written."""


@app.command("function")
def function(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name, as detect-alerts.", show_default=False)
    ],
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="How often it runs, and how long its window is.")
    ] = "5m",
    directory: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where to write; made when it is missing.")
    ] = Path(),
) -> None:
    """Write an idempotent scheduled function and its test."""
    module = _module(name)
    replaced = {_EVERY: _timedelta(every), _MODULE: module, _FUNCTION: name}
    source, test = directory / f"{module}.py", directory / f"test_{module}.py"
    write_new({source: _written("function.py", replaced), test: _written("test_function.py", replaced)})
    for path in (source, test):
        print(path)
    output.note(
        f'hint: Run its test with "pytest {test}" (pip install pytest, if it is not there), and a worker with "onceward worker {module}:app".'
    )


def _module(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise UsageProblem(
            f"name of a function must be at most {LONGEST_NAME} lower-case letters, digits and single dashes, "
            f"and begin with a letter, got {values.quoted(name)}",
            hint="Write it like detect-alerts.",
        )
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or module in {*sys.stdlib_module_names, "onceward", "psycopg", "pytest"}:
        raise UsageProblem(
            f'name of a function must not be that of a module that others import, got "{name}"',
            hint=f"Write it like my-{name}.",
        )
    return module


def _timedelta(every: str) -> str:
    """As source: timedelta(minutes=5)."""
    span = values.duration("--every", every, zero=False) or timedelta()
    if span % timedelta(seconds=1):
        raise UsageProblem(
            f"--every must be whole seconds, got {shown(every)}",
            hint="A schedule fires once a second at most.",
        )
    seconds = int(span.total_seconds())
    unit = next(unit for unit, size in _UNITS.items() if seconds % size == 0)
    return f"timedelta({unit}={seconds // _UNITS[unit]})"


def _written(template: str, replaced: dict[str, str]) -> str:
    text = (resources.files("onceward.cli") / "new_templates" / f"{template}.txt").read_text("utf-8")
    for placeholder, value in replaced.items():
        text = text.replace(placeholder, value)
    return text


def write_new(files: dict[Path, str]) -> None:
    """All of them or none; what is there already is not touched."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Decided by the file system, so that nothing that appears meanwhile is overwritten.
            with path.open("x", encoding="utf-8", newline="\n") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        there = isinstance(error, FileExistsError) and Path(error.filename or "").is_file()
        raise CannotWrite(
            f'file "{error.filename}" exists' if there else f"could not write: {error.strerror}",
            detail=None if there else f"The path is {error.filename}.",
            hint="Nothing was written. Choose another name, or another --directory.",
        ) from None
