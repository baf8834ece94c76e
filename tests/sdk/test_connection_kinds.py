"""Connections of all kinds: those with factories and codecs of their own work, those that are none are refused at once."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from onceward import AsyncClient, Client
from onceward.errors import InvalidArgument
from onceward.model import Retry
from tests.sdk import shop
from tests.sdk.test_connections import PAYLOAD, asyncpg_options, django_connection, sqlalchemy_url


@pytest.fixture
def engine(onceward_database):
    engine = create_engine(sqlalchemy_url(onceward_database, "psycopg"))
    yield engine
    engine.dispose()


def written(dsn):
    with psycopg.connect(dsn) as conn:
        return [row[0] for row in conn.execute("select payload from onceward.jobs")]


@pytest.mark.parametrize("factory", [psycopg.ClientCursor, psycopg.RawCursor])
def test_cursors_of_another_kind(onceward_database, factory):
    with (
        Client(app=shop.app) as client,
        psycopg.connect(onceward_database, cursor_factory=factory) as conn,
    ):
        client.enqueue(shop.greet, PAYLOAD, connection=conn)
    assert written(onceward_database) == [PAYLOAD]


@pytest.mark.parametrize("factory", [psycopg.AsyncClientCursor, psycopg.AsyncRawCursor])
def test_async_cursors_of_another_kind(onceward_database, factory):
    async def main():
        async with await psycopg.AsyncConnection.connect(onceward_database, cursor_factory=factory) as conn:
            await AsyncClient(app=shop.app).enqueue(shop.greet, PAYLOAD, connection=conn)

    asyncio.run(main())
    assert written(onceward_database) == [PAYLOAD]


@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_an_asyncpg_connection_that_makes_json_itself(onceward_database, kind):
    async def main():
        client = AsyncClient(app=shop.app)
        conn = await asyncpg.connect(**asyncpg_options(onceward_database))
        await conn.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        options = {"headers": {"a": "b"}, "retry": Retry(waits=[timedelta(seconds=1)])}
        await client.enqueue(shop.greet, PAYLOAD, connection=conn, **options)
        await client.enqueue_many(shop.greet, [PAYLOAD], connection=conn, keys=["k"], **options)
        await conn.close()

    asyncio.run(main())
    assert written(onceward_database) == [PAYLOAD, PAYLOAD]


def test_a_scoped_session(onceward_database, engine):
    session = scoped_session(sessionmaker(engine))
    with Client(app=shop.app) as client:
        client.enqueue(shop.greet, PAYLOAD, connection=session)
    session.commit()
    session.remove()
    assert written(onceward_database) == [PAYLOAD]


SYNC = {
    "a session": Session,
    "a connection": lambda engine: engine.connect(),
    "an engine": lambda engine: engine,
    "a maker of sessions": sessionmaker,
}


@pytest.mark.parametrize("make", list(SYNC.values()), ids=list(SYNC))
def test_what_is_sync_is_refused_by_the_async_client_before_it_is_used(onceward_database, engine, make):
    async def main():
        given = make(engine)
        with pytest.raises(
            InvalidArgument, match="must be an open async connection or session, got sqlalchemy"
        ):
            await AsyncClient(app=shop.app).enqueue(shop.greet, PAYLOAD, connection=given)
        if hasattr(given, "commit"):
            given.commit()
            given.close()

    asyncio.run(main())
    assert written(onceward_database) == []


def test_what_is_async_or_no_connection_is_refused_by_the_client(onceward_database, engine):
    async_engine = create_async_engine(sqlalchemy_url(onceward_database, "psycopg"))

    async def connections():
        async with await psycopg.AsyncConnection.connect(onceward_database) as conn:
            yield conn
        yield AsyncSession(async_engine)
        yield async_engine
        yield engine
        yield sessionmaker(engine)
        with psycopg.connect(onceward_database) as conn:
            yield conn.cursor()

    async def main():
        client = Client(app=shop.app)
        async for connection in connections():
            with pytest.raises(InvalidArgument, match="must be an open sync connection or session, got"):
                client.enqueue(shop.greet, PAYLOAD, connection=connection)
        await async_engine.dispose()

    asyncio.run(main())
    assert written(onceward_database) == []


def test_a_pool_of_asyncpg_is_not_the_callers_transaction(onceward_database):
    async def main():
        async with asyncpg.create_pool(min_size=1, **asyncpg_options(onceward_database)) as pool:
            with pytest.raises(
                InvalidArgument, match="must be an open async connection or session, got asyncpg"
            ):
                await AsyncClient(app=shop.app).enqueue(shop.greet, PAYLOAD, connection=pool)

    asyncio.run(main())
    assert written(onceward_database) == []


def test_another_database_is_named_for_what_it_is():
    engine = create_engine("sqlite://")
    told = "connection must be one to PostgreSQL, got one to sqlite"
    with Client(app=shop.app) as client:
        with Session(engine) as session, pytest.raises(InvalidArgument, match=told):
            client.enqueue(shop.greet, PAYLOAD, connection=session)
        with engine.connect() as connection, pytest.raises(InvalidArgument, match=told):
            client.enqueue(shop.greet, PAYLOAD, connection=connection)
    engine.dispose()


def test_django_s_other_database_and_its_set_of_connections(onceward_database):
    from django.db import connections

    django_connection(onceward_database)
    connections.databases["other"] = connections.configure_settings(
        {"default": {}, "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    )["other"]
    with Client(app=shop.app) as client:
        with pytest.raises(InvalidArgument, match="got one to sqlite"):
            client.enqueue(shop.greet, PAYLOAD, connection=connections["other"])
        with pytest.raises(InvalidArgument, match="connection must be an open sync connection or session"):
            client.enqueue(shop.greet, PAYLOAD, connection=connections)
    connections["other"].close()
    assert written(onceward_database) == []
