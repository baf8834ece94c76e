"""The connection of the heart: one thread uses it, another one cuts it off."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from onceward.worker.pulse import Pulse
from tests.sdk.test_relay import LEASE
from tests.sdk.test_worker import until


@pytest.fixture
def sql(onceward_database):
    with psycopg.connect(onceward_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def worker_id(sql):
    return sql.execute("select onceward.register_worker('a')").fetchone()[0]


@pytest.fixture
def pulse(onceward_database):
    with closing(Pulse(onceward_database, "pulse", lease=LEASE.total_seconds())) as pulse:
        yield pulse


def test_a_socket_that_was_opened_meanwhile_is_not_cut_off(pulse, worker_id, monkeypatch):
    """The heart's thread closes its connection in the moment in which another one cuts it off; a third opens a socket."""
    pulse.beat(worker_id)
    strangers = []
    number_of = psycopg.Connection.fileno

    def then_closed(connection):
        number = number_of(connection)
        thread = threading.Thread(target=pulse.close)
        thread.start()
        thread.join(30)
        strangers.extend(socket.socketpair())
        return number

    monkeypatch.setattr(psycopg.Connection, "fileno", then_closed)
    pulse.unblock()
    pulse.close()
    # Nobody asks for the number any more: then no stranger can be meant by it.
    one, other = strangers or socket.socketpair()
    with one, other:
        one.sendall(b"hello")
        assert other.recv(5) == b"hello"


def test_a_call_that_hangs_is_ended_by_another_thread_and_the_next_one_succeeds(pulse, worker_id, sql):
    pulse.beat(worker_id)
    with ThreadPoolExecutor(1) as thread:
        with sql.transaction():
            sql.execute("lock table onceward.worker_private in access exclusive mode")
            beat = thread.submit(pulse.beat, worker_id)
            waiting = "select exists (select from pg_locks where not granted)"
            asyncio.run(until(lambda: sql.execute(waiting).fetchone()[0]))
            pulse.unblock()
            assert isinstance(beat.exception(30), psycopg.OperationalError)
        assert thread.submit(pulse.beat, worker_id).result(30).expires_at
    # Nothing is left of the first one, and there is nothing to end.
    pulse.close()
    pulse.unblock()
