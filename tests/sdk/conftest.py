from __future__ import annotations

import asyncio
import inspect
from contextlib import ExitStack

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
def make_client(request, onceward_database):
    """Clients of one kind, with the options that a test gives."""
    with ExitStack() as stack:
        if request.param == "sync":
            yield lambda **options: stack.enter_context(Client(onceward_database, app=shop.app, **options))
            return
        runner = stack.enter_context(asyncio.Runner())

        def make(**options):
            client = AsyncClient(onceward_database, app=shop.app, **options)
            stack.callback(lambda: runner.run(client.close()))
            return Blocking(client, runner)

        yield make


@pytest.fixture
def client(make_client):
    return make_client()


@pytest.fixture
def plain(onceward_database):
    """A sync client, where the kind of client is not the point."""
    with Client(onceward_database, app=shop.app) as client:
        yield client
