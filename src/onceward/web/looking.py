"""A connection of its own for what looks at much, call by call, in a thread: proofs and the verification of the audit log.

Each call is a transaction that only reads, in the name and with the rights of who looks: nothing is held between them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar

import psycopg
from psycopg.types.json import set_json_loads

from onceward import connecting, contrib, jsonsafe
from onceward.calls import Call, browsing
from onceward.web.identity import Identity

T = TypeVar("T")


class Looking:
    """Runs calls, as a client does."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], identity: Identity) -> None:
        self._connection = connection
        self._identity = identity

    def run(self, call: Call[T], /) -> T:
        who = self._identity
        with self._connection.transaction():
            contrib.run(self._connection, browsing.read_as(who.scope, who.name, who.database_role))
            return contrib.run(self._connection, call)


@contextlib.contextmanager
def looking(dsn: str, identity: Identity) -> Iterator[Looking]:
    options = {"autocommit": True, "prepare_threshold": None, "application_name": "onceward web"}
    with connecting.connect(dsn, connect_timeout=10, **options) as connection:
        set_json_loads(jsonsafe.loads_to_show, connection)
        yield Looking(connection, identity)
