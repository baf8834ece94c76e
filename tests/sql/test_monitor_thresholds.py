"""Every threshold of every built-in monitor: what trips it, and what closes the alert, on the virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.ledger import Ledger
from tests.support.limits import fill, limit
from tests.support.watch import Watch


@dataclass
class Case:
    """Which threshold, its value here, and what brings the condition about and ends it.

    With the condition and the value the monitor fires; with the value one step beyond, it does not.
    """

    monitor: str
    threshold: str
    value: float
    # A value at which the same condition does not fire.
    beyond: float | None
    trip: Callable[[Any], None]
    end: Callable[[Any], None]
    key: str
    severity: str
    # Other thresholds that the case needs.
    given: dict[str, float | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.monitor}.{self.threshold}"


def waits(seconds: int):
    def trip(db):
        db.enqueue()
        db.clock.advance(f"{seconds} s")

    return trip


def worked_off(db):
    while claims := db.claims(10):
        db.exchange(claims)


def dies(count: int = 1):
    """Jobs of a worker whose lease has run out, and nobody rescues."""

    def trip(db):
        for _ in range(count):
            db.enqueue()
        db.worker("mortal", lease="30 s")
        db.claims(count, worker="mortal")
        db.clock.advance("3 minutes")

    return trip


def runs_past_its_timeout(db):
    db.running(timeout="30 s")
    db.clock.advance("3 minutes")


def rescued(db):
    db.rescue()


def rescued_jobs(count: int):
    def trip(db):
        dies(count)(db)
        rescued(db)

    return trip


def later(span: str):
    return lambda db: db.clock.advance(span)


def dead_letters(count: int):
    def trip(db):
        for _ in range(count):
            db.dead_letter("ocr", message="it broke")

    return trip


def requeued(db):
    for row in db.run("select id from onceward.dead_letters"):
        db.requeue(row.id)


def half_done(count: int):
    def trip(db):
        for _ in range(count):
            claim = db.running("ship")
            db.finish_step(claim)
            db.fail(claim, permanent=True)

    return trip


def ends(done: int, dead: int):
    def trip(db):
        for _ in range(done):
            db.done()
        dead_letters(dead)(db)

    return trip


def attempts(done: int, failed: int):
    def trip(db):
        for _ in range(failed):
            db.fail(db.running())
        for _ in range(done):
            db.done()

    return trip


def ten_minutes_ago(trip):
    def and_wait(db):
        trip(db)
        db.clock.advance("10 minutes")

    return and_wait


def many_done(db):
    for _ in range(200):
        db.enqueue()
    for claim in db.claims(1000):
        db.complete(claim)
    db.clock.advance("6 minutes")
    Watch(db).run("failure_rate")
    Watch(db).run("retry_rate")
    db.clock.advance("6 minutes")


def runs(seconds: int):
    def trip(db):
        db.running("report")
        db.clock.advance(f"{seconds} s")

    return trip


def ended(db):
    for row in db.run("select id, epoch from onceward.jobs where state = 'running'"):
        db.call("complete", job_id=row.id, epoch=row.epoch)


def misses(hours: int):
    def trip(db):
        db.call("add_schedule", name="hourly", task="report", spec="1 hour", overlap="allow")
        db.clock.advance(f"{hours} hours")
        db.call("tick")

    return trip


def nobody_ticks(db):
    db.call("add_schedule", name="often", task="report", spec="1 minute", missed="none")
    db.clock.advance("11 minutes")


def ticked(db):
    db.call("tick")


def undelivered(count: int):
    def trip(db):
        for n in range(count):
            Ledger(db).deliver(key=f"k{n}")
        # For later: not late.
        Ledger(db).deliver(key="later", run_at=db.now().replace(year=db.now().year + 1))
        db.clock.advance("20 minutes")

    return trip


def delivered(db):
    ledger = Ledger(db)
    for claim in db.claims(100, lanes=["deliveries"]):
        ledger.begin(claim)
        ledger.settle(claim, "sent")


def bad_deliveries(outcome: str, count: int):
    def trip(db):
        ledger = Ledger(db)
        for n in range(count):
            claim = ledger.begun(key=f"k{n}")
            ledger.settle(claim, outcome)

    return trip


def decided(db):
    for row in db.run("select id from onceward.deliveries where state = 'uncertain'"):
        Ledger(db).decide(row.id, "sent")


def resolved(db):
    for row in db.run("select id from onceward.dead_letters"):
        db.resolve(row.id)


def a_worker_comes(db):
    db.worker("new")


def lost_workers(count: int):
    def trip(db):
        for n in range(count):
            db.worker(f"w{n}", lease="30 s")
        db.clock.advance("1 minute")
        db.rescue()

    return trip


def open_transaction(seconds: int):
    def trip(db):
        db.pinning = db.connect(autocommit=False)
        db.pinning.execute("select txid_current()")
        db.clock.pin(db.value("select clock_timestamp()"))
        db.clock.advance(f"{seconds} s")

    return trip


def rolled_back(db):
    db.pinning.rollback()


def dead_rows(count: int):
    def trip(db):
        db.run("alter table onceward.job_private set (autovacuum_enabled = false)")
        db.enqueue_many(payloads=[{}] * (count + 10))
        for claim in db.claims(count):
            db.complete(claim)
        db.run("select pg_stat_force_next_flush()")
        assert (
            db.value(
                "select n_dead_tup from pg_stat_all_tables where relid = 'onceward.job_private'::regclass"
            )
            >= count
        )

    return trip


def vacuumed(db):
    db.run("vacuum onceward.job_private")


def grown(db):
    Watch(db).run("disk")
    db.clock.advance("2 hours")
    db.run(
        "create table grown as select repeat(md5(n::text), 30) as filler from generate_series(1, 20000) as n"
    )


def no_longer_growing(db):
    db.run("drop table if exists grown")
    Watch(db).run("disk")
    db.clock.advance("26 hours")
    Watch(db).run("disk")
    db.clock.advance("2 hours")


def nothing(db):
    pass


def starves(seconds: int):
    """A limit of which everything is taken, for longer than it takes to wait."""

    def trip(db):
        limit(db, requests=1, period="1 day")
        fill(db, 2)
        db.claim()
        db.clock.advance(f"{seconds} s")

    return trip


def fed(db):
    limit(db, requests=1000, period="1 s")


def paused(seconds: int):
    """By refusals, one after the other: no single pause is long."""

    def trip(db):
        limit(db, requests=1000)
        db.call("pause_limit", limit="api", **{"for": "1 minute"})
        Watch(db).run("limit_starvation")
        db.clock.advance(f"{seconds} s")
        db.call("pause_limit", limit="api", **{"for": "1 minute"})

    return trip


def open_again(db):
    db.call("resume_limit", limit="api")


def unsealed(seconds: int):
    def trip(db):
        db.call("record_event", kind="note")
        db.clock.advance(f"{seconds} s")

    return trip


def sealed(db):
    assert db.call("seal")[0].entries > 0


def unknown_python_monitor(seconds: int):
    def trip(db):
        db.run("""select onceward.declare_monitors('shop', '[{"name": "stock"}]')""")
        db.clock.advance(f"{seconds} s")

    return trip


def run_by_somebody(db):
    for run in db.call("begin_checks", python=["stock"], limit=100):
        if run.monitor == "stock":
            db.call("finish_check", run_id=run.run_id, findings=_none())


def _none():
    from psycopg.types.json import Jsonb

    return Jsonb([])


W, C = "warning", "critical"
OCR = "ocr"
CASES = [
    Case("ready_age", "warning_age", 300, 301, waits(300), worked_off, "default", W),
    Case("ready_age", "critical_age", 1800, 1801, waits(1800), worked_off, "default", C, {"warning_age": None}),
    Case("stuck", "warning_count", 2, 3, dies(2), rescued, OCR, W),
    Case("stuck", "critical_count", 2, 3, dies(2), rescued, OCR, C, {"warning_count": None}),
    Case("stuck", "late", 120, 200, dies(), rescued, OCR, W),
    Case("stuck", "late", 120, 200, runs_past_its_timeout, rescued, OCR, W),
    Case("rescued", "warning_count", 3, 4, rescued_jobs(3), later("61 minutes"), OCR, W),
    Case("rescued", "critical_count", 3, 4, rescued_jobs(3), later("61 minutes"), OCR, C, {"warning_count": None}),
    Case("rescued", "window", 3600, 0, rescued_jobs(3), later("61 minutes"), OCR, W, {"warning_count": 3}),
    Case("dead_letters", "warning_count", 2, 3, dead_letters(2), requeued, "*", W),
    Case("dead_letters", "critical_count", 2, 3, dead_letters(2), requeued, "*", C, {"warning_count": None}),
    Case("partial_completions", "warning_count", 2, 3, half_done(2), requeued, "ship", W),
    Case("partial_completions", "critical_count", 2, 3, half_done(2), requeued, "ship", C, {"warning_count": None}),
    Case("failure_rate", "warning_share", 0.1, 0.11, ends(18, 2), many_done, OCR, W),
    Case("failure_rate", "critical_share", 0.1, 0.11, ends(18, 2), many_done, OCR, C, {"warning_share": None}),
    Case("failure_rate", "least_jobs", 20, 21, ends(18, 2), many_done, OCR, W),
    Case("failure_rate", "window", 3600, 60, ten_minutes_ago(ends(18, 2)), many_done, OCR, W),
    Case("retry_rate", "warning_share", 0.4, 0.41, attempts(12, 8), many_done, OCR, W),
    Case("retry_rate", "critical_share", 0.4, 0.41, attempts(12, 8), many_done, OCR, C, {"warning_share": None}),
    Case("retry_rate", "least_attempts", 20, 21, attempts(12, 8), many_done, OCR, W),
    Case("retry_rate", "window", 3600, 60, ten_minutes_ago(attempts(12, 8)), many_done, OCR, W),
    Case("long_running", "warning_age", 3600, 3601, runs(3600), ended, "report", W),
    Case("long_running", "critical_age", 3600, 3601, runs(3600), ended, "report", C, {"warning_age": None}),
    Case("missed_ticks", "warning_slots", 2, 3, misses(3), later("61 minutes"), "hourly", W, {"late": None}),
    Case("missed_ticks", "critical_slots", 2, 3, misses(3), later("61 minutes"), "hourly", C,
         {"warning_slots": None, "late": None}),
    Case("missed_ticks", "window", 3600, 0, misses(3), later("61 minutes"), "hourly", W, {"late": None}),
    Case("missed_ticks", "late", 300, 900, nobody_ticks, ticked, "overdue: often", C, {"warning_slots": None}),
    Case("delivery_backlog", "warning_count", 2, 3, undelivered(2), delivered, "email", W),
    Case("delivery_backlog", "critical_count", 2, 3, undelivered(2), delivered, "email", C, {"warning_count": None}),
    Case("delivery_backlog", "late", 900, 1300, undelivered(2), delivered, "email", W, {"warning_count": 2}),
    Case("delivery_trouble", "warning_uncertain", 2, 3, bad_deliveries("uncertain", 2), decided, "uncertain email", W),
    Case("delivery_trouble", "critical_uncertain", 2, 3, bad_deliveries("uncertain", 2), decided, "uncertain email", C,
         {"warning_uncertain": None}),
    Case("delivery_trouble", "warning_abandoned", 2, 3, bad_deliveries("abandoned", 2), resolved, "abandoned email", W),
    Case("delivery_trouble", "critical_abandoned", 2, 3, bad_deliveries("abandoned", 2), resolved, "abandoned email", C,
         {"warning_abandoned": None}),
    Case("limit_starvation", "warning_wait", 600, 601, starves(600), fed, "api", W),
    Case("limit_starvation", "critical_wait", 600, 601, starves(600), fed, "api", C, {"warning_wait": None}),
    Case("limit_starvation", "warning_pause", 900, 901, paused(900), open_again, "paused api", W),
    Case("limit_starvation", "critical_pause", 900, 901, paused(900), open_again, "paused api", C, {"warning_pause": None}),
    Case("seal_lag", "warning_age", 300, 301, unsealed(300), sealed, "unsealed", W),
    Case("seal_lag", "critical_age", 300, 301, unsealed(300), sealed, "unsealed", C, {"warning_age": None}),
    Case("workers", "warning_unserved", 60, 61, waits(60), a_worker_comes, "lane default", W),
    Case("workers", "critical_unserved", 60, 61, waits(60), a_worker_comes, "lane default", C, {"warning_unserved": None}),
    Case("workers", "warning_lost", 3, 4, lost_workers(3), later("61 minutes"), "lost", W),
    Case("workers", "critical_lost", 3, 4, lost_workers(3), later("61 minutes"), "lost", C, {"warning_lost": None}),
    Case("workers", "window", 3600, 0, lost_workers(3), later("61 minutes"), "lost", W),
    Case("pinned_xmin", "warning_age", 300, 900, open_transaction(600), rolled_back, "*", W),
    Case("pinned_xmin", "critical_age", 300, 900, open_transaction(600), rolled_back, "*", C, {"warning_age": None}),
    Case("bloat", "warning_dead", 50, 100_000, dead_rows(50), vacuumed, "job_private", W),
    Case("bloat", "critical_dead", 50, 100_000, dead_rows(50), vacuumed, "job_private", C, {"warning_dead": None}),
    Case("bloat", "least_share", 0.5, 1_000_000, dead_rows(50), vacuumed, "job_private", W, {"warning_dead": 50}),
    Case("disk", "bound", 1_000_000, 1_000_000_000_000, nothing, nothing, "size", C),
    Case("disk", "warning_share", 0.000001, 1, nothing, nothing, "size", W, {"bound": 10**13, "critical_share": None}),
    Case("disk", "critical_share", 0.000001, 1, nothing, nothing, "size", C, {"bound": 10**13, "warning_share": None}),
    Case("disk", "growth_bytes", 5 * 10**7, 10**12, grown, no_longer_growing, "growth", W, {"growth_share": 0}),
    Case("disk", "growth_share", 0.01, 10**6, grown, no_longer_growing, "growth", W, {"growth_bytes": 5 * 10**7}),
    Case("monitors", "warning_late", 600, 601, unknown_python_monitor(600), run_by_somebody, "stock", W),
    Case("monitors", "critical_late", 600, 601, unknown_python_monitor(600), run_by_somebody, "stock", C, {"warning_late": None}),
]  # fmt: skip
# Slots and standbys, which this server does not have: see test_how_far_behind_a_slot_is.
APART = {("pinned_xmin", "warning_transactions"), ("pinned_xmin", "critical_transactions")}


@pytest.fixture
def watch(db):
    # Each case is about one monitor.
    return Watch(db)


def seen(watch, case):
    found = watch.severities(case.monitor)
    return list(found.values()) if case.key == "*" else [s for key, s in found.items() if key == case.key]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_threshold_trips_and_its_alert_closes_by_itself(db, watch, case):
    watch.set(case.monitor, {**case.given, case.threshold: case.value}, clear_after="0", hold_for="0")
    case.trip(db)

    # Not by anything else: beyond the condition, this threshold does not trip.
    if case.beyond is not None:
        watch.set(case.monitor, {case.threshold: case.beyond})
        watch.run(case.monitor)
        assert seen(watch, case) == []

    watch.set(case.monitor, {case.threshold: case.value})
    assert watch.run(case.monitor) == "firing"
    assert seen(watch, case) == [case.severity]

    if case.trip is nothing:
        watch.set(case.monitor, {case.threshold: case.beyond})
    case.end(db)
    watch.run(case.monitor)
    assert seen(watch, case) == []
    closed = [a for a in watch.alerts(case.monitor, closed=True) if case.key in ("*", a.key)]
    assert [(a.state, a.closed_by) for a in closed] == [("closed", "onceward")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_threshold_that_is_null_never_trips(db, watch, case):
    watch.set(case.monitor, {**case.given, case.threshold: None}, hold_for="0")
    case.trip(db)

    watch.run(case.monitor)

    assert seen(watch, case) in ([], [W] if case.severity == C else [])
    assert db.value("select count(*) from onceward.monitor_runs where status = 'error'") == 0


def test_every_threshold_has_a_case(db):
    known = {(row.monitor, row.name) for row in db.run("select monitor, name from onceward.thresholds")}

    assert known == {(case.monitor, case.threshold) for case in CASES} | APART


def test_every_threshold_and_monitor_is_described_with_its_default(db):
    rows = db.run("select * from onceward.thresholds")

    assert all(row.description and row.value == row.default_value for row in rows)
    assert all(row.description for row in db.run("select description from onceward.monitors"))


@pytest.mark.parametrize(
    ("age", "behind", "severity"),
    [(None, 999, None), (None, 1000, W), (None, 5000, C), (5, 9999, None), (10, 0, W), (20, 0, C)],
)
def test_how_far_behind_a_slot_is(db, age, behind, severity):
    """A slot or a standby has no beginning; the number of transactions counts instead."""
    thresholds = (
        '{"warning_transactions": 1000, "critical_transactions": 5000, "warning_age": 10, "critical_age": 20}'
    )

    assert (
        db.value("select onceward.pin_severity(%s::jsonb, %s::numeric, %s)", thresholds, age, behind)
        == severity
    )


def test_a_healthy_database_raises_nothing_with_the_defaults(db, watch):
    db.done()
    db.enqueue()
    db.worker("a")

    statuses = {row.monitor: row.status for row in db.call("check_monitors")}

    assert set(statuses.values()) == {"ok"}
    assert len(statuses) == 18
    assert watch.alerts() == []


def test_slots_that_do_not_matter_are_nobodys_fault(db, watch):
    db.call("add_schedule", name="careless", task="report", spec="1 minute", missed="none")
    db.call("add_schedule", name="careful", task="report", spec="1 minute")
    db.clock.advance("30 minutes")
    db.call("tick")

    watch.run("missed_ticks")

    assert [alert.key for alert in watch.alerts("missed_ticks")] == ["careful"]


def test_the_culprit_of_a_pinned_xmin_is_named(db, watch):
    open_transaction(600)(db)

    watch.run("pinned_xmin")

    # The clock makes whoever else has a transaction open on this server just as old.
    culprit = f"pid {db.pinning.info.backend_pid}"
    assert any(culprit in alert.summary for alert in watch.alerts("pinned_xmin"))


def test_a_job_that_waited_for_its_key_is_not_taken_for_an_old_one(db, watch):
    """It was enqueued an hour ago, and became ready just now."""
    first = db.running(concurrency_key="k")
    db.enqueue(concurrency_key="k")
    db.clock.advance("1 hour")
    db.complete(first)
    db.promote()

    assert watch.run("ready_age") == "ok"
    db.clock.advance("10 minutes")
    assert watch.run("ready_age") == "firing"


def test_a_rescued_job_has_waited_since_its_rescue(db, watch):
    dies()(db)
    db.clock.advance("1 hour")
    db.rescue()

    assert watch.run("ready_age") == "ok"


def test_a_paused_lane_is_nobodys_fault(db, watch):
    waits(3600)(db)
    db.call("pause_lane", name="default")

    assert (watch.run("ready_age"), watch.run("workers")) == ("ok", "ok")
