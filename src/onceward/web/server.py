"""Serving the pages over HTTP until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import uvicorn

from onceward import logs
from onceward.calls import access
from onceward.client import Client
from onceward.errors import OncewardError
from onceward.stopping import stop_signals
from onceward.web.app import create_app
from onceward.web.settings import WebSettings

log = logs.get("onceward.web")
# How long answers that are under way may take after a signal.
GRACE_SECONDS = 5


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket.  Raises OncewardError that says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: asyncio sends small parts at once on sockets that say so, and each answer has a head and a body.  On
    # others the body waits until the head is acknowledged, which takes 40 ms.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((host, port))
        opened.listen(256)
    except OSError as error:
        opened.close()
        raise OncewardError(
            f"could not listen on {host}:{port}: {error.strerror or error}",
            hint="Another program may have the port: choose one with --port, or the variable PORT.",
        ) from None
    opened.set_inheritable(True)
    return opened


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_may_listen(settings: WebSettings, host: str) -> None:
    """Without anybody who can sign in, pages are for this machine only.  Raises OncewardError."""
    if is_loopback(host) or settings.sso is not None:
        return
    with Client(settings.dsn, tenant="*") as client:
        if client.run(access.has_operators()):
            return
    raise OncewardError(
        f"cannot serve pages on {host}: nobody could sign in",
        detail="Without operators, pages are read-only and for this machine alone.",
        hint='Add one first: "onceward operator add NAME --role admin", then "onceward operator link NAME".',
    )


def make_server(
    settings: WebSettings, *, proxies: str | None = None, started: Callable[[], None] | None = None
) -> Server:
    """`proxies`: addresses whose X-Forwarded headers are believed, separated by commas."""
    logs.configure_if_nobody_has()
    config = uvicorn.Config(
        create_app(settings),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or "",
        timeout_graceful_shutdown=GRACE_SECONDS,
        timeout_keep_alive=30,
        limit_concurrency=1000,
        h11_max_incomplete_event_size=64 * 1024,
        ws="none",
    )
    return Server(config, started)


class Server(uvicorn.Server):
    """Ends open streams when it is told to stop: it would wait for every open page.  Signals are the caller's."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None] | None = None) -> None:
        super().__init__(config)
        self._started = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        numbers = stop_signals()
        for number in numbers:
            loop.add_signal_handler(number, self._hear, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._started is not None and not self.should_exit:
            self._started()

    def _hear(self, number: signal.Signals) -> None:
        # A terminal that is closed says so more than once.
        if not (number == signal.SIGHUP and self.should_exit):
            self.stop()

    def stop(self) -> None:
        """The first time, answers under way are finished; the second time, nothing is waited for."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.config.app.state.web.live.end()  # type: ignore[union-attr] # it is what create_app has made


def serve(settings: WebSettings, *, host: str, port: int, proxies: str | None = None) -> None:
    """Until a signal."""
    check_may_listen(settings, host)
    opened = open_socket(host, port)
    address = f"http://{host}:{opened.getsockname()[1]}"
    server = make_server(
        settings, proxies=proxies, started=lambda: log.info("web_listening", address=address)
    )
    asyncio.run(server.serve([opened]))
