"""`onceward web` serves the pages; `onceward up` brings database and worker along."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from onceward.cli import values
from onceward.cli.session import session_of
from onceward.cli.values import UsageProblem

DEFAULT_PORT = 8080

Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="[APP…]", help="Applications, each as package.module:app.", show_default=False),
]
Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Port to listen on. Without it: the variable PORT, else 8080."),
]
Host = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS", help="Address to listen on. Beyond this machine somebody must be able to sign in."
    ),
]


def _port(given: int | None) -> int:
    if given is None and (named := os.environ.get("PORT")):
        if not named.isdecimal():
            raise UsageProblem(f"the variable PORT must be a port number, got {values.quoted(named)}")
        given = int(named)
    return values.whole("--port", DEFAULT_PORT if given is None else given, least=0, most=65_535)


def web(
    ctx: typer.Context,
    targets: Targets = None,
    port: Port = None,
    host: Host = "127.0.0.1",
    proxies: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESSES", help="Proxies whose X-Forwarded headers are believed, separated by commas."
        ),
    ] = None,
) -> None:
    """Serve the web pages until stopped. With applications: their pages, too."""
    from onceward import logs
    from onceward.cli.target import load
    from onceward.web import ApiSettings, Sso, WebSettings
    from onceward.web.server import serve

    logs.configure()
    apps = [load(target) for target in targets or ()]
    session = session_of(ctx)
    settings = WebSettings(
        dsn=session.named or None,
        apps=apps,
        sections=[section for app in apps for section in app.sections],
        sso=Sso.from_environment(os.environ),
        api=ApiSettings.from_environment(os.environ),
    )
    serve(settings, host=host, port=_port(port), proxies=proxies)


def up(ctx: typer.Context, targets: Targets = None, port: Port = None, host: Host = "127.0.0.1") -> None:
    """Start everything: PostgreSQL, the schema, workers and the web pages. Without an application: a sample shop."""
    from onceward.cli.target import load
    from onceward.up import UpSettings, run
    from onceward.up.up import SAMPLES

    apps = {target: load(target) for target in targets or (SAMPLES,)}
    settings = UpSettings(dsn=session_of(ctx).dsn, host=host, port=_port(port))
    raise typer.Exit(run(settings, apps))
