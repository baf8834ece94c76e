from __future__ import annotations

import asyncio
import inspect

import pytest

from onceward import AsyncClient, Client
from tests.sdk import shop


class Blocking:
    """An AsyncClient that is called like a Client, so that one test serves both."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name):
        method = getattr(self._client, name)
        if not inspect.iscoroutinefunction(method):
            return method
        return lambda *args, **kwargs: self._runner.run(method(*args, **kwargs))


@pytest.fixture(params=["sync", "async"])
def client(request, onceward_database):
    if request.param == "sync":
        with Client(onceward_database, app=shop.app) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        client = AsyncClient(onceward_database, app=shop.app)
        yield Blocking(client, runner)
        runner.run(client.close())


@pytest.fixture
def plain(onceward_database):
    """A sync client, where the kind of client is not the point."""
    with Client(onceward_database, app=shop.app) as client:
        yield client
