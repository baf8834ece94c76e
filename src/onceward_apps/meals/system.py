"""The system as one object: its settings, its connections, and what it does with them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from uuid import UUID

import psycopg

from onceward import Onceward, logs
from onceward.deliveries import Deliveries, Provider
from onceward.deliveries.settings import email_from, telegram_from
from onceward.dsn import resolve_dsn
from onceward.pools import Pool
from onceward_apps.kit import schema
from onceward_apps.meals import store
from onceward_apps.meals.domain import QrKeys
from onceward_apps.meals.messages import Messages
from onceward_apps.meals.sealing import Opening, Seal
from onceward_apps.meals.settings import Settings
from onceward_apps.meals.store import Connection

log = logs.get("onceward_apps.meals")
TENANT = "meals"
# Lanes of our own: other systems on the same database have other tasks, and send through other providers.
LANE, DELIVERIES = "meals", "meals-deliveries"
# A database that does not answer is given up within seconds.  Nothing is prepared: a pooler may hand each transaction to
# another server process.
_CONNECTING = {"connect_timeout": 5, "tcp_user_timeout": 15_000, "prepare_threshold": None}
_PATIENCE_SECONDS = 10.0


class Meals:
    """Use as a context manager, or call close().  Opens connections when they are needed."""

    def __init__(
        self,
        settings: Settings,
        *,
        dsn: str | None = None,
        email: Provider | None = None,
        telegram: Provider | None = None,
        environ: Mapping[str, str] = os.environ,
        pool_size: int = 10,
    ) -> None:
        self.settings = settings
        self._dsn = dsn
        self._email = email or email_from(environ)
        self._telegram = telegram or telegram_from(environ)
        self._pool_size = pool_size
        self._pool: Pool[Connection] | None = None
        self._opening = threading.Lock()
        self.keys = QrKeys.parse(settings.qr_keys)
        self._seal = Seal(settings.seal_keys)
        # Never connects by itself: every message is entered on a connection of ours.
        self._client = self.app().client(dsn, tenant=TENANT)
        self.messages = Messages(settings, self.keys, self._seal, self._client.deliveries)

    @property
    def dsn(self) -> str:
        if self._dsn is None:
            self._dsn = resolve_dsn(None)
        return self._dsn

    def app(self, *, watch: Callable[[UUID], None] | None = None) -> Onceward:
        """An application whose workers send our messages.  `watch` hears of every one that is tried."""
        app = Onceward(self._dsn, name="meals")
        ops = self.settings.ops_chat
        Deliveries(
            app,
            email=Opening(self._email, self._seal, watch),
            telegram=Opening(self._telegram, self._seal, watch) if self._telegram else None,
            alerts_to=f"telegram:{ops}" if ops else None,
            environ={},
            lane=DELIVERIES,
        )
        return app

    def bind(self, dsn: str) -> None:
        """The database of the pages, where none was given and the environment names none."""
        if self._dsn is None:
            self._dsn = dsn

    def record(self, connection: Connection, kind: str, about: tuple[str, object], **changes: Any) -> None:
        """An entry of the audit log, in the caller's transaction.  The actor is that of the transaction."""
        entity, name = about
        self._client.record_event(
            kind, entity_type=entity, entity_id=str(name), connection=connection, **changes
        )

    def install(self) -> bool:
        """The schema, unless the database has it; whether it was applied.  And the channel of the settings' chat."""
        is_new = schema.install(self.dsn, "meals", "meals")
        if self.settings.ops_chat is not None:
            # Not one of the pool: who installs may do no more than that.
            with psycopg.connect(self.dsn) as connection:
                if not store.declare_ops_channel(connection, self.settings.ops_chat):
                    log.warning("ops_channel_is_not_ours", channel="meals-ops")
        return is_new

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection in a transaction, committed at the end of the block."""
        with self._open_pool().connection() as connection:
            yield connection

    def _open_pool(self) -> Pool[Connection]:
        with self._opening:
            if self._pool is None:
                self._pool = Pool(
                    self.dsn,
                    min_size=0,
                    max_size=self._pool_size,
                    timeout=_PATIENCE_SECONDS,
                    kwargs=_CONNECTING,
                    open=True,
                )
            return self._pool

    def close(self) -> None:
        self._client.close()
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()
