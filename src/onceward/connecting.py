"""The way to a database: which one it is, how it is shown, and why it could not be reached.  Never with the password."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceward.errors import CannotConnect

# In a URI: user:password@, and password=… behind the question mark.
_IN_URI = re.compile(r"(?<=[?&]password=)[^&]*|(?<=://)([^:@/?]*):[^@/?]*(?=@)")
MASK = "***"
# The same within a sentence, which goes on behind it; and a setting, perhaps quoted.
_LOGIN = re.compile(r"(?<=://)([^:@/?\s]*):[^@/?\s]*(?=@)")
_SETTING = re.compile(r"(?<=password=)(?:'(?:[^'\\]|\\.)*'|[^\s&'\"]+)")
# From so many characters on, a password is hidden wherever it stands as a word.
SHORTEST_SECRET = 8
_FIRST = ("host", "hostaddr", "port", "dbname", "user", "password")


def connect(dsn: str, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """psycopg.connect, whose errors say which database was meant.  Raises CannotConnect."""
    try:
        return psycopg.connect(dsn, **options)
    except psycopg.OperationalError as error:
        raise connect_error(dsn, error) from error


def probe(dsn: str, options: Mapping[str, Any]) -> None:
    """Connect and leave again.  Raises CannotConnect; a pool would keep trying and not say why."""
    connect(dsn, **options).close()


async def probe_async(dsn: str, options: Mapping[str, Any]) -> None:
    """Like probe."""
    try:
        connection = await psycopg.AsyncConnection.connect(dsn, **options)
    except psycopg.OperationalError as error:
        raise connect_error(dsn, error) from error
    await connection.close()


def none_free(seconds: float, pool_size: int) -> CannotConnect:
    """The database answers, but every connection of a client is in use."""
    return CannotConnect(
        f"no connection became free within {seconds:g} s",
        detail=f"All {pool_size} connections of this client are in use.",
        hint="Give the client a larger pool_size, or let fewer threads or tasks share it.",
    )


def connect_error(dsn: str, error: psycopg.OperationalError) -> CannotConnect:
    """Which database, why, and what to do."""
    reason = _without_password(dsn, str(error).strip())
    return CannotConnect(
        f"could not connect to {describe(dsn)}",
        # libpq indents its own questions ("Is the server running …?") on a line of their own.
        detail=" ".join(reason.removeprefix("connection failed: ").split()),
        hint=_hint(reason),
    )


def is_refusal(error: psycopg.OperationalError) -> bool:
    """Whether the server answered and did not let us in: wrong user or password, or no rule for us."""
    # libpq keeps no SQLSTATE of a failed start; a server that speaks another language is asked again and again.
    return _refuses(str(error).lower())


def _refuses(text: str) -> bool:
    return "password" in text or "authentication" in text or 'role "' in text or "pg_hba" in text


def _hint(reason: str) -> str:
    text = reason.lower()
    if _refuses(text):
        return "Check user and password in the DSN (ONCEWARD_DSN, --dsn), PGPASSWORD or the file ~/.pgpass."
    if 'database "' in text and "does not exist" in text:
        return 'Create the database with "createdb", or name another one in the DSN (ONCEWARD_DSN, --dsn).'
    if any(words in text for words in ("translate host name", "resolve", "name or service", "nodename")):
        return "Check the host name in the DSN (ONCEWARD_DSN, --dsn) or PGHOST."
    if "too many" in text or "remaining connection slots" in text:
        return "Raise max_connections, or connect through a pooler."
    return "Start the server, or correct host and port in the DSN (ONCEWARD_DSN, --dsn) or the PG* variables."


def describe(dsn: str) -> str:
    """`database "shop" on db.example.com:5432 as "app"`, with what is known."""
    given = conninfo_to_dict(dsn)
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = given.get("port") or os.environ.get("PGPORT") or "5432"
    user = given.get("user") or os.environ.get("PGUSER")
    database = given.get("dbname") or os.environ.get("PGDATABASE") or user
    text = f'database "{database}" on ' if database else "the database on "
    text += f"{host}:{port}"
    return text + (f' as "{user}"' if user else "")


def in_full(dsn: str) -> str:
    """A DSN that means the same in another program: what the PG* variables say is written out."""
    if dsn:
        return dsn
    said = {
        option.keyword.decode(): option.val.decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.val and os.environ.get(option.envvar.decode())
    }
    return _written(said)


def masked(dsn: str) -> str:
    """The DSN to look at: the password is not in it."""
    given = conninfo_to_dict(dsn)
    secrets = {name: MASK for name in ("password", "sslpassword") if given.get(name)}
    if not secrets:
        return dsn
    if "://" in dsn:
        hidden = _IN_URI.sub(lambda match: f"{match[1]}:{MASK}" if match[1] is not None else MASK, dsn)
        if conninfo_to_dict(hidden) == {**given, **secrets}:
            return hidden
    return _written({**given, **secrets})


def _written(parts: Mapping[str, Any]) -> str:
    """Key=value text, what names the database first."""
    first = [name for name in _FIRST if name in parts]
    return make_conninfo(**{name: parts[name] for name in [*first, *sorted(set(parts) - set(first))]})


def _without_password(dsn: str, text: str) -> str:
    """Hidden where a DSN or a setting stands, whatever it is; elsewhere where it cannot be a word of the sentence."""
    text = _SETTING.sub(MASK, _LOGIN.sub(lambda match: f"{match[1]}:{MASK}", text))
    for secret in (conninfo_to_dict(dsn).get("password"), os.environ.get("PGPASSWORD")):
        if secret and len(str(secret)) >= SHORTEST_SECRET:
            text = re.sub(rf"(?<!\w){re.escape(str(secret))}(?!\w)", MASK, text)
    return text
