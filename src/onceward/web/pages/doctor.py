"""Doctor: what could lose work, slow it down, or keep it from running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeVar

import psycopg
from psycopg.types.json import set_json_loads
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls, connecting, contrib, doctor, doctor_calls, jsonsafe
from onceward.calls import Call
from onceward.doctor import Finding
from onceward.doctor_calls import Reach
from onceward.web import layout, tables
from onceward.web.context import identity_of, web_of

T = TypeVar("T")
_WORST_FIRST = {"fail": 0, "warn": 1, "ok": 2}


class Look:
    """A connection of its own for one examination: doctor waits for a second one, to learn about poolers."""

    def __init__(self, dsn: str, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.conninfo = dsn
        self.connection = connection

    @cached_property
    def reach(self) -> Reach:
        return self.run(doctor_calls.reach())

    def run(self, call: Call[T]) -> T:
        with self.connection.transaction():
            contrib.run(self.connection, calls.set_tenant("*"))
            return contrib.run(self.connection, call)


@contextlib.contextmanager
def _looking(dsn: str) -> Iterator[Look]:
    options = {"autocommit": True, "prepare_threshold": None, "application_name": "onceward web doctor"}
    with connecting.connect(dsn, connect_timeout=10, **options) as connection:
        set_json_loads(jsonsafe.loads_to_show, connection)
        yield Look(dsn, connection)


def _examine(dsn: str) -> list[Finding]:
    with _looking(dsn) as look:
        return sorted(doctor.examine(look), key=lambda finding: _WORST_FIRST[finding.status])


def _check_sees_all(request: Request) -> None:
    """It tells of the server as a whole: other sessions, other tenants' counts."""
    if identity_of(request).tenant is not None:
        raise HTTPException(403, "the doctor looks at the whole server, and you are bound to one tenant")


async def as_csv(request: Request) -> Response:
    _check_sees_all(request)
    findings = await asyncio.to_thread(_examine, web_of(request).database.dsn)
    return tables.csv_of("doctor", Finding, findings)


async def show(request: Request) -> Response:
    _check_sees_all(request)
    web = web_of(request)
    async with web.database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
    findings = await asyncio.to_thread(_examine, web.database.dsn)
    return layout.render(
        request, "pages/doctor.html", shown,
        findings=findings, failed=sum(finding.status == "fail" for finding in findings),
        warned=sum(finding.status == "warn" for finding in findings),
    )  # fmt: skip


ROUTES = [Route("/doctor", show), Route("/doctor.csv", as_csv)]
