"""Retention: what is removed, what never is, dry runs, legal holds, and others who hold locks."""

from __future__ import annotations

import pytest

from tests.support.engine import refused
from tests.support.ledger import Ledger
from tests.support.races import Rival, together
from tests.support.watch import Watch


@pytest.fixture
def db(db):
    """With a worker that outlives the years which these tests let pass."""
    db.worker("a")
    db.run("update onceward.worker_private set expires_at = '9998-01-01'")
    return db


def retain(db, kind=None, **options):
    return {row.kind: row for row in db.call("retain", kind=kind, **options)}


def removed(db, kind, **options):
    row = retain(db, kind, **options)[kind]
    return row.row_count


def days(db, parent):
    rows = db.run(
        "select relname from pg_class where relname ~ %s and relkind = 'r' order by 1",
        f"^{parent}_[0-9]{{8}}$",
    )
    return [row.relname for row in rows]


def count(db, table):
    return db.value(f"select count(*) from onceward.{table}")


def everything(db, tenant="default"):
    """Something of each kind, all of it ended."""
    ledger = Ledger(db)
    claim = db.running(tenant=tenant)
    db.finish_step(claim)
    db.fail(claim)
    db.clock.advance("1 day")
    db.promote()
    db.complete(db.claim())
    letter = db.dead_letter(tenant=tenant)
    with db.conn.transaction():
        db.run("select set_config('onceward.tenant', %s, true)", tenant)
        (kind,) = db.run("select task, fingerprint from onceward.dead_letters where id = %s", letter)
        db.run("select onceward.assign_dead_letters(%s, %s, 'ana')", kind.task, kind.fingerprint)
        db.run("select onceward.comment_dead_letters(%s, %s, 'seen')", kind.task, kind.fingerprint)
    db.run("select onceward.sample_limits()")
    db.requeue(letter, payload={"n": 2})
    db.complete(db.claim())
    ledger.deliver(key="sent", tenant=tenant)
    sending = ledger.claim()
    ledger.begin(sending)
    ledger.settle(sending, "sent")
    db.call("add_schedule", name="hourly", task="report", spec="1 hour", tenant=tenant)
    db.call("run_schedule_now", name="hourly", tenant=tenant)
    db.call("drop_schedule", name="hourly", tenant=tenant)
    db.settle()
    run = db.call("begin_run", key="k", holder="h", tenant=tenant)[0]
    db.call("finish_run", key="k", epoch=run.epoch, tenant=tenant)
    db.done(tenant=tenant, key="short", key_window="1 hour")
    db.emit("paid", tenant=tenant)
    watch = Watch(db)
    watch.probe()
    watch.look({"key": "k", "tenant": tenant})
    watch.look()
    db.answer(
        "silence_alerts",
        until=db.value("select onceward.now() + interval '1 hour'"),
        reason="r",
        monitor="probe",
        tenant=tenant,
    )
    db.call("retire_worker", worker_id=db.worker("old"))


OF_A_TENANT = {
    "archive": "archive_private", "attempts": "attempt_private", "steps": "step_private", "deliveries": "delivery_private",
    "contents": "delivery_content_private", "payload_edits": "payload_edit_private", "ticks": "tick_private",
    "runs": "run_private", "keys": "key_private", "events": "event_private", "alerts": "alert_private",
    "silences": "silence_private", "assignments": "assignment_private", "comments": "comment_private",
}  # fmt: skip
OF_NOBODY = {
    "workers": "worker_private",
    "monitor_runs": "monitor_run_private",
    "limit_levels": "limit_level_private",
}


# ---------------------------------------------------------------- every kind


def test_every_kind_is_kept_for_its_time_and_then_removed(db):
    everything(db)
    tables = {**OF_A_TENANT, **OF_NOBODY}
    before = {kind: count(db, table) for kind, table in tables.items()}
    assert all(before.values()), before
    # The keys of deliveries are for ever.
    forever = db.value("select count(*) from onceward.key_private where expires_at is null")
    assert forever > 0
    for kind in tables:
        assert removed(db, kind) == 0, kind

    db.clock.advance("2 years")
    gone = {kind: removed(db, kind) for kind in tables}

    left = {kind: count(db, table) for kind, table in tables.items()}
    assert left == {**dict.fromkeys(tables, 0), "keys": forever, "workers": 1}
    assert gone == {kind: before[kind] - left[kind] for kind in tables}
    # And it is written down.
    assert dict(db.run("select kind, row_count from onceward.removals")) == gone
    db.clock.advance("2 years")
    assert removed(db, "removals") == len(gone)


def test_a_dry_run_says_what_the_run_then_does_and_changes_nothing(db):
    everything(db)
    db.clock.advance("2 years")
    before = db.contents()

    dry = retain(db, dry_run=True)

    assert db.contents() == before
    real = retain(db)
    same = ("row_count", "partitions", "more", "note")
    told = {kind: [getattr(row, name) for name in same] for kind, row in real.items()}
    assert {kind: [getattr(row, name) for name in same] for kind, row in dry.items()} == told
    assert sum(row.row_count for row in real.values()) > 15


def test_every_kind_is_declared_with_a_default_and_kept_as_set(db):
    rows = {row.kind: row for row in db.run("select * from onceward.retention")}

    assert set(rows) == {*OF_A_TENANT, *OF_NOBODY, "removals", "audit"}
    # The audit log is kept for ever until somebody says otherwise; see test_audit_retention.
    log = rows.pop("audit")
    assert (log.keep, log.default_keep) == (None, None)
    assert all(row.keep == row.default_keep >= row.least_keep and row.description for row in rows.values())
    db.call("set_retention", kind="archive", keep="400 days")
    db.run("select onceward.declare_retention()")
    assert db.value("select keep from onceward.retention where kind = 'archive'").days == 400


def test_a_kind_can_be_kept_for_ever(db):
    db.done()
    db.call("set_retention", kind="archive", keep=None)
    db.clock.advance("50 years")

    assert retain(db, "archive")["archive"].note == "kept for ever"
    assert count(db, "archive_private") == 1


@pytest.mark.parametrize(
    ("kind", "keep", "fragment"),
    [
        ("archives", "1 day", "kind must be one of alerts, archive"),
        ("archive", "1 hour", "keep must be between 1 day and 100 years"),
        ("runs", "29 days", "keep must be between 30 days"),
        ("archive", "-1 days", "keep must be between"),
        ("archive", "101 years", "keep must be between"),
    ],
)
def test_bad_settings_are_refused(db, kind, keep, fragment):
    with db.refused("OW008", fragment):
        db.call("set_retention", kind=kind, keep=keep)


def test_an_unknown_kind_is_refused(db):
    with db.refused("OW008", "kind must be one of"):
        db.call("retain", kind="jobs")
    with db.refused("OW008", "limit must be between"):
        db.call("retain", kind="archive", limit=0)


# ---------------------------------------------------------------- days


def test_whole_days_are_dropped(db):
    db.call("ensure_partitions", days_ahead=14)
    db.done()
    partitions = len(days(db, "archive"))
    db.clock.advance("200 days")

    row = retain(db, "archive")["archive"]

    # Ten at a time, the oldest first; the others with the next calls.
    assert (len(row.partitions), row.more, row.row_count) == (10, True, 1)
    assert len(days(db, "archive")) == partitions - 10
    assert len(retain(db, "archive")["archive"].partitions) == partitions - 10
    assert retain(db, "archive")["archive"].more is False
    # A job of such a day still ends somewhere.
    job = db.done()
    assert db.state(job) == "done"


def test_attempts_and_steps_of_a_live_job_stay(db):
    claim = db.running()
    db.finish_step(claim)
    db.fail(claim, permanent=True)
    other = db.running()
    db.finish_step(other)
    db.fail(other)
    db.clock.advance("1 day")
    db.promote()
    db.complete(db.claim())
    db.clock.advance("200 days")

    while any(retain(db, kind)[kind].more for kind in ("archive", "attempts", "steps")):
        pass

    assert db.outcomes(claim.job_id) == ["dead_letter"]
    assert set(db.steps(claim.job_id)) == {"pay"}
    assert db.attempts(other.job_id) == []
    assert db.steps(other.job_id) == {}
    # When it has ended, they go, at their time.
    db.resolve(claim.job_id)
    assert [removed(db, kind) for kind in ("archive", "attempts", "steps")] == [0, 0, 0]
    db.clock.advance("91 days")
    assert [removed(db, kind) for kind in ("archive", "attempts", "steps")] == [1, 1, 1]


def test_a_job_that_was_made_long_ago_and_ended_lately_stays(db):
    """The day of a partition is that of the creation; the time that counts is that of the end."""
    job = db.enqueue(run_at=db.value("select onceward.now() + interval '200 days'"))
    early = db.done()
    db.clock.advance("200 days")
    db.promote()
    db.complete(db.claim())

    while retain(db, "archive")["archive"].more:
        pass

    assert [row.id for row in db.run("select id from onceward.jobs")] == [job]
    assert early != job


def test_rows_in_the_default_partition_go_a_few_at_a_time(db):
    today = db.value("select to_char(now() at time zone 'UTC', 'YYYYMMDD')")
    db.run(f"drop table onceward.archive_{today}")
    for _ in range(5):
        db.done()
    db.clock.advance("200 days")
    while retain(db, "archive", limit=1)["archive"].partitions:
        pass

    assert retain(db, "archive", limit=2)["archive"].more is True
    assert count(db, "archive_private") <= 3


def test_a_key_taken_for_ever_outlives_its_job(db):
    job = db.done(key="order-7", key_window="forever")
    db.clock.advance("10 years")
    while any(row.more for row in retain(db).values()):
        pass

    again = db.enqueued(key="order-7", key_window="forever")
    assert (again.job_id, again.created) == (job, False)
    assert db.run("select * from onceward.jobs where id = %s", job) == []


def test_an_uncertain_delivery_stays_with_its_content(db):
    delivery = Ledger(db).uncertain()
    db.clock.advance("10 years")

    assert [removed(db, kind) for kind in ("deliveries", "contents")] == [0, 0]
    Ledger(db).decide(delivery, "sent")
    assert removed(db, "contents") == 1
    db.clock.advance("91 days")
    assert removed(db, "deliveries") == 1


def test_a_delivery_that_has_not_ended_stays(db):
    Ledger(db).deliver(run_at=db.value("select onceward.now() + interval '9 years'"))
    db.clock.advance("8 years")

    assert [removed(db, kind) for kind in ("deliveries", "contents")] == [0, 0]


def test_a_delivery_that_is_gone_still_blocks_its_key(db):
    ledger = Ledger(db)
    claim = ledger.begun()
    ledger.settle(claim, "sent")
    db.clock.advance("10 years")
    for kind in ("deliveries", "contents"):
        assert removed(db, kind) == 1

    again = ledger.deliver()
    assert (again.delivery_id, again.created, again.state) == (claim.job_id, False, "removed")


# ---------------------------------------------------------------- holds


def test_nothing_of_a_held_tenant_is_removed(db):
    everything(db, "acme")
    everything(db, "globex")
    kept = {kind: db.value(f"select count(*) from onceward.{table} where tenant = 'acme'") for kind, table in OF_A_TENANT.items()}  # fmt: skip
    assert all(kept.values())
    assert db.answer("hold_tenant", tenant="acme", reason="case 7") is True
    assert db.answer("hold_tenant", tenant="acme", reason="case 8") is False
    db.clock.advance("2 years")

    while any(row.more for row in retain(db).values()):
        pass

    for kind, table in OF_A_TENANT.items():
        left = dict(db.run(f"select tenant, count(*) from onceward.{table} where {'expires_at is not null' if kind == 'keys' else 'true'} group by 1"))  # fmt: skip
        expected = kept[kind] - (1 if kind == "keys" else 0)
        assert left == {"acme": expected}, kind

    assert db.answer("release_tenant", tenant="acme", reason="case closed") is True
    assert db.answer("release_tenant", tenant="acme", reason="again") is False
    while any(row.more for row in retain(db).values()):
        pass
    for kind, table in OF_A_TENANT.items():
        if kind != "keys":
            assert count(db, table) == 0, kind
    (hold,) = db.run("select * from onceward.legal_holds")
    assert (hold.active, hold.reason, hold.release_reason) == (False, "case 7", "case closed")


@pytest.mark.slow
def test_a_day_with_many_rows_of_a_held_tenant_stays_and_the_others_go(db):
    fill = (
        "insert into onceward.archive_private (id, tenant, lane, task, state, priority, epoch, attempt, max_attempts, snoozes,"
        " created_at, run_at, finished_at, payload)"
        " select onceward.new_id(), %s, 'default', 'ocr', 'done', 0, 1, 1, 8, 0, now(), now(), now(), '{}'"
        " from generate_series(1, %s)"
    )
    db.run(fill, "acme", 1500)
    db.run(fill, "globex", 700)
    db.call("hold_tenant", tenant="acme", reason="case 7")
    db.clock.advance("200 days")
    today = db.value("select 'archive_' || to_char(now() at time zone 'UTC', 'YYYYMMDD')")

    gone = 0
    for _ in range(10):
        row = retain(db, "archive", limit=500)["archive"]
        gone += row.row_count

    assert gone == 700
    assert days(db, "archive") == [today]
    assert dict(db.run("select tenant, count(*) from onceward.archive_private group by 1")) == {"acme": 1500}
    # It is not read again every hour; when the holds change, it is.
    assert db.value("select kept ? %s from onceward.retention_private where kind = 'archive'", today)
    db.call("release_tenant", tenant="acme", reason="over")
    assert retain(db, "archive")["archive"].row_count == 1500
    assert days(db, "archive") == []


@pytest.mark.race
def test_once_a_hold_is_committed_nothing_more_goes(db):
    """A retention that runs is waited for; one that begins afterwards sees the hold."""
    everything(db, "acme")
    db.clock.advance("2 years")
    running = db.connect(autocommit=False)
    db.on(running).call("retain", kind="ticks")
    holding = Rival(db, lambda engine: engine.answer("hold_tenant", tenant="acme", reason="r")).blocked()
    running.commit()

    assert holding.answer() is True
    assert removed(db, "runs") == 0


@pytest.mark.parametrize("reason", [None, " "])
def test_a_hold_and_its_release_need_a_reason(db, reason):
    for function in ("hold_tenant", "release_tenant"):
        with db.refused("OW008", "reason must say why"):
            db.call(function, tenant="acme", reason=reason)
    with db.refused("OW008", "tenant must be 1 to 200"):
        db.call("hold_tenant", tenant="*", reason="r")


def test_somebody_of_a_tenant_holds_that_tenant_only(db):
    acme = db.on(db.connect(role="onceward_operator", tenant="acme"))

    assert acme.answer("hold_tenant", tenant="acme", reason="r") is True
    with refused("OW011"):
        acme.answer("hold_tenant", tenant="globex", reason="r")


# ---------------------------------------------------------------- others at the same time


def test_the_hour_comes_and_each_kind_is_done_once(db):
    db.clock.advance("1 hour")
    kinds = []
    while rows := db.call("retain_due"):
        kinds += [row.kind for row in rows]

    assert sorted(kinds) == sorted([*OF_A_TENANT, *OF_NOBODY, "removals", "audit"])
    assert db.call("retain_due") == []
    db.clock.advance("1 hour")
    assert len(db.call("retain_due")) == 1


@pytest.mark.race
def test_two_at_once_retain_once(db):
    everything(db)
    db.clock.advance("2 years")
    expected = {kind: row.row_count for kind, row in retain(db, dry_run=True).items()}

    def work(engine):
        return [row for _ in range(40) for row in engine.call("retain_due")]

    answers = together(db, [work] * 3)
    # Whoever met a lock of the others comes back.
    db.clock.advance("5 minutes")
    answers.append(work(db))

    done = [row for answer in answers for row in answer]
    total = {kind: sum(row.row_count for row in done if row.kind == kind) for kind in expected}
    assert total == expected


@pytest.mark.race
def test_a_long_reader_neither_waits_nor_makes_others_wait(db):
    """DROP would queue behind the reader, and everybody behind DROP: it gives up instead, and comes back."""
    db.call("ensure_partitions", days_ahead=14)
    job = db.done()
    db.clock.advance("200 days")
    reader = db.connect(autocommit=False)
    reader.execute("select count(*) from onceward.archive_private")
    db.run("update onceward.retention_private set next_at = onceward.now() where kind = 'archive'")
    db.run(
        "update onceward.retention_private set next_at = onceward.now() + interval '1 day' where kind <> 'archive'"
    )

    (row,) = db.call("retain_due")

    assert (row.row_count, row.partitions) == (0, [])
    assert "locked by somebody" in row.note
    assert db.state(job) == "done"
    db.done()
    assert db.call("retain_due") == []
    reader.rollback()
    db.clock.advance("5 minutes")
    (row,) = db.call("retain_due")
    assert len(row.partitions) == 10


@pytest.mark.race
def test_a_job_that_ends_while_its_day_is_looked_at_is_not_lost(db):
    """Its row waits for the lock, and then goes where the day used to be."""
    late = db.running()
    db.clock.advance("200 days")
    dropping = db.connect(autocommit=False)
    db.on(dropping).call("retain", kind="archive")
    finishing = Rival(db, lambda engine: engine.complete(late)).blocked()
    dropping.commit()

    finishing.answer()
    assert db.state(late.job_id) == "done"


def test_a_worker_may_retain_by_the_hour_and_only_an_operator_by_hand(db):
    worker = db.on(db.connect(role="onceward_worker", tenant="*"))
    operator = db.on(db.connect(role="onceward_operator", tenant="*"))
    db.done()
    db.clock.advance("200 days")

    assert worker.call("retain_due") != []
    with refused("42501"):
        worker.call("retain")
    assert len(operator.call("retain", dry_run=True)) == 19
    assert operator.call("retain", kind="archive")[0].row_count in (0, 1)
