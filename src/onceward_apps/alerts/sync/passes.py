"""Passes over a source that can be asked for what has changed since: the cursor of HTTP APIs and of BigQuery.

    since   up to where everything is read; the next pass begins `overlap` before it, for rows that became visible late
    high    the latest time of this pass
    next    where its next page begins, in the source's words; none between passes

`since` moves only when a pass has come to its end, so that one which is cut off for good begins again and loses nothing.
Rows that are read twice change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from onceward_apps.alerts.sync import values
from onceward_apps.alerts.sync.model import Cursor


@dataclass(frozen=True, slots=True)
class Pass:
    since: datetime | None = None
    high: datetime | None = None
    next: Any = None

    @classmethod
    def of(cls, cursor: Cursor) -> Pass:
        found = cursor or {}
        return cls(_time(found.get("since")), _time(found.get("high")), found.get("next"))

    def begins(self, overlap: timedelta) -> datetime | None:
        """From when on rows are asked for; None: from the first one."""
        if self.since is None:
            return None
        try:
            return self.since - overlap
        except OverflowError:
            return None

    def restarted(self) -> Pass:
        return replace(self, high=None, next=None)

    def seen(self, times: Iterable[object]) -> Pass:
        """After rows with these times of change."""
        latest = self.high
        for value in times:
            try:
                moment = values.timestamp(value)
            except values.Unfit:
                # The row is refused where its fields are read.
                continue
            latest = moment if latest is None or moment > latest else latest
        return replace(self, high=latest)

    def goes_on(self, following: Any) -> Cursor:
        return _plain(replace(self, next=following))

    def ended(self, now: datetime) -> Cursor:
        """A row from the future must not hide what happens until then."""
        found = [moment for moment in (self.since, min(self.high, now) if self.high else None) if moment]
        return _plain(Pass(since=max(found, default=None)))


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _plain(at: Pass) -> Cursor:
    written: dict[str, Any] = {}
    if at.since is not None:
        written["since"] = at.since.isoformat()
    if at.high is not None:
        written["high"] = at.high.isoformat()
    if at.next is not None:
        written["next"] = at.next
    return written
