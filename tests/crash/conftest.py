from __future__ import annotations

import os

import pytest

from tests.crash.server import Server
from tests.support import dice


@pytest.fixture(scope="session")
def crash_server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def seed():
    """Printed with the verdict; ONCEWARD_CRASH_SEED repeats one."""
    given = os.environ.get("ONCEWARD_CRASH_SEED")
    return int(given) if given else dice.seed()


@pytest.fixture
def arena(crash_server, seed):
    with crash_server.arena(seed) as arena:
        yield arena
