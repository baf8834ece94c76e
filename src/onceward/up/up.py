"""The process tree of `onceward up`: this process serves the pages, and keeps a worker per application alive beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.text import Text

from onceward import install, logs
from onceward.app import Onceward
from onceward.calls import access
from onceward.client import Client
from onceward.deliveries.handler import LANE
from onceward.dsn import LIBPQ_VARIABLES, resolve_dsn
from onceward.embedded import default_data_dir
from onceward.program import program
from onceward.up.workers import WorkerProcess
from onceward.web import ApiSettings, Section, Sso, WebSettings, secrets
from onceward.web.server import check_may_listen, is_loopback, make_server, open_socket

SAMPLES = "onceward.samples:app"
# Sends what is in the common lane, alerts among it, when no application does.
SENDER = "onceward.deliveries.sender:app"
# Whom the link of the terminal signs in.
OPERATOR = "you"
LINK_LIFE = timedelta(hours=12)
log = logs.get("onceward.up")


@dataclass(frozen=True, slots=True)
class UpSettings:
    """Options of `onceward up`."""

    dsn: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080


def run(settings: UpSettings, apps: Mapping[str, Onceward]) -> int:
    """Until a signal.  Applications by how workers find them: package.module:app.  What was started is ended; the database stays, with everything in it."""
    console = Console(highlight=False, emoji=False, stderr=True)
    logs.configure(level="warning")
    is_embedded = not (
        settings.dsn or os.environ.get("ONCEWARD_DSN") or any(map(os.environ.get, LIBPQ_VARIABLES))
    )
    data = default_data_dir() if is_embedded else None
    is_kept = data is not None and (data / "PG_VERSION").exists()
    # Before anything is started: a port that is taken is the most frequent trouble.
    with open_socket(settings.host, settings.port) as listening:
        port = listening.getsockname()[1]
        with _busy(console, "Starting PostgreSQL …" if is_embedded else "Connecting …"):
            dsn = resolve_dsn(settings.dsn)
            install.upgrade(dsn)
        sections = _sections(apps)
        for section in sections:
            if section.prepare is not None:
                section.prepare(dsn)
        web = WebSettings(
            dsn=dsn, apps=tuple(apps.values()), sections=sections, sso=Sso.from_environment(os.environ), api=ApiSettings.from_environment(os.environ),
            local_reading=is_embedded and is_loopback(settings.host),
        )  # fmt: skip
        link = _link(dsn)
        check_may_listen(web, settings.host)
        address = f"http://{'localhost' if is_loopback(settings.host) else settings.host}:{port}"
        workers = _workers(apps, dsn)
        server = make_server(
            web,
            started=lambda: _greet(
                address,
                link,
                [worker.log_file for worker in workers],
                data=f"{data}{', kept from an earlier start' if is_kept else ''}" if data else None,
                anybody_reads=web.local_reading,
            ),
        )

        async def main() -> None:
            async with contextlib.AsyncExitStack() as beside:
                for worker in workers:
                    await beside.enter_async_context(_beside(worker))
                await _fill(server.config.app.state.web, sections)  # type: ignore[union-attr] # made by create_app
                await server.serve([listening])

        asyncio.run(main())
    # The terminal may be gone by now; for a pipe without a reader, the console raises SystemExit.
    with contextlib.suppress(OSError, SystemExit):
        console.print("\nStopped. Everything is kept, and is there again at the next start.", soft_wrap=True)
        if is_embedded:
            console.print(
                Text.assemble("PostgreSQL goes on; ", (f"{program()} db stop", "bold"), " ends it."),
                soft_wrap=True,
            )
    return 0


def _sections(apps: Mapping[str, Onceward]) -> list[Section]:
    sections: list[Section] = []
    for target, app in apps.items():
        if target == SAMPLES:
            from onceward.samples.section import SECTION

            sections.append(SECTION)
        sections += app.sections
    return sections


def _workers(apps: Mapping[str, Onceward], dsn: str) -> list[WorkerProcess]:
    targets = list(apps)
    if not any(app.deliveries is not None and app.deliveries.lane == LANE for app in apps.values()):
        targets.append(SENDER)
    if len(targets) == 1:
        return [WorkerProcess(targets[0], dsn)]
    return [WorkerProcess(target, dsn, log_name=f"worker-{_short(target)}.log") for target in targets]


def _short(target: str) -> str:
    """proof, for onceward_apps.proof.app:app."""
    module = target.partition(":")[0].split(".")
    return next((part for part in reversed(module) if part not in {"app", "jobs", "tasks"}), module[-1])


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


def _greet(
    address: str, link: str, log_files: Sequence[Path], *, data: str | None, anybody_reads: bool
) -> None:
    show = Console(highlight=False, emoji=False)
    show.print(Text.assemble("\n", ("Onceward is up.", "bold"), " Open this link; it signs you in, once:\n"))
    # Printed whole, so that a terminal makes it a link and a program finds it.
    show.print(Text(f"  {address}/sign-in?link={link}", style="bold cyan"), soft_wrap=True)
    show.print()
    rows = {
        **({"Look without signing in": address} if anybody_reads else {}),
        "Another link": f"{program()} operator link {OPERATOR} --address {address}",
        "Log of the worker" if len(log_files) == 1 else "Logs of the workers": _shown(log_files),
        **({"Data": data} if data else {}),
        "Stop": "Ctrl-C",
    }
    for title, text in rows.items():
        show.print(Text.assemble((f"  {title:<25}", "dim"), text), soft_wrap=True)
    show.file.flush()


def _shown(files: Sequence[Path]) -> str:
    first = shlex.quote(str(files[0]))
    return first if len(files) == 1 else first.replace(files[0].name, "worker-*.log")
