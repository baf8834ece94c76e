"""Whether the schema fits this version, asked when a worker starts: it works all the same, as during a deployment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import psycopg

from onceward import calls, install, logs
from onceward.calls import Call
from onceward.doctor_model import listed
from onceward.errors import CannotConnect, OncewardError

log = logs.get("onceward.worker")
UPGRADE = 'Run "onceward db upgrade".'
Installed = tuple[list[str], str | None]


async def warn_unless_fit(ask: Callable[[Call[Installed]], Awaitable[Installed]]) -> None:
    """One statement, and one line if need be.  Whatever else is wrong is told by the calls that follow."""
    try:
        applied, code = await ask(calls.installed())
    except CannotConnect:
        raise
    except (psycopg.Error, OncewardError) as error:
        log.debug("schema_not_checked", error=" ".join(str(error).split()))
        return
    # It reads the files of the package.
    status = await asyncio.to_thread(install.status_of, applied, code)
    if status.newer:
        log.warning("schema_newer", unknown=listed(status.newer), hint="Upgrade the package on this machine.")
    elif status.pending:
        log.warning("schema_older", pending=listed(status.pending), hint=UPGRADE)
    elif not status.code_is_current:
        log.warning("schema_code_differs", hint=UPGRADE)
