from __future__ import annotations

import os
import random

import pytest

from tests.crash.server import Server


@pytest.fixture(scope="session")
def crash_server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def seed():
    """Drawn anew for each run, printed with the verdict; ONCEWARD_CRASH_SEED repeats one."""
    given = os.environ.get("ONCEWARD_CRASH_SEED")
    # Not the module's own generator: the plugin for random order seeds that one.
    return int(given) if given else random.SystemRandom().randrange(2**32)


@pytest.fixture
def arena(crash_server, seed):
    with crash_server.arena(seed) as arena:
        yield arena
