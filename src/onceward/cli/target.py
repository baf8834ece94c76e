"""The application that a person names as `package.module:app`, and what may be wrong with it, in words."""

from __future__ import annotations

import traceback

from onceward.app import Onceward
from onceward.cli import values
from onceward.cli.values import UsageProblem
from onceward.errors import OncewardError


class CannotLoad(OncewardError):
    """The application cannot be loaded."""


def load(target: str) -> Onceward:
    """The application.  The current directory is on the path, as with python -m."""
    from onceward.worker.supervisor import load_app

    module, colon, name = target.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UsageProblem(
            f"application must be named as package.module:app, got {values.quoted(target)}",
            hint=_form_hint(target),
        )
    try:
        return load_app(target)
    except OncewardError:
        raise
    except ModuleNotFoundError as error:
        raise CannotLoad(
            f'could not import "{module}": module "{error.name}" does not exist',
            hint="Install what the application needs into this environment.",
        ) from error
    except SystemExit as error:
        # A script that is meant to be run.  Its status is not that of the worker: 0 would say that all is well.
        raise CannotLoad(
            f'could not import "{module}": it called sys.exit({error.code!r})',
            detail=_place(error),
            hint='What is for running alone belongs behind if __name__ == "__main__".',
        ) from error
    except Exception as error:
        raise CannotLoad(
            f'could not import "{module}": {type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}',
            detail=_place(error),
            hint=f"Mend it; python -c 'import {module}' shows the whole traceback.",
        ) from error


def _place(error: BaseException) -> str:
    """The line at fault.  That of a syntax error was never run, so no traceback has it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"Found in {error.filename}, line {error.lineno}."
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"Raised in {where.filename}, line {where.lineno}."


def _form_hint(target: str) -> str:
    if target == "list":
        return 'Running workers are listed by "onceward workers".'
    if target.endswith(".py") or "/" in target:
        dotted = target.partition(":")[0].removesuffix(".py").strip("./").replace("/", ".")
        return f"Name the module, not the file: {dotted}:app."
    return "For example shop.jobs:app, where shop/jobs.py holds app = Onceward()."
