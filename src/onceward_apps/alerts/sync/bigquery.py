"""A table or view of BigQuery, read in the order of its change by pages of (time, key).

Needs the extra `bigquery`.  Credentials are the library's: a service account of the environment, or
BIGQUERY_EMULATOR_HOST for a server that asks for none.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, Self

from pydantic import Field, model_validator

from onceward.errors import RateLimited, shown
from onceward_apps.alerts.sync import values
from onceward_apps.alerts.sync.model import Cursor, Misconfigured, Page, Refused, Row, Unavailable
from onceward_apps.alerts.sync.passes import Pass
from onceward_apps.alerts.sync.targets import Settings

_PART = r"[A-Za-z_][A-Za-z0-9_]{0,299}"
_KINDS = {
    **dict.fromkeys(("INTEGER", "INT64", "FLOAT", "FLOAT64", "NUMERIC", "BIGNUMERIC"), "number"),
    **dict.fromkeys(("BOOLEAN", "BOOL"), "boolean"),
    **dict.fromkeys(("TIMESTAMP", "DATETIME", "DATE"), "timestamp"),
    **dict.fromkeys(("RECORD", "STRUCT", "JSON"), "json"),
    "BYTES": "binary",
    "STRING": "text",
}
SECONDS = 60.0


class BigQuerySettings(Settings):
    project: str = Field(pattern=r"^[a-z][a-z0-9:.-]{4,60}$")
    table: str = Field(pattern=rf"^[A-Za-z0-9_]{{1,1024}}\.{_PART}$", description="dataset.table")
    # A column that tells rows of the same time apart.
    key: str = Field(pattern=f"^{_PART}$")
    # The type of the column by which rows are read in order.
    changed_type: Literal["TIMESTAMP", "DATETIME", "DATE"] = "TIMESTAMP"
    location: str | None = None
    # A query that would read more is refused before it costs anything.
    most_bytes_billed: int = Field(default=10 * 1024**3, ge=1)
    page_size: int = Field(default=1000, ge=1, le=10_000)
    overlap: timedelta = timedelta(minutes=90)

    @model_validator(mode="after")
    def _changed_is_a_name(self) -> BigQuerySettings:
        # It stands in the statement.
        if not re.fullmatch(_PART, self.changed):
            raise ValueError(f"the column by which rows are read must be a name, got {shown(self.changed)!r}")
        return self


@dataclass(frozen=True, slots=True)
class Answer:
    rows: Sequence[Mapping[str, Any]]
    # Column → type, in BigQuery's words.
    columns: Mapping[str, str]


class Warehouse(Protocol):
    """What is needed of BigQuery."""

    def query(self, sql: str, parameters: Mapping[str, tuple[str, Any]]) -> Answer: ...

    def close(self) -> None: ...


class BigQuery:
    """One source during one run."""

    def __init__(self, settings: BigQuerySettings, warehouse: Warehouse, *, now: datetime) -> None:
        self._settings = settings
        self._warehouse = warehouse
        self._now = now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await asyncio.to_thread(self._warehouse.close)

    async def fetch(self, cursor: Cursor) -> Page:
        at = Pass.of(cursor)
        sql, parameters = statement(self._settings, at)
        answer = await asyncio.to_thread(self._warehouse.query, sql, parameters)
        settings = self._settings
        rows = [Row(f"row with {settings.key} {row.get(settings.key)!r:.100}", row) for row in answer.rows]
        at = at.seen(row.get(settings.changed) for row in answer.rows)
        more = len(rows) >= settings.page_size
        if more:
            last = answer.rows[-1]
            following = {
                "at": values.timestamp(last[settings.changed]).isoformat(),
                "key": values.text(last[settings.key]),
            }
            cursor = at.goes_on(following)
        else:
            cursor = at.ended(self._now)
        kinds = {name: _KINDS.get(kind, kind.lower()) for name, kind in answer.columns.items()}
        return Page(rows, kinds, declared=True, cursor=cursor, more=more)


def statement(settings: BigQuerySettings, at: Pass) -> tuple[str, dict[str, tuple[str, Any]]]:
    """The page after this place: rows of the same time are told apart by their key, so none is skipped at its edge."""
    changed, key = f"`{settings.changed}`", f"cast(`{settings.key}` as string)"
    kind = settings.changed_type
    conditions = [f"{changed} is not null"]
    parameters: dict[str, tuple[str, Any]] = {"page_size": ("INT64", settings.page_size)}
    begins = at.begins(settings.overlap)
    if begins is not None:
        conditions.append(f"{changed} >= @since")
        parameters["since"] = (kind, _as(kind, begins))
    if at.next is not None:
        conditions.append(f"({changed} > @at or ({changed} = @at and {key} > @key))")
        parameters["at"] = (kind, _as(kind, datetime.fromisoformat(at.next["at"])))
        parameters["key"] = ("STRING", at.next["key"])
    sql = (
        f"select * from `{settings.project}.{settings.table}` where {' and '.join(conditions)} "  # noqa: S608 - names are checked
        f"order by {changed}, {key} limit @page_size"
    )
    return sql, parameters


def _as(kind: str, moment: datetime) -> Any:
    match kind:
        case "DATE":
            return moment.astimezone(UTC).date()
        case "DATETIME":
            return moment.astimezone(UTC).replace(tzinfo=None)
        case _:
            return moment


class GoogleWarehouse:
    """By the library google-cloud-bigquery.  Its own retries are off: ours are seen, counted and told."""

    def __init__(self, settings: BigQuerySettings) -> None:
        try:
            from google.api_core import exceptions
            from google.auth.credentials import AnonymousCredentials
            from google.auth.exceptions import GoogleAuthError
            from google.cloud import bigquery
        except ImportError:
            raise Misconfigured(
                "BigQuery needs the package google-cloud-bigquery",
                hint='Install it with pip install "onceward[bigquery]".',
            ) from None
        self._bigquery: Any = bigquery
        self._exceptions: Any = exceptions
        self._auth_error: Any = GoogleAuthError
        self._settings = settings
        anonymous: Any = AnonymousCredentials
        credentials = anonymous() if os.environ.get("BIGQUERY_EMULATOR_HOST") else None
        try:
            self._client: Any = self._bigquery.Client(
                project=settings.project, credentials=credentials, location=settings.location
            )
        except GoogleAuthError as error:
            raise Misconfigured(
                "BigQuery has no credentials",
                detail=f"{error!s:.300}",
                hint="Set GOOGLE_APPLICATION_CREDENTIALS.",
            ) from None

    def query(self, sql: str, parameters: Mapping[str, tuple[str, Any]]) -> Answer:
        bigquery, exceptions = self._bigquery, self._exceptions
        config = bigquery.QueryJobConfig(
            maximum_bytes_billed=self._settings.most_bytes_billed,
            query_parameters=[
                bigquery.ScalarQueryParameter(name, kind, value) for name, (kind, value) in parameters.items()
            ],
        )
        try:
            found = self._client.query_and_wait(
                sql, job_config=config, api_timeout=SECONDS, wait_timeout=SECONDS, retry=None, job_retry=None
            )
            rows = [dict(row.items()) for row in found]
        except exceptions.TooManyRequests:
            raise RateLimited("BigQuery asks to wait (HTTP 429)") from None
        except (exceptions.ServerError, exceptions.RetryError, ConnectionError, TimeoutError) as error:
            raise Unavailable(f"BigQuery does not answer: {type(error).__name__}") from None
        except exceptions.GoogleAPICallError as error:
            if "rateLimitExceeded" in str(error.errors) or "quotaExceeded" in str(error.errors):
                raise RateLimited("BigQuery asks to wait: its quota is used up") from None
            raise Refused(f"BigQuery refuses the query: {error.message!s:.300}") from None
        except self._auth_error as error:
            raise Refused(f"BigQuery does not know us: {error!s:.300}") from None
        repeated = {field.name for field in found.schema if field.mode == "REPEATED"}
        return Answer(
            rows,
            {field.name: "JSON" if field.name in repeated else field.field_type for field in found.schema},
        )

    def close(self) -> None:
        self._client.close()
