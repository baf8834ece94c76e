"""The process tree of `onceward up`: this process serves the pages, and keeps a worker alive beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.text import Text

from onceward import calls, install, logs
from onceward.app import Onceward
from onceward.calls import access
from onceward.client import Client
from onceward.dsn import LIBPQ_VARIABLES, resolve_dsn
from onceward.up.workers import WorkerProcess
from onceward.web import ApiSettings, Section, Sso, WebSettings, secrets
from onceward.web.server import check_may_listen, is_loopback, make_server, open_socket

SAMPLES = "onceward.samples:app"
# Whom the link of the terminal signs in.
OPERATOR = "you"
LINK_LIFE = timedelta(hours=12)
log = logs.get("onceward.up")


@dataclass(frozen=True, slots=True)
class UpSettings:
    """Options of `onceward up`."""

    target: str = SAMPLES
    dsn: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080


def run(settings: UpSettings, app: Onceward) -> int:
    """Until a signal.  What was started is ended; the database stays, with everything in it."""
    console = Console(highlight=False, emoji=False, stderr=True)
    logs.configure(level="warning")
    is_embedded = not (
        settings.dsn or os.environ.get("ONCEWARD_DSN") or any(map(os.environ.get, LIBPQ_VARIABLES))
    )
    # Before anything is started: a port that is taken is the most frequent trouble.
    with open_socket(settings.host, settings.port) as listening:
        port = listening.getsockname()[1]
        with _busy(console, "Starting PostgreSQL …" if is_embedded else "Connecting …"):
            dsn = resolve_dsn(settings.dsn)
            install.upgrade(dsn)
        sections: list[Section] = list(app.sections)
        if settings.target == SAMPLES:
            from onceward.samples.section import SECTION

            sections.append(SECTION)
        web = WebSettings(
            dsn=dsn, app=app, sections=sections, sso=Sso.from_environment(os.environ), api=ApiSettings.from_environment(os.environ),
            local_reading=is_embedded and is_loopback(settings.host),
        )  # fmt: skip
        link = _link(dsn)
        check_may_listen(web, settings.host)
        address = f"http://{'localhost' if is_loopback(settings.host) else settings.host}:{port}"
        worker = WorkerProcess(settings.target, dsn)
        server = make_server(web, started=lambda: _greet(console, address, link, worker.log_file, settings))

        async def main() -> None:
            async with _beside(worker):
                await _fill(server.config.app.state.web, sections)  # type: ignore[union-attr] # made by create_app
                await server.serve([listening])

        asyncio.run(main())
    console.print("\nStopped. Everything is kept, and is there again at the next start.", soft_wrap=True)
    if is_embedded:
        console.print("PostgreSQL goes on; [bold]onceward db stop[/] ends it.", soft_wrap=True)
    return 0


def _busy(console: Console, text: str) -> contextlib.AbstractContextManager[object]:
    return console.status(text) if console.is_terminal else contextlib.nullcontext()


def _link(dsn: str) -> str:
    """A link that works once, for the operator of this machine."""
    secret = secrets.new(secrets.LINK)
    with Client(dsn, tenant="*") as client:
        known = {operator.name: operator for operator in client.run(access.operators())}
        if OPERATOR not in known:
            client.run(access.add_operator(OPERATOR, "admin"))
        client.run(access.create_link(OPERATOR, secrets.digest(secret), LINK_LIFE))
        client.run(calls.now())
    return secret


@contextlib.asynccontextmanager
async def _beside(worker: WorkerProcess) -> AsyncIterator[None]:
    keeping = asyncio.create_task(worker.keep_alive())
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        await worker.stop()


async def _fill(web: object, sections: list[Section]) -> None:
    """Sample data, once per database: each section sees to that by its keys."""
    from onceward.web.context import Web

    assert isinstance(web, Web)
    wanting = [section.samples for section in sections if section.samples is not None]
    if not wanting:
        return
    await web.database.open()
    for fill in wanting:
        await fill(web)


def _greet(console: Console, address: str, link: str, log_file: Path, settings: UpSettings) -> None:
    show = Console(highlight=False, emoji=False)
    show.print(Text.assemble("\n", ("Onceward is up.", "bold"), " Open this link; it signs you in, once:\n"))
    # Printed whole, so that a terminal makes it a link and a program finds it.
    show.print(Text(f"  {address}/sign-in?link={link}", style="bold cyan"), soft_wrap=True)
    rows = [
        ("Look without signing in", address) if is_loopback(settings.host) else None,
        ("Another link", f"onceward operator link {OPERATOR} --address {address}"),
        ("Log of the worker", shlex.quote(str(log_file))),
        ("Stop", "Ctrl-C"),
    ]
    show.print()
    for row in rows:
        if row is not None:
            show.print(Text.assemble((f"  {row[0]:<25}", "dim"), row[1]), soft_wrap=True)
    console.file.flush()
