"""The pages behind a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import httpx

from onceward.web import WebSettings, secrets
from onceward.web.server import make_server, open_socket
from onceward_apps.intake import store
from onceward_apps.intake.pages import section


class Site:
    """The pages behind a real socket."""

    def __init__(self, intake) -> None:
        self.intake = intake
        ready = threading.Event()
        self._socket = open_socket("127.0.0.1", 0)
        self.address = f"http://localhost:{self._socket.getsockname()[1]}"
        made = section(intake.settings, store.Database(intake.dsn))
        settings = WebSettings(dsn=intake.dsn, sections=[made])
        self._server = make_server(settings, started=ready.set)
        self.web = self._server.config.app.state.web
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve([self._socket])), daemon=True
        )
        self._thread.start()
        assert ready.wait(20)

    def link(self, user=None) -> str:
        return f"{self.address}/records/enter?token={self.intake.link_token(user)}"

    @contextlib.contextmanager
    def visitor(self, user=None):
        with httpx.Client(base_url=self.address, timeout=20, verify=False) as http:
            if user is not None:
                sent = http.post("/records/enter", data={"token": self.intake.link_token(user)})
                assert sent.status_code == 303
            yield http

    @contextlib.contextmanager
    def operator(self, role="operator", tenant=None):
        """Somebody at the pages of operators, signed in."""
        secret = secrets.new(secrets.LINK)
        self.intake.conn.execute(
            "select onceward.add_operator('ana', %s, %s, %s)", [role, tenant, tenant is None]
        )
        self.intake.conn.execute("select onceward.create_link('ana', %s)", [secrets.digest(secret)])
        with httpx.Client(base_url=self.address, timeout=20, verify=False) as http:
            assert http.post("/sign-in", data={"link": secret}).status_code == 303
            yield http

    def close(self) -> None:
        self._server.stop()
        self._thread.join(20)
        self._socket.close()
