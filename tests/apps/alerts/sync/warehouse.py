"""BigQuery's REST API on a real socket, as far as one statement needs it: jobs.query over one table in memory.

The conditions of the statement are evaluated from its text and its parameters, so that a statement which asks for the wrong
rows gets the wrong rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

from tests.apps.alerts.sync.shop import Answer, Server

STATEMENT = re.compile(
    r"select \* from `(?P<table>[^`]+)` where `(?P<changed>\w+)` is not null"
    r"(?P<since> and `\w+` >= @since)?"
    r"(?P<after> and \(`\w+` > @at or \(`\w+` = @at and cast\(`\w+` as string\) > @key\)\))?"
    r" order by `(?P<order>\w+)`, cast\(`(?P<key>\w+)` as string\) limit @page_size"
)


class BigQueryServer(Server):
    def __init__(self) -> None:
        super().__init__()
        self.schema: dict[str, str] = {}
        self.rows: list[dict[str, Any]] = []
        self.queries: list[dict[str, Any]] = []
        self.trouble: Callable[[int], Answer | None] = lambda number: None

    def answer(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        assert (method, path.partition("?")[0]) == ("POST", "/bigquery/v2/projects/acme-data/queries"), (
            method,
            path,
        )
        asked = json.loads(body)
        self.queries.append(asked)
        trouble = self.trouble(len(self.queries))
        if trouble is not None:
            return trouble
        assert asked["maximumBytesBilled"], "a query without a bound on its cost"
        parameters = {one["name"]: _parameter(one) for one in asked["queryParameters"]}
        statement = STATEMENT.fullmatch(asked["query"])
        assert statement is not None, asked["query"]
        found = self._found(statement, parameters)
        answer = {
            "kind": "bigquery#queryResponse",
            "jobComplete": True,
            "jobReference": {"projectId": "acme-data", "jobId": f"job{len(self.queries)}", "location": "EU"},
            "totalRows": str(len(found)),
            "schema": {
                "fields": [
                    {"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in self.schema.items()
                ]
            },
            "rows": [{"f": [{"v": _cell(row.get(name))} for name in self.schema]} for row in found],
        }
        return 200, {"content-type": "application/json"}, json.dumps(answer).encode()

    def _found(self, statement: re.Match[str], parameters: dict[str, Any]) -> list[dict[str, Any]]:
        assert statement["table"] == "acme-data.sales.orders"
        changed, key = statement["changed"], statement["key"]
        assert statement["order"] == changed
        found = [row for row in self.rows if row[changed] is not None]
        if statement["since"]:
            found = [row for row in found if row[changed] >= parameters["since"]]
        if statement["after"]:
            place = (parameters["at"], parameters["key"])
            found = [row for row in found if (row[changed], str(row[key])) > place]
        found.sort(key=lambda row: (row[changed], str(row[key])))
        return found[: parameters["page_size"]]


def _parameter(given: dict[str, Any]) -> Any:
    kind, value = given["parameterType"]["type"], given["parameterValue"]["value"]
    match kind:
        case "TIMESTAMP":
            return datetime.fromisoformat(value.replace(" UTC", "+00:00")).astimezone(UTC)
        case "DATETIME":
            return datetime.fromisoformat(value)
        case "DATE":
            return date.fromisoformat(value)
        case "INT64":
            return int(value)
        case _:
            return value


def _cell(value: Any) -> Any:
    match value:
        case None:
            return None
        case datetime() if value.tzinfo:
            # Microseconds since 1970, as the library asks for.
            return str(round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000))
        case date():
            return value.isoformat()
        case bool():
            return str(value).lower()
        case _:
            return str(value)
