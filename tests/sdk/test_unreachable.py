"""A database that cannot be reached: an error of ours at once, with which database, why, and what to do."""

from __future__ import annotations

import asyncio
import socket
import threading

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg_pool import PoolTimeout

from onceward import AsyncClient, Client
from onceward.errors import CannotConnect, ConnectionLost, InvalidArgument, is_connection_trouble
from tests.sdk import shop
from tests.sdk.gate import refusing_server

PASSWORD = "open sesame"


@pytest.fixture(params=["sync", "async"])
def enqueue(request):
    """Enqueue one job by a client of this DSN."""

    async def one(dsn: str) -> None:
        async with AsyncClient(dsn, app=shop.app) as client:
            await client.enqueue(shop.greet, {"name": "Ada"})

    def run(dsn: str) -> None:
        if request.param == "async":
            asyncio.run(one(dsn))
        else:
            with Client(dsn, app=shop.app) as client:
                client.enqueue(shop.greet, {"name": "Ada"})

    return run


def refusal(enqueue, dsn: str) -> CannotConnect:
    with pytest.raises(CannotConnect) as caught:
        enqueue(dsn)
    error = caught.value
    assert isinstance(error.__cause__, psycopg.OperationalError)
    # Not by way of the pool, which would have tried for a quarter of a minute.
    assert not isinstance(error.__cause__, PoolTimeout)
    assert PASSWORD not in str(error)
    assert is_connection_trouble(error)
    return error


def test_nobody_listens(enqueue):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = refusal(
        enqueue, make_conninfo(host="127.0.0.1", port=port, dbname="shop", user="ada", password=PASSWORD)
    )

    assert error.message == f'could not connect to database "shop" on 127.0.0.1:{port} as "ada"'
    assert "refused" in error.detail
    assert "Start the server" in error.hint


def test_the_password_is_wrong(enqueue):
    with refusing_server("28P01", 'password authentication failed for user "ada"') as port:
        error = refusal(enqueue, f"postgresql://ada:open%20sesame@127.0.0.1:{port}/shop")

    assert error.message == f'could not connect to database "shop" on 127.0.0.1:{port} as "ada"'
    assert 'password authentication failed for user "ada"' in error.detail
    assert "Check user and password" in error.hint


def test_the_database_does_not_exist(enqueue, onceward_database):
    error = refusal(enqueue, make_conninfo(onceward_database, dbname="nowhere"))

    assert 'database "nowhere" on' in error.message
    assert 'database "nowhere" does not exist' in error.detail
    assert "createdb" in error.hint


def test_the_host_does_not_exist(enqueue):
    error = refusal(
        enqueue, make_conninfo(host="nowhere.invalid", dbname="shop", user="ada", password=PASSWORD)
    )

    assert error.message == 'could not connect to database "shop" on nowhere.invalid:5432 as "ada"'
    assert "Check the host name" in error.hint


def test_a_dsn_that_cannot_be_read_is_not_repeated(enqueue):
    with pytest.raises(InvalidArgument, match="cannot read the connection string") as caught:
        enqueue(f"host=x password '{PASSWORD}'")

    assert PASSWORD not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_database_that_goes_away_is_an_error_of_ours_with_its_cause(onceward_server, monkeypatch):
    monkeypatch.setattr("onceward.client.CONNECT_TIMEOUT", 0.5)
    with onceward_server.cloned() as database, Client(database.dsn, app=shop.app) as client:
        client.enqueue(shop.greet, {"name": "Ada"})
        onceward_server.drop(database)

        with pytest.raises(CannotConnect, match="could not connect to database") as caught:
            client.enqueue(shop.greet, {"name": "Ada"})

    assert "does not exist" in str(caught.value.__cause__)


def test_a_connection_cut_in_the_middle_leaves_the_outcome_open(onceward_database):
    with (
        Client(onceward_database, app=shop.app) as client,
        psycopg.connect(onceward_database, autocommit=True) as other,
    ):
        job = client.enqueue(shop.greet, {"name": "Ada"})
        other.execute("begin")
        other.execute("select from onceward.job_private where id = %s for update", [job.id])
        waiting = threading.Thread(target=cancel_and_keep_the_error, args=(client, job, errors := []))
        waiting.start()
        while not other.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where application_name = 'onceward client' and wait_event_type = 'Lock'"
        ).fetchone():
            assert waiting.is_alive(), errors
            # A transaction keeps what it has seen of the others.
            other.execute("select pg_stat_clear_snapshot()")
        waiting.join()

    (error,) = errors
    assert isinstance(error, ConnectionLost)
    assert isinstance(error.__cause__, psycopg.errors.AdminShutdown)
    assert "may or may not have happened" in error.hint
    assert is_connection_trouble(error)


def cancel_and_keep_the_error(client, job, errors) -> None:
    try:
        client.run(cancel_once(job))
    except Exception as error:
        errors.append(error)


def cancel_once(job):
    from onceward import calls

    return calls.cancel(job.id, None)._replace(repeatable=False)


def test_a_client_whose_connections_are_all_taken_says_so(onceward_database, monkeypatch):
    monkeypatch.setattr("onceward.client.CONNECT_TIMEOUT", 0.2)
    with Client(onceward_database, app=shop.app, pool_size=1) as client:
        with (
            client._connections().connection(),
            pytest.raises(CannotConnect, match=r"no connection became free within 0\.2 s") as caught,
        ):
            client.lanes()

        assert "pool_size" in caught.value.hint
        assert client.lanes()
