"""A cap on how many jobs of a lane run at once: held over all workers, and given back however a job stops running."""

from __future__ import annotations

import random
import threading

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.engine import refused
from tests.support.races import deadlocks, together, transaction


def capped(db, most: int, *, jobs: int = 0, lane: str = "default", **options):
    db.call("add_lane", name=lane, max_running=most)
    return [row.job_id for row in db.enqueue_many("ocr", [{}] * jobs, lane=lane, **options)] if jobs else []


def told(rows, lane: str = "default"):
    """What an exchange says of a lane that gave nothing."""
    (row,) = [row for row in rows if row.outcome == "lines" and row.lane == lane]
    return row.payload


def heard(conn) -> list[str]:
    # Notifications come with the reply to the next query: no waiting for what may not come.
    conn.execute("select 1")
    return [note.payload for note in conn.notifies(timeout=0)]


def test_no_more_jobs_are_claimed_than_may_run_at_once(db):
    jobs = capped(db, 2, jobs=5)

    first = db.claims(10)
    assert [claim.job_id for claim in first] == jobs[:2]
    assert db.claims(10, worker="b") == []

    db.complete(first[0])
    assert [claim.job_id for claim in db.claims(10, worker="b")] == jobs[2:3]


def test_an_exchange_takes_the_places_that_it_has_just_given_back(db):
    jobs = capped(db, 2, jobs=5)
    first = db.exchange(lanes=["default"], max=10)

    second = db.exchange(first, lanes=["default"], max=10)

    assert [row.job_id for row in first + second] == jobs[:4]


def test_an_exchange_says_of_a_full_lane_that_it_is_full_and_claims_from_the_others(db):
    capped(db, 1, jobs=2)
    db.call("add_lane", name="mail")
    db.claim(worker="b")
    mail = db.enqueue(lane="mail")

    rows = db.exchange(lanes=["default", "mail"], max=10, lines=Jsonb({"default": {"after": "acme"}}))

    assert told(rows) == {"full": True}
    # Whose turn it is stays.
    assert [row.line for row in rows if row.outcome == "lines"] == ["acme"]
    assert [row.job_id for row in rows if row.outcome == "claimed"] == [mail]


def test_places_do_not_wait_in_the_hand_of_a_worker_that_cannot_begin(db):
    jobs = capped(db, 5, jobs=5)

    rows = db.exchange(lanes=["default"], max=10, start=2)
    others = db.exchange(worker="b", lanes=["default"], max=10, start=10)

    assert [row.job_id for row in rows] == jobs[:2]
    assert [row.job_id for row in others] == jobs[2:]
    assert db.exchange(worker="b", lanes=["default"], max=10, start=0) == []


STOPS = {
    "complete": lambda db, claim: db.complete(claim),
    "fail": lambda db, claim: db.fail(claim),
    "dead letter": lambda db, claim: db.fail(claim, permanent=True),
    "snooze": lambda db, claim: db.snooze(claim),
    "cancel": lambda db, claim: db.cancel(claim.job_id, epoch=claim.epoch),
    "sleep": lambda db, claim: db.sleep(claim),
    "wait for an event": lambda db, claim: db.wait_event(claim),
    "rescue": lambda db, _: db.lose("a"),
    "retire": lambda db, _: db.call("retire_worker", worker_id=db.worker("a")),
    "release": lambda db, claim: db.answer("release", worker_id=db.worker("a"), job_ids=[claim.job_id]),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_whatever_stops_a_job_gives_its_place_back(db, stop):
    capped(db, 1)
    claim = db.running()
    db.enqueue_many("ocr", [{}] * 2)
    assert db.claims(10, worker="b") == []

    stop(db, claim)

    assert len(db.claims(10, worker="c")) == 1
    assert db.claims(10, worker="c") == []


def test_a_job_whose_worker_is_gone_keeps_its_place_until_it_is_rescued(db):
    capped(db, 1)
    db.running()
    db.enqueue()
    db.clock.advance("2 days")
    db.worker("b")

    assert db.claims(1, worker="b") == []
    db.rescue()
    assert len(db.claims(1, worker="b")) == 1


def test_a_cap_below_what_runs_lets_them_go_on_and_no_other_in(db):
    capped(db, 4, jobs=8)
    running = db.claims(10)
    db.call("add_lane", name="default", max_running=2)

    for done, _ in zip(running[:2], range(2), strict=True):
        db.complete(done)
        assert db.claims(10, worker="b") == []
    db.complete(running[2])

    assert len(db.claims(10, worker="b")) == 1


def test_a_cap_that_is_raised_or_removed_wakes_sleepers_and_others_do_not(db):
    db.worker("a", lanes=["default"])
    capped(db, 1, jobs=9)
    db.claim()
    assert told(db.exchange(lanes=["default"], max=1, sleep=True)) == {"full": True}
    listener = db.connect()
    listener.execute("listen onceward")

    db.call("add_lane", name="default", max_running=2)
    assert heard(listener) == ["default opened"]
    assert len(db.claims(10)) == 1
    db.call("add_lane", name="default", max_running=0)
    assert heard(listener) == ["default opened"]
    assert db.value("select max_running from onceward.lanes where name = 'default'") is None
    assert len(db.claims(10)) == 7
    db.call("add_lane", name="default", max_running=3)
    db.call("add_lane", name="default", max_running=2)
    db.call("add_lane", name="default", max_wait="1 min")
    assert heard(listener) == []


def test_a_paused_lane_gives_nothing_and_keeps_its_cap(db):
    capped(db, 2, jobs=4)
    db.claim()
    db.call("pause_lane", name="default")
    assert db.exchange(worker="b", lanes=["default"], max=10) == []

    db.call("resume_lane", name="default")

    assert len(db.claims(10, worker="b")) == 1


def test_a_cap_holds_for_all_tenants_lines_and_limits_together(db):
    db.call("set_limit", name="openai", requests=1000, slots=10)
    capped(db, 5)
    for tenant in ("acme", "globex", "default"):
        db.enqueue_many("ocr", [{}] * 3, tenant=tenant)
        db.enqueue_many("ocr", [{}] * 3, tenant=tenant, uses=Jsonb([{"limit": "openai"}]))

    claims = db.claims(10)

    assert len(claims) == 5
    assert len({claim.line for claim in claims}) >= 4
    assert told(db.exchange(worker="b", lanes=["default"], max=10)) == {"full": True}


def test_a_lane_named_twice_is_counted_twice_in_one_claim(db):
    capped(db, 3, jobs=9)

    assert len(db.claims(10, lanes=["default", "default"])) == 3


def test_a_cap_is_of_one_lane(db):
    capped(db, 1, jobs=2)
    capped(db, 2, jobs=3, lane="mail")
    db.call("add_lane", name="free")
    db.enqueue_many("ocr", [{}] * 4, lane="free")

    claims = db.claims(100, lanes=["default", "mail", "free"])

    assert [claim.lane for claim in claims] == ["default", "mail", "mail", *["free"] * 4]


def test_due_jobs_are_promoted_beside_a_full_lane(db):
    capped(db, 1, jobs=2)
    db.call("add_lane", name="mail")
    due = db.enqueue(lane="mail", run_at=db.now())
    later = db.enqueue(lane="mail", run_at=db.value("select onceward.now() + '1 min'"))
    db.clock.advance("2 min")

    claims = db.claims(10, lanes=["default", "mail"])

    assert {claim.job_id for claim in claims} >= {due, later}
    assert len(claims) == 3


@pytest.mark.parametrize("most", [-1, 100_001])
def test_a_cap_that_makes_no_sense_is_refused(db, most):
    with refused("OW008", "max_running must be between 0 (no cap) and 100000"):
        db.call("add_lane", name="default", max_running=most)


def test_the_audit_log_tells_what_the_cap_was(db):
    capped(db, 3)
    db.call("add_lane", name="default", max_running=5)
    db.call("add_lane", name="default", max_running=0)

    changes = db.run(
        "select before -> 'max_running' as was, after -> 'max_running' as now from onceward.audit_log "
        "where kind = 'lane.changed' and entity_id = 'default' order by seq"
    )
    assert [tuple(change) for change in changes] == [(None, 3), (3, 5), (5, None)]


def reasons(db, job) -> list[str]:
    return [row.reason for row in db.call("explain", job_id=job)]


def test_a_job_in_a_full_lane_is_told_the_number_and_who_is_ahead_of_it(db):
    db.worker("a", tasks=["ocr"], concurrency=4)
    capped(db, 1)
    db.running()
    first, second = db.enqueue(), db.enqueue()

    (row,) = db.call("explain", job_id=first)

    assert row.reason == "lane_full"
    assert row.sentence == 'Lane "default" is full: 1 job runs, and no more may run at once.'
    assert row.detail == {"lane": "default", "running": 1, "max_running": 1}
    assert "onceward lane set default --max-running 2" in row.next_step
    assert reasons(db, second) == ["lane_full", "turn"]
    capped(db, 2)
    assert reasons(db, first) == ["turn"]


def test_a_lane_is_full_for_what_is_ready_only(db):
    db.worker("a", tasks=["ocr"])
    capped(db, 1)
    db.running()

    assert reasons(db, db.enqueue(run_at=db.value("select onceward.now() + '1 h'"))) == ["run_at"]


@pytest.mark.race
def test_who_comes_while_another_claims_takes_nothing_waits_for_nobody_and_is_told_to_come_back(db):
    capped(db, 2, jobs=5)
    with transaction(db) as first:
        assert len(first.claims(1)) == 1

        # Uncommitted, so nobody else can count it.
        assert db.claims(10, worker="b") == []
        assert told(db.exchange(worker="b", lanes=["default"], max=10)) == {"next_in": 0.05}
        first.conn.commit()

    assert len(db.exchange(worker="b", lanes=["default"], max=10)) == 1


@pytest.mark.race
def test_a_count_sees_what_was_committed_after_the_transaction_began(db):
    capped(db, 2, jobs=5)
    with transaction(db) as old:
        old.run("select 1 from onceward.job_private")
        assert len(db.claims(1)) == 1

        assert len(old.claims(10, worker="b")) == 1
        old.conn.commit()


@pytest.mark.race
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_snapshot_that_may_be_too_old_to_count_gets_nothing(db, isolation):
    capped(db, 1, jobs=3)
    with transaction(db) as old:
        old.conn.execute(f"set transaction isolation level {isolation}")
        old.run("select 1 from onceward.job_private")
        db.claim()

        assert old.claims(10, worker="b") == []


@pytest.mark.race
def test_places_claimed_in_a_transaction_that_is_rolled_back_are_free(db):
    capped(db, 2, jobs=5)
    with transaction(db) as gone:
        assert len(gone.claims(10)) == 2
        gone.conn.rollback()

    assert len(db.claims(10, worker="b")) == 2


@pytest.mark.race
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_crowd_never_runs_more_than_the_cap_and_leaves_nothing_behind(db):
    """Eight workers that take two capped lanes in different orders, every way to stop, and a cap that moves."""
    caps = {"a": 1, "b": 3}
    for lane, most in caps.items():
        capped(db, most, jobs=60, lane=lane, max_attempts=1000, retry={"waits": [0]})
    workers = [f"w{n}" for n in range(8)]
    for worker in workers:
        db.worker(worker)
    finished = threading.Event()

    def work(worker, seed):
        choice = random.Random(seed)
        lanes = ["a", "b"] if seed % 2 else ["b", "a"]

        def run(engine):
            done = []
            while not finished.is_set():
                rows = engine.exchange(done, worker=worker, lanes=lanes, max=choice.randint(1, 6))
                done = []
                for claim in (row for row in rows if row.outcome == "claimed"):
                    end = choice.random()
                    if end < 0.15:
                        engine.fail(claim)
                    elif end < 0.25:
                        engine.answer("release", worker_id=engine.worker(worker), job_ids=[claim.job_id])
                    else:
                        done.append(claim)
                if not rows and engine.value("select not exists (select from onceward.job_private)"):
                    finished.set()

        return run

    def watch(engine):
        seen = dict.fromkeys(caps, 0)
        while not finished.is_set():
            engine.promote()
            for lane, running in engine.run(
                "select lane, count(*) from onceward.job_private where state = 'running' group by 1"
            ):
                seen[lane] = max(seen[lane], running)
            if any(seen[lane] > most for lane, most in caps.items()):
                finished.set()
            engine.call("add_lane", name="b", max_running=random.Random().randint(1, 3))
        return seen

    *ends, seen = together(db, [*(work(worker, seed) for seed, worker in enumerate(workers)), watch])

    assert ends == [None] * 8
    assert isinstance(seen, dict), seen
    assert seen["a"] == 1
    assert 1 < seen["b"] <= 3
    assert set(db.states().values()) == {"done"}
    assert deadlocks(db) == 0


@pytest.mark.race
def test_a_claim_and_a_change_of_the_cap_do_not_block_each_other_for_longer_than_a_commit(db):
    capped(db, 1, jobs=3)
    with transaction(db) as operator:
        operator.call("add_lane", name="default", max_running=2)

        assert db.claims(10) == []
        operator.conn.commit()

    assert len(db.claims(10)) == 2


def test_old_callers_of_add_lane_are_understood(db):
    with psycopg.connect(db.dsn, autocommit=True) as conn:
        conn.execute("select onceward.add_lane('mail', 2048, 2048, false, '1 min')")

    assert db.value("select max_running from onceward.lanes where name = 'mail'") is None
