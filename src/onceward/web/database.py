"""The way from a page to the database: every page in one transaction, with the rights of who looks at it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

from psycopg_pool import PoolTimeout

from onceward import contrib, jsonsafe
from onceward.calls import Call, browsing
from onceward.connecting import none_free, probe_async
from onceward.dsn import resolve_dsn
from onceward.errors import CannotConnect, connection_lost, is_connection_trouble
from onceward.pools import async_pool
from onceward.requests import CONNECTION_OPTIONS
from onceward.web.identity import Actor, Identity
from onceward.wire import WiredAsyncConnection

T = TypeVar("T")
WAIT_SECONDS = 5.0
# Nobody: for signing in, before it is known who it is.
_SERVICE = Identity("onceward web", "admin", None, "service")


class Acting:
    """A transaction in somebody's name."""

    def __init__(self, connection: WiredAsyncConnection) -> None:
        # For clients that enqueue in this transaction.
        self.connection = connection

    async def run(self, call: Call[T]) -> T:
        return await contrib.run_async(self.connection, call)

    async def attempt(self, call: Call[T]) -> T:
        """Like run, in a savepoint: what fails is undone alone."""
        async with self.connection.transaction():
            return await contrib.run_async(self.connection, call)


class Database:
    """A few connections, opened when they are needed."""

    def __init__(self, dsn: str | None, *, size: int) -> None:
        self._size = size
        self._options = {**CONNECTION_OPTIONS, "prepare_threshold": None, "application_name": "onceward web"}
        self.dsn = resolve_dsn(dsn)
        self._pool = async_pool(self.dsn, self._options, size=size, loads=jsonsafe.loads_to_show)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    @contextlib.asynccontextmanager
    async def acting(self, identity: Actor, *, writes: bool = False) -> AsyncIterator[Acting]:
        """One transaction: their rights, their tenant, their name in the records.  It only reads unless told otherwise."""
        try:
            async with self._pool.connection(WAIT_SECONDS) as connection, connection.transaction():
                acting = Acting(connection)
                await acting.run(browsing.act_as(identity.scope, identity.name))
                if not writes:
                    await acting.run(browsing.read_only())
                await acting.run(browsing.take_role(identity.database_role))
                yield acting
        except PoolTimeout as error:
            await self._why_unreachable()
            raise none_free(WAIT_SECONDS, self._size) from error
        except Exception as error:
            if is_connection_trouble(error) and (lost := connection_lost(error)):
                raise lost from error
            raise

    async def run(self, identity: Actor, call: Call[T], *, writes: bool = False) -> T:
        async with self.acting(identity, writes=writes) as acting:
            return await acting.run(call)

    def serving(self) -> contextlib.AbstractAsyncContextManager[Acting]:
        """A transaction of the pages themselves, for nobody: sample data, say."""
        return self.acting(_SERVICE, writes=True)

    async def serve(self, call: Call[T]) -> T:
        """A call of the pages themselves: who is it, which token is that?"""
        return await self.run(_SERVICE, call, writes=True)

    async def _why_unreachable(self) -> None:
        """The pool does not say why; connecting once more does.  Raises CannotConnect."""
        await probe_async(self.dsn, self._options)

    async def ready(self) -> str | None:
        """Why pages cannot be shown now, or None."""
        try:
            await self.serve(browsing.pulse())
        except CannotConnect as error:
            return error.detail or error.message
        except Exception as error:
            return getattr(error, "message", None) or type(error).__name__
        return None
