"""The filter of a list, as it stands in the address."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from starlette.datastructures import QueryParams
from starlette.requests import Request

from onceward.errors import InvalidArgument, shown
from onceward.model import DELIVERY_KINDS, DELIVERY_STATES, STATES, DeliveryFilter, JobFilter

PAGE = 50
_BACK = re.compile(r"^(\d{1,6})\s*(s|m|min|h|d)$")
_UNIT = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Query:
    """What was asked for, and addresses that ask for a little more or less."""

    path: str
    given: QueryParams

    def text(self, name: str) -> str | None:
        value = self.given.get(name, "").strip()
        if "\x00" in value:
            raise InvalidArgument(f"{name} must not contain NUL characters")
        return value[:500] or None

    def many(self, name: str, known: Sequence[str]) -> list[str]:
        """Repeated or separated by commas."""
        values = [
            part.strip() for value in self.given.getlist(name) for part in value.split(",") if part.strip()
        ]
        for value in values:
            if value not in known:
                raise InvalidArgument(
                    f"{name} must be one of {', '.join(known)}, got {shown(value)!r}",
                    hint="Correct the address.",
                )
        return values

    def uuid(self, name: str) -> UUID | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return UUID(value)
        except ValueError:
            raise InvalidArgument(
                f"{name} must be an id, got {shown(value)!r}", hint="Correct the address."
            ) from None

    def whole(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", value):
            raise InvalidArgument(
                f"{name} must be a whole number, got {shown(value)!r}", hint="Correct the address."
            )
        return int(value)

    def moment(self, name: str, now: datetime) -> datetime | None:
        """ISO 8601 (UTC when it has no zone), or a duration back, as 2h."""
        value = self.text(name)
        if value is None:
            return None
        if back := _BACK.match(value):
            return now - timedelta(**{_UNIT[back[2]]: int(back[1])})
        try:
            read = datetime.fromisoformat(value)
            return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            raise InvalidArgument(
                f"{name} must be a time, got {shown(value)!r}",
                hint="Write it as 2026-11-16T08:00, or as 2h for two hours ago.",
            ) from None

    def with_(self, **changes: Any) -> str:
        """The address with other values; None takes one out.  A change of the filter starts from the first page."""
        changes = {"before": None, "after": None, **changes}
        kept = [(name, value) for name, value in self.given.multi_items() if name not in changes and value]
        added = [
            (name, str(value))
            for name, values in changes.items()
            if values is not None
            for value in (values if isinstance(values, list) else [values])
        ]
        pairs = [*kept, *added]
        return self.path + ("?" + urlencode(pairs) if pairs else "")

    def toggled(self, name: str, value: str) -> str:
        """With the value among those of this name, or without it when it is there."""
        values = [part for given in self.given.getlist(name) for part in given.split(",") if part]
        changed = [other for other in values if other != value] if value in values else [*values, value]
        return self.with_(**{name: changed or None})

    @property
    def suffix(self) -> str:
        """What follows the path, for the same filter elsewhere."""
        return self.with_().removeprefix(self.path)

    @property
    def is_filtered(self) -> bool:
        return any(
            value for name, value in self.given.multi_items() if name not in {"before", "after", "sort"}
        )


def query_of(request: Request, path: str | None = None) -> Query:
    return Query(path or request.url.path, request.query_params)


def job_filter(query: Query, now: datetime, *, limit: int = PAGE) -> JobFilter:
    return JobFilter(
        states=query.many("state", STATES),
        lane=query.text("lane"),
        task=query.text("task"),
        tenant=query.text("tenant"),
        key=query.text("key"),
        error=query.text("error"),
        fingerprint=query.text("fingerprint"),
        since=query.moment("since", now),
        until=query.moment("until", now),
        limit=limit,
        before=query.uuid("before"),
    )


def delivery_filter(query: Query, *, limit: int = PAGE) -> DeliveryFilter:
    kinds = query.many("kind", DELIVERY_KINDS)
    return DeliveryFilter(
        states=query.many("state", DELIVERY_STATES),
        kind=kinds[0] if kinds else None,
        key=query.text("key"),
        tenant=query.text("tenant"),
        limit=limit,
        before=query.uuid("before"),
    )
