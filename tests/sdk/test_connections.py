"""Enqueue on the caller's own connection: the job lives and dies with the caller's transaction."""

from __future__ import annotations

import asyncio

import asyncpg
import django
import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from onceward import AsyncClient, Client, Onceward
from onceward.errors import InvalidArgument, UnknownLane
from tests.sdk import shop

PAYLOAD = {"name": "Ada"}


@pytest.fixture
def rows(onceward_database):
    """How many business rows and jobs there are."""
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        conn.execute("create table account (name text)")
        yield lambda: conn.execute(
            "select (select count(*) from account), (select count(*) from onceward.jobs)"
        ).fetchone()


def sqlalchemy_url(dsn: str, driver: str) -> str:
    parts = conninfo_to_dict(dsn)
    return f"postgresql+{driver}://{parts.get('user', '')}@/{parts['dbname']}?host={parts['host']}" + (
        f"&port={parts['port']}" if "port" in parts else ""
    )


def asyncpg_options(dsn: str) -> dict[str, str]:
    parts = conninfo_to_dict(dsn)
    return {"database": parts.pop("dbname")} | {
        name: parts[name] for name in ("host", "user", "port") if name in parts
    }


@pytest.mark.parametrize(("commit", "count"), [(True, (1, 1)), (False, (0, 0))])
class TestTransactions:
    def test_psycopg(self, onceward_database, rows, commit, count):
        with Client(app=shop.app) as client, psycopg.connect(onceward_database, row_factory=dict_row) as conn:
            conn.execute("insert into account values ('Ada')")
            client.enqueue(shop.greet, PAYLOAD, connection=conn)
            conn.commit() if commit else conn.rollback()
        assert rows() == count

    def test_psycopg_async(self, onceward_database, rows, commit, count):
        async def main():
            client = AsyncClient(app=shop.app)
            async with await psycopg.AsyncConnection.connect(onceward_database) as conn:
                await conn.execute("insert into account values ('Ada')")
                await client.enqueue(shop.greet, PAYLOAD, connection=conn)
                await (conn.commit() if commit else conn.rollback())

        asyncio.run(main())
        assert rows() == count

    def test_asyncpg(self, onceward_database, rows, commit, count):
        async def main():
            client = AsyncClient(app=shop.app)
            conn = await asyncpg.connect(**asyncpg_options(onceward_database))
            transaction = conn.transaction()
            await transaction.start()
            await conn.execute("insert into account values ('Ada')")
            await client.enqueue(shop.greet, PAYLOAD, connection=conn, key="k")
            await (transaction.commit() if commit else transaction.rollback())
            await conn.close()

        asyncio.run(main())
        assert rows() == count

    def test_asyncpg_pool(self, onceward_database, rows, commit, count):
        async def main():
            client = AsyncClient(app=shop.app)
            async with (
                asyncpg.create_pool(min_size=1, **asyncpg_options(onceward_database)) as pool,
                pool.acquire() as conn,
            ):
                transaction = conn.transaction()
                await transaction.start()
                await conn.execute("insert into account values ('Ada')")
                await client.enqueue_many(shop.greet, [PAYLOAD], keys=["k"], connection=conn)
                await (transaction.commit() if commit else transaction.rollback())

        asyncio.run(main())
        assert rows() == count

    def test_sqlalchemy_session(self, onceward_database, rows, commit, count):
        engine = create_engine(sqlalchemy_url(onceward_database, "psycopg"))
        with Client(app=shop.app) as client, Session(engine) as session:
            session.execute(text("insert into account values ('Ada')"))
            client.enqueue(shop.greet, PAYLOAD, connection=session)
            session.commit() if commit else session.rollback()
        engine.dispose()
        assert rows() == count

    @pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
    def test_sqlalchemy_async_session(self, onceward_database, rows, commit, count, driver):
        async def main():
            engine = create_async_engine(sqlalchemy_url(onceward_database, driver))
            client = AsyncClient(app=shop.app)
            async with AsyncSession(engine) as session:
                await session.execute(text("insert into account values ('Ada')"))
                await client.enqueue(shop.greet, PAYLOAD, connection=session)
                await (session.commit() if commit else session.rollback())
            await engine.dispose()

        asyncio.run(main())
        assert rows() == count

    def test_django(self, onceward_database, rows, commit, count):
        connection = django_connection(onceward_database)
        from django.db import transaction

        with Client(app=shop.app) as client, transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("insert into account values ('Ada')")
            client.enqueue(shop.greet, PAYLOAD, connection=connection)
            transaction.set_rollback(not commit)
        connection.close()
        assert rows() == count


def django_connection(dsn: str):
    if not settings.configured:
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}}, USE_TZ=True)
        django.setup()
    from django.db import connection

    parts = conninfo_to_dict(dsn)
    connection.close()
    connection.settings_dict.update(
        NAME=parts["dbname"], HOST=parts["host"], USER=parts.get("user", ""), PORT=parts.get("port", "")
    )
    return connection


def test_an_error_is_ours_whatever_the_driver(onceward_database):
    async def main():
        client = AsyncClient(app=shop.app)
        conn = await asyncpg.connect(**asyncpg_options(onceward_database))
        with pytest.raises(UnknownLane, match='lane "nowhere" does not exist'):
            await client.enqueue(shop.greet, PAYLOAD, lane="nowhere", connection=conn)
        await conn.close()

    asyncio.run(main())
    engine = create_engine(sqlalchemy_url(onceward_database, "psycopg"))
    with Client(app=shop.app) as client, Session(engine) as session, pytest.raises(UnknownLane):
        client.enqueue(shop.greet, PAYLOAD, lane="nowhere", connection=session)
    engine.dispose()


def test_a_connection_of_an_unknown_kind_is_refused():
    with (
        Client(app=shop.app) as client,
        pytest.raises(InvalidArgument, match=r"connection must be of .* got builtins.str"),
    ):
        client.enqueue(shop.greet, PAYLOAD, connection="postgresql:///")


def test_a_client_lives_through_terminated_sessions(onceward_database):
    with (
        Client(onceward_database, app=shop.app) as client,
        psycopg.connect(onceward_database, autocommit=True) as other,
    ):
        client.enqueue(shop.greet, PAYLOAD)
        other.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'onceward client'"
        )
        client.enqueue(shop.greet, PAYLOAD)
        assert len(client.jobs()) == 2


def test_lanes_are_declared_until_they_are_known_to_be_committed(onceward_database):
    """A caller's transaction may take the lane back with it; once it cannot, an enqueue is one statement."""
    sent: list[str] = []

    class Noting(psycopg.Cursor):
        def execute(self, query, *args, **kwargs):
            sent.append("declare" if "declare" in str(query) else "enqueue")
            return super().execute(query, *args, **kwargs)

    app = Onceward()
    task = app.task(lane="fresh", name="in.a.fresh.lane")(lambda: None)
    with (
        Client(onceward_database, app=app) as client,
        psycopg.connect(onceward_database, cursor_factory=Noting) as conn,
    ):
        for finish in (conn.rollback, conn.commit, conn.commit, conn.commit):
            client.enqueue(task, connection=conn)
            finish()
        assert sent == ["declare", "enqueue"] * 3 + ["enqueue"]
        assert len(client.jobs()) == 3
