"""Django's database connections: `from django.db import connection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from onceward.calls import Call, Row

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


def kinds(*, is_async: bool) -> tuple[type[Any], ...]:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.utils.connection import ConnectionProxy

    return BaseDatabaseWrapper, ConnectionProxy


def fetch(connection: BaseDatabaseWrapper, call: Call[Any]) -> Sequence[Row]:
    with connection.cursor() as cursor:
        cursor.execute(call.sql, cast("dict[str, Any]", dict(call.params)))
        return cast("Sequence[Row]", cursor.fetchall())
