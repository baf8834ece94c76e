"""A role without the rights for a call is told which role of Onceward it lacks."""

from __future__ import annotations

import asyncio
import secrets
from uuid import uuid4

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from onceward import AsyncClient, Client, calls, contrib
from onceward.calls import browsing, rights
from onceward.errors import NotAllowed
from onceward.worker import Worker
from tests.sdk import shop
from tests.sdk.test_connections import asyncpg_options


@pytest.fixture
def stranger(onceward_database):
    """A role that may log in and nothing else."""
    name = f"test {secrets.token_hex(4)}"
    with psycopg.connect(onceward_database, autocommit=True) as admin:
        admin.execute(f'create role "{name}" login')
        yield name
        admin.execute(f'drop role "{name}"')


@pytest.fixture
def dsn(onceward_database, stranger):
    return make_conninfo(onceward_database, user=stranger)


CALLS = [
    ("onceward_producer", lambda client: client.enqueue(shop.greet, {"name": "Ada"})),
    ("onceward_producer", lambda client: client.enqueue_many(shop.greet, [{"name": "Ada"}])),
    ("onceward_operator", lambda client: client.cancel(uuid4())),
    ("onceward_operator", lambda client: client.requeue(uuid4())),
    ("onceward_operator", lambda client: client.pause_lane("default")),
    ("onceward_auditor", lambda client: client.jobs()),
    ("onceward_auditor", lambda client: client.lanes()),
]


@pytest.mark.parametrize(("role", "call"), CALLS)
def test_a_client_names_the_role_and_the_statement(dsn, stranger, role, call):
    with Client(dsn) as client, pytest.raises(NotAllowed, match="permission denied") as caught:
        call(client)

    assert f'grant {role} to "{stranger}"' in caught.value.hint
    assert stranger in caught.value.detail
    assert isinstance(caught.value.__cause__, psycopg.errors.InsufficientPrivilege)


@pytest.mark.parametrize(("role", "call"), CALLS)
def test_the_statement_helps(onceward_database, dsn, stranger, role, call):
    with psycopg.connect(onceward_database, autocommit=True) as admin:
        admin.execute(f'grant {role} to "{stranger}"')
        with Client(dsn, tenant="default") as client:
            try:
                call(client)
            except Exception as error:
                assert not isinstance(error, NotAllowed), error


def test_a_worker_names_the_role_and_the_statement(dsn, stranger):
    with pytest.raises(NotAllowed) as caught:
        asyncio.run(Worker(shop.app, dsn=dsn).drain())
    # The first thing it does is to declare its lanes.
    assert f'grant onceward_worker to "{stranger}"' in caught.value.hint


def test_a_producer_that_starts_a_worker_is_told_what_it_lacks(onceward_database, dsn, stranger):
    with psycopg.connect(onceward_database, autocommit=True) as admin:
        admin.execute(f'grant onceward_producer to "{stranger}"')
        with pytest.raises(NotAllowed, match="permission denied for function register_worker") as caught:
            asyncio.run(Worker(shop.app, dsn=dsn).drain())
    assert f'grant onceward_worker to "{stranger}"' in caught.value.hint


def test_a_connection_of_another_driver_is_told_as_well(onceward_database, stranger):
    async def main() -> None:
        conn = await asyncpg.connect(**{**asyncpg_options(onceward_database), "user": stranger})
        try:
            await AsyncClient().enqueue("greet", {}, connection=conn)
        finally:
            await conn.close()

    with pytest.raises(NotAllowed) as caught:
        asyncio.run(main())
    assert "grant onceward_producer to" in caught.value.hint


def test_every_function_is_named_with_a_role_that_may_call_it(onceward_database):
    with psycopg.connect(onceward_database) as conn:
        granted = conn.execute(
            "select p.proname, array_agg(g.grantee::regrole::text) from pg_proc as p, aclexplode(p.proacl) as g "
            "where p.pronamespace = 'onceward'::regnamespace and g.grantee::regrole::text <> 'onceward_owner' "
            "group by p.proname"
        ).fetchall()
    assert granted
    for function, roles in granted:
        assert rights.role_for(f"select onceward.{function}()") in roles, function


def test_the_least_role_is_named():
    assert rights.role_for(calls.promote().sql) == "onceward_worker"
    assert rights.role_for(calls.enqueue("a", "{}", shop.greet.options).sql) == "onceward_producer"
    assert rights.role_for(calls.workers().sql) == "onceward_auditor"


@pytest.mark.parametrize("role", ["onceward_operator", "onceward_auditor", "onceward_owner"])
def test_who_cannot_take_a_role_is_told_that_very_role(onceward_database, dsn, stranger, role):
    with psycopg.connect(onceward_database, autocommit=True) as admin:
        admin.execute(f'alter role "{stranger}" createrole')
    with (
        psycopg.connect(dsn, autocommit=True) as conn,
        pytest.raises(NotAllowed, match="set role") as caught,
    ):
        contrib.run(conn, browsing.take_role(role))

    assert f'grant {role} to "{stranger}"' in caught.value.hint
