from __future__ import annotations

import asyncio
import contextlib
import threading

import httpx
import pytest
import uvicorn

from onceward_apps.intake import store
from tests.apps.intake.site import Site
from tests.apps.intake.stage import UPLOAD, Intake
from tests.web.conftest import chromium

__all__ = ["chromium"]


@pytest.fixture(scope="session")
def intake_template(onceward_server):
    """The schema, installed once."""
    with onceward_server.cloned() as template:
        store.install(template.dsn)
        yield template


@pytest.fixture
def intake_database(onceward_server, intake_template):
    with onceward_server.cloned(intake_template) as database:
        yield database


@pytest.fixture
def intake(intake_database, tmp_path):
    intake = Intake(intake_database.dsn, tmp_path / "bucket")
    yield intake
    intake.close()


class Door:
    """The functions behind a real socket."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake
        config = uvicorn.Config(intake.asgi(), port=0, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._socket = config.bind_socket()
        # So that who comes before the thread has begun waits, instead of being refused.
        self._socket.listen()
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([self._socket])))
        self._thread.start()
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20, verify=False)

    def upload(self, content, *, user=None, profile=None, filename="scan.png", key=None, **more):
        headers = {"authorization": f"Bearer {self.intake.token(user)}", **more.pop("headers", {})}
        if key is not None:
            headers["idempotency-key"] = key
        query = {"profile_id": str(profile or self.intake.profile), "filename": filename}
        return self.http.post(UPLOAD, params=query, content=content, headers=headers, **more)

    def close(self) -> None:
        self.http.close()
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        with contextlib.suppress(OSError):
            self._socket.close()


@pytest.fixture
def door(intake):
    door = Door(intake)
    yield door
    door.close()


@pytest.fixture
def site(intake):
    site = Site(intake)
    yield site
    site.close()
