"""The gauges of the database: each one moves when it should, counts are bounded, and labels hold nothing private."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.engine import refused
from tests.support.ledger import Ledger
from tests.support.limits import fill, limit
from tests.support.watch import Watch


def gauge(db, name: str, **labels: str) -> float:
    (value,) = [
        row.value
        for row in db.call("metrics")
        if row.name == f"onceward_{name}" and labels.items() == row.labels.items()
    ]
    return value


def test_jobs_are_counted_by_lane_and_state(db):
    db.call("add_lane", name="mail")
    db.enqueue_many("ocr", [{}] * 3)
    db.enqueue(run_at=db.now() + timedelta(hours=1))
    db.dead_letter(lane="mail")
    claim = db.running(lane="mail")
    db.enqueue(lane="mail", after=[claim.job_id])
    db.enqueue(lane="mail", concurrency_key="k")

    counts = {
        (row.labels["lane"], row.labels["state"]): row.value
        for row in db.call("metrics")
        if row.name == "onceward_jobs"
    }

    assert counts == {
        ("default", "ready"): 3,
        ("default", "scheduled"): 1,
        ("default", "running"): 0,
        ("default", "blocked"): 0,
        ("default", "dead_letter"): 0,
        ("mail", "ready"): 0,
        ("mail", "scheduled"): 0,
        ("mail", "running"): 1,
        ("mail", "blocked"): 2,
        ("mail", "dead_letter"): 1,
    }


def test_a_count_stops_where_it_is_told_to(db):
    db.enqueue_many("ocr", [{}] * 30)

    found = {row.name: row.value for row in db.call("metrics", most=10) if row.labels.get("state") == "ready"}

    assert found == {"onceward_jobs": 10}


def test_the_oldest_ready_job_counts_whatever_its_priority(db):
    db.enqueue(priority=-10)
    db.clock.advance(timedelta(minutes=5))
    db.enqueue_many("ocr", [{}] * 5, priority=10)
    db.enqueue(priority=3)

    assert gauge(db, "oldest_ready_seconds", lane="default") == 300


def test_the_oldest_ready_job_counts_whatever_its_line(db):
    db.enqueue(tenant="zz")
    db.clock.advance(timedelta(minutes=5))
    db.enqueue()
    db.enqueue(tenant="acme", priority=10)

    assert gauge(db, "oldest_ready_seconds", lane="default") == 300


def test_lanes_tell_their_switch_and_their_workers(db):
    db.call("add_lane", name="mail")
    db.call("pause_lane", name="mail")
    db.worker("a", lanes=["default", "mail"], concurrency=4)
    db.worker("b", lanes=["mail"], concurrency=3, lease="30 s")

    assert (gauge(db, "lane_paused", lane="mail"), gauge(db, "lane_paused", lane="default")) == (1, 0)
    assert (gauge(db, "lane_workers", lane="mail"), gauge(db, "lane_slots", lane="mail")) == (2, 7)
    db.clock.advance(timedelta(minutes=1))
    assert (gauge(db, "lane_workers", lane="mail"), gauge(db, "lane_slots", lane="mail")) == (1, 4)
    assert (gauge(db, "workers", state="live"), gauge(db, "workers", state="expired")) == (1, 1)


def test_the_promotion_lag_says_that_nobody_looks(db):
    db.enqueue(run_at=db.now() + timedelta(minutes=1))
    assert gauge(db, "promotion_lag_seconds") == 0
    db.clock.advance(timedelta(minutes=3))
    assert gauge(db, "promotion_lag_seconds") == 120
    db.promote()
    assert gauge(db, "promotion_lag_seconds") == 0


def test_partial_completions_are_those_that_failed_half_way(db):
    for permanent in (True, False):
        claim = db.running(retry={"waits": [600]})
        db.finish_step(claim)
        db.fail(claim, permanent=permanent)
    asleep = db.running()
    db.finish_step(asleep)
    db.sleep(asleep)
    db.dead_letter()

    assert gauge(db, "partial_completions") == 2


def test_deliveries_are_counted_while_they_are_open_or_in_trouble(db):
    ledger = Ledger(db)

    def counts() -> list[float]:
        return [
            gauge(db, "deliveries", state=state) for state in ("pending", "sending", "uncertain", "abandoned")
        ]

    assert counts() == [0, 0, 0, 0]
    ledger.uncertain(key="a")
    assert counts() == [0, 0, 1, 0]
    claim = ledger.begun(key="b")
    assert counts() == [0, 1, 1, 0]
    ledger.deliver(key="c")
    ledger.settle(claim, "abandoned")
    assert counts() == [1, 0, 1, 1]


def test_late_schedules(db):
    db.call("add_schedule", name="report", task="ocr", spec="1 hour")
    assert gauge(db, "schedules_late") == 0
    db.clock.advance(timedelta(hours=3))
    assert gauge(db, "schedules_late") == 1
    assert gauge(db, "schedule_lateness_seconds") >= 3600
    db.call("tick")
    assert (gauge(db, "schedules_late"), gauge(db, "schedule_lateness_seconds")) == (0, 0)


def test_limits_tell_what_is_left_who_waits_and_whether_they_are_paused(db):
    limit(db, requests=100, burst=4)
    limit(db, "slots", slots=2)
    fill(db, 3, "api", "slots")
    fill(db, 1, "api", lane=other_lane(db))

    def gauges(name: str) -> list[float]:
        return [gauge(db, f"limit_{what}", limit=name) for what in ("level", "waiting", "paused")]

    assert (gauges("api"), gauges("slots")) == ([1, 4, 0], [1, 3, 0])
    claim, _ = db.claims(10)
    assert (gauges("api"), gauges("slots")) == ([0.5, 2, 0], [0, 1, 0])
    db.of_job("limited", claim, limit="api", retry_after="1 min")
    assert gauge(db, "limit_paused", limit="api") == 1
    db.clock.advance("10 min")
    assert gauge(db, "limit_paused", limit="api") == 0


def other_lane(db) -> str:
    db.call("add_lane", name="mail")
    return "mail"


def test_of_a_limit_per_key_the_emptiest_key_counts_and_none_is_named(db):
    limit(db, requests=100, burst=4, per_key=True)
    fill(db, 2, key="canary-7f3a")
    fill(db, 1, key="other")
    assert len(db.claims(10)) == 3
    db.call("pause_limit", limit="api", key="canary-7f3a", **{"for": "1 min"})

    assert gauge(db, "limit_level", limit="api") == 0.5
    assert gauge(db, "limit_paused", limit="api") == 1
    assert "canary" not in str(db.call("metrics"))


def test_open_alerts_are_counted_by_severity(db):
    def counts() -> list[float]:
        return [gauge(db, "alerts_open", severity=severity) for severity in ("info", "warning", "critical")]

    assert counts() == [0, 0, 0]
    db.dead_letter()
    Watch(db).run("dead_letters")
    assert counts() == [0, 1, 0]
    db.run("select onceward.close_alert(id, 'known') from onceward.alerts")
    assert counts() == [0, 0, 0]


def test_what_of_the_audit_log_is_not_sealed(db):
    assert gauge(db, "audit_unsealed_entries") == 0
    for _ in range(3):
        db.call("record_event", kind="note")
        db.clock.advance("1 min")
    assert (gauge(db, "audit_unsealed_entries"), gauge(db, "audit_unsealed_seconds")) == (3, 180)
    db.call("seal")
    assert (gauge(db, "audit_unsealed_entries"), gauge(db, "audit_unsealed_seconds")) == (0, 0)


def test_an_old_snapshot_shows(db):
    old = db.connect(autocommit=False)
    old.execute("set transaction isolation level repeatable read")
    old.execute("select count(*) from onceward.jobs")
    for _ in range(10):
        db.enqueue()

    assert gauge(db, "xmin_age_transactions") >= 10


def test_storage_is_told_by_table_with_all_partitions(db):
    rows = [row for row in db.call("metrics") if row.name == "onceward_table_bytes"]

    tables = {row.labels["table"] for row in rows}
    assert tables == {
        row.relname
        for row in db.run(
            "select relname from pg_class where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'p') and not relispartition"
        )
    }
    assert all(row.value > 0 for row in rows)


def test_labels_hold_no_tenant_key_task_or_payload(db):
    secret = "canary-7f3a"
    db.enqueue(
        secret, {"p": secret}, tenant=secret, key=secret, concurrency_key=secret, headers={"h": secret}
    )
    db.dead_letter(message=secret, tenant=secret)
    db.call("deliver", kind="slack", key=secret, content={"text": secret}, tenant=secret)
    db.emit(secret, tenant=secret)

    assert secret not in str(db.call("metrics"))


def test_the_number_of_lanes_with_series_is_bounded(db):
    for n in range(250):
        db.call("add_lane", name=f"lane-{n}")

    assert len({row.labels["lane"] for row in db.call("metrics") if "lane" in row.labels}) == 200


@pytest.mark.parametrize("most", [0, None, -1])
def test_a_bound_that_is_none_is_refused(db, most):
    with refused("OW008", "most must be between 1 and"):
        db.call("metrics", most=most)


def test_counting_reads_no_more_than_it_needs(db):
    """Also with the statistics of an empty table: by the indexes, and not the whole table for each lane."""
    db.run("alter table onceward.job_private set (autovacuum_enabled = off)")
    for n in range(20):
        db.call("add_lane", name=f"lane-{n}")
    db.run(
        "select count(*) from onceward.enqueue_many('ocr', array(select '{}'::jsonb from generate_series(1, 20000)))"
    )
    db.run("select pg_stat_force_next_flush()")
    statement = "select seq_tup_read, idx_tup_fetch from pg_stat_all_tables where relname = 'job_private'"
    before = db.one(statement)

    db.call("metrics", most=100)

    db.run("select pg_stat_force_next_flush()")
    after = db.one(statement)
    assert after.seq_tup_read == before.seq_tup_read
    assert after.idx_tup_fetch - before.idx_tup_fetch < 1000
