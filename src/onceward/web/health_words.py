"""Is it well?  The first line of the overview: one sentence, and what is wrong with the way to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from onceward.model import LaneInfo, WorkerInfo
from onceward.model_limits import LimitInfo
from onceward.model_monitors import AlertInfo
from onceward.web import words

# Jobs that wait longer than this have nobody who keeps up with them.
TOO_LONG = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that needs a person: `tone` is bad when work stands still, and attention otherwise."""

    tone: str
    text: str
    link: str
    action: str


@dataclass(frozen=True, slots=True)
class Health:
    tone: str
    text: str
    troubles: list[Trouble]


@dataclass(frozen=True, slots=True)
class Seen:
    """What is looked at.  `alerts` are those that nobody looks after, the worst first."""

    lanes: Sequence[LaneInfo]
    workers: Sequence[WorkerInfo]
    uncertain: int = 0
    limits: Sequence[LimitInfo] = ()
    alerts: Sequence[AlertInfo] = ()


def judge(seen: Seen, now: datetime, *, done: int, about: bool) -> Health:
    lanes = seen.lanes
    troubles = [
        *_alerting(seen.alerts),
        *_standing_still(lanes, seen.workers, now),
        *_waiting_for_people(lanes, seen.uncertain),
        *_paused_limits(seen.limits, now),
    ]
    # What stands still comes first.
    troubles.sort(key=lambda trouble: trouble.tone != "bad")
    hour = f"{'about ' if about else ''}{words.counted(done, 'job')} in the last hour"
    if not troubles:
        waits = [now - lane.oldest_ready_at for lane in lanes if lane.oldest_ready_at]
        longest = max([*waits, timedelta(0)])
        waiting = (
            f"none waiting longer than {words.span(longest)}" if longest > timedelta(0) else "none waiting"
        )
        return Health("good", f"All well. {hour[0].upper()}{hour[1:]}, {waiting}.", [])
    tone = "bad" if any(trouble.tone == "bad" for trouble in troubles) else "attention"
    return Health(tone, f"{troubles[0].text} {hour[0].upper()}{hour[1:]}.", troubles)


def _standing_still(lanes: Sequence[LaneInfo], workers: Sequence[WorkerInfo], now: datetime) -> list[Trouble]:
    live = [worker for worker in workers if worker.state == "live"]
    served = {lane for worker in live for lane in worker.lanes}
    found = []
    ready = sum(lane.ready for lane in lanes if not lane.paused)
    if ready and not live:
        text = f"Nobody is working: {words.counted(ready, 'job')} ready, and no worker is live."
        found.append(Trouble("bad", text, "/workers", "See workers"))
    for lane in lanes:
        if not lane.ready or lane.paused or lane.oldest_ready_at is None:
            continue
        age = now - lane.oldest_ready_at
        if live and lane.name not in served:
            text = f"No live worker serves lane {lane.name}, where {words.counted(lane.ready, 'job')} wait."
            found.append(Trouble("bad", text, "/lanes", "See lanes"))
        elif live and age > TOO_LONG:
            text = f"Lane {lane.name} falls behind: its oldest job has waited {words.span(age)}."
            found.append(Trouble("bad", text, f"/jobs?state=ready&lane={lane.name}", "See jobs"))
    expired = [worker for worker in workers if worker.state == "expired"]
    if expired:
        text = f"{words.counted(len(expired), 'worker')} stopped without notice; live ones take over."
        found.append(Trouble("attention", text, "/workers", "See workers"))
    return found


def _alerting(alerts: Sequence[AlertInfo]) -> list[Trouble]:
    return [
        Trouble(
            "bad" if alert.severity == "critical" else "attention",
            alert.summary if alert.summary.endswith((".", "!", "?")) else f"{alert.summary}.",
            f"/alerts/{alert.id}",
            "Look after it",
        )
        for alert in alerts
        if alert.severity != "info" and alert.silenced_until is None
    ]


def _paused_limits(limits: Sequence[LimitInfo], now: datetime) -> list[Trouble]:
    paused = {info.name: info for info in limits if info.paused_until and info.paused_until > now}
    return [
        Trouble(
            "attention",
            f"Limit {name} is paused for another {words.span(info.paused_until - now)}: "
            f"{(info.reason or '').removeprefix('paused').removeprefix(': ') or 'no reason was given'}.",
            f"/limits/of/{quote(name)}",
            "See limit",
        )
        for name, info in paused.items()
        if info.paused_until is not None
    ]


def _waiting_for_people(lanes: Sequence[LaneInfo], uncertain: int) -> list[Trouble]:
    found = []
    if dead := sum(lane.dead_letter for lane in lanes):
        text = f"{words.counted(dead, 'dead letter')} {'waits' if dead == 1 else 'wait'} for a person."
        found.append(Trouble("attention", text, "/dead-letters", "Decide"))
    if uncertain:
        text = f"{words.counted(uncertain, 'delivery', 'deliveries')} may or may not have arrived."
        found.append(Trouble("attention", text, "/deliveries?state=uncertain", "Decide"))
    for lane in lanes:
        if lane.paused:
            waiting = f", {words.counted(lane.ready, 'job')} waiting" if lane.ready else ""
            by = f" by {lane.paused_by}" if lane.paused_by else ""
            found.append(
                Trouble("attention", f"Lane {lane.name} is paused{by}{waiting}.", "/lanes", "See lanes")
            )
    return found
