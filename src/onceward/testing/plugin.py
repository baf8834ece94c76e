"""Fixtures for pytest.  Loaded by every run of pytest, so everything else is imported when a fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onceward.testing.clock import Clock
    from onceward.testing.database import DatabaseServer
    from onceward.testing.kit import Kit


@pytest.fixture(scope="session")
def onceward_server() -> Iterator[DatabaseServer]:
    """The PostgreSQL server of this test session; see onceward.testing.database for the choice."""
    from onceward.testing.database import DatabaseServer

    with DatabaseServer.from_environment() as server:
        yield server


@pytest.fixture
def onceward_database(onceward_server: DatabaseServer) -> Iterator[str]:
    """The DSN of a fresh database with Onceward installed.  It is dropped after the test."""
    with onceward_server.cloned() as database:
        yield database.dsn


@pytest.fixture
def onceward_clock(onceward_database: str) -> Clock:
    """The clock of `onceward_database`: `onceward_clock.advance("2h")`."""
    from onceward.testing.clock import Clock

    return Clock(onceward_database)


@pytest.fixture
def onceward_kit(onceward_database: str) -> Iterator[Kit]:
    """Everything together: `.dsn`, `.clock`, `.connect()`, `.client()`, `.drain()`, `.crash_worker()`, `.assert_enqueued()`."""
    from onceward.testing.kit import Kit

    with Kit(onceward_database) as kit:
        yield kit
