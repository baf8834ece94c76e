"""A hundred thousand jobs that wait for others or for events: what concerns one of them reads one of them.

Counted, not explained: see test_plans.py.
"""

from __future__ import annotations

import pytest

from tests.support.engine import Engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WAITING = 100_000
TABLES = ("job_private", "dependency_private", "event_private")

# Each waits for one of a thousand running jobs (a hundred for each), or for one of ten thousand events (ten for each).
FILL = """
insert into onceward.job_private
  (id, tenant, lane, task, state, priority, max_attempts, created_at, run_at, payload, worker_id, started_at, epoch, attempt,
   after, after_policy, awaits, workflow_id)
select (%(kind)s || lpad(to_hex(n), 11, '0') || '70008000000000000000')::uuid, 'default', 'default', 'ocr',
       %(state)s, 0, 8, %(now)s,
       case when %(state)s = 'scheduled' then timestamptz '9999-01-01 00:00:00+00' else %(now)s end, '{}',
       case when %(state)s = 'running' then %(worker)s::uuid end, case when %(state)s = 'running' then %(now)s end, 1, 1,
       case when %(awaits)s = 'jobs' then array[('0' || lpad(to_hex(n %% 1000 + 1), 11, '0') || '70008000000000000000')::uuid] end,
       case when %(awaits)s = 'jobs' then 'fail' end,
       case when %(awaits)s = 'event' then 'event:e' || n %% 10000 else %(awaits)s end,
       case when %(awaits)s = 'jobs' then ('0' || lpad(to_hex(n %% 1000 + 1), 11, '0') || '70008000000000000000')::uuid end
  from generate_series(1, %(count)s) as n
"""


@pytest.fixture(scope="module")
def crowd(onceward_server):
    with onceward_server.cloned() as database, Engine(database) as engine:
        engine.clock.pin()
        for table in TABLES:
            engine.run(f"alter table onceward.{table} set (autovacuum_enabled = false)")
        named = {"now": engine.now(), "worker": engine.worker("w")}
        for kind, state, awaits, count in (
            ("0", "running", None, 1000),
            ("1", "blocked", "jobs", WAITING),
            ("2", "scheduled", "event", WAITING),
        ):
            engine.conn.execute(
                FILL, {"kind": kind, "state": state, "awaits": awaits, "count": count, **named}
            )
        engine.run(
            "insert into onceward.dependency_private (job_id, after_id, verified) "
            "select id, after[1], true from onceward.job_private where awaits = 'jobs'"
        )
        engine.run("analyze onceward.job_private, onceward.dependency_private, onceward.event_private")
        yield engine


EMPTY = "'onceward.job_private'::regclass, 'onceward.dependency_private'::regclass, 'onceward.event_private'::regclass"
STATISTICS = {
    "fresh": [],
    "none": [
        f"delete from pg_statistic where starelid in ({EMPTY})",
        f"update pg_class set reltuples = -1, relpages = 0 where oid in ({EMPTY})",
    ],
    "of empty tables": [
        f"delete from pg_statistic where starelid in ({EMPTY})",
        (
            f"update pg_class set reltuples = 0, relpages = 1 where oid in ({EMPTY}) "
            f"or oid in (select indexrelid from pg_index where indrelid in ({EMPTY}))"
        ),
    ],
}
with_any_statistics = pytest.mark.parametrize("statistics", list(STATISTICS.values()), ids=list(STATISTICS))


class Reads:
    """What the calls inside one transaction, undone afterwards, read of the tables."""

    def __init__(self, db, statistics) -> None:
        self._db, self._statistics = db, statistics

    def of(self, call):
        with self._db.conn.transaction(force_rollback=True):
            for statement in self._statistics:
                self._db.run(statement)
            self._db.run("discard plans")
            before = self._counters()
            answer = call()
            after = self._counters()
        self.counts = {name: after[name] - before[name] for name in after if after[name] != before[name]}
        return answer

    def _counters(self):
        rows = self._db.run(
            "select c.relname as name, pg_stat_get_xact_tuples_returned(c.oid) as tuples from pg_class as c "
            " where c.oid = any (%s::regclass[]) or c.oid in (select indexrelid from pg_index where indrelid = any (%s::regclass[]))",
            [f"onceward.{table}" for table in TABLES],
            [f"onceward.{table}" for table in TABLES],
        )
        return {row.name: row.tuples for row in rows}

    def were_at_most(self, most: int) -> bool:
        assert all(count <= most for count in self.counts.values()), self.counts
        return True


@pytest.fixture
def reads(crowd, statistics):
    return Reads(crowd, statistics)


def running(db, count):
    return db.run(
        "select id as job_id, epoch from onceward.job_private where state = 'running' order by id limit %s",
        count,
    )


@with_any_statistics
def test_a_finish_reads_those_that_wait_for_it(crowd, reads):
    claims = running(crowd, 3)
    reads.of(lambda: crowd.exchange(claims, worker="w"))

    assert reads.were_at_most(3 * 100 * 12 + 100)
    assert reads.counts["dependency_after_idx"] >= 300


@with_any_statistics
def test_a_finish_of_a_job_that_nobody_waits_for_reads_no_edges(crowd, reads):
    def enqueue_and_finish():
        crowd.enqueue_many("ocr", [{}] * 100)
        return crowd.exchange(crowd.claims(100, worker="w"), worker="w")

    assert reads.of(enqueue_and_finish) == []
    assert {name for name in reads.counts if name.startswith("dependency")} == set()
    assert reads.were_at_most(100 * 12 + 150)


@with_any_statistics
def test_a_job_that_is_enqueued_and_looked_at_reads_what_it_waits_for(crowd, reads):
    parents = [claim.job_id for claim in running(crowd, 100)]

    def enqueue_and_promote():
        crowd.enqueue(after=parents)
        return crowd.promote()

    reads.of(enqueue_and_promote)
    assert reads.were_at_most(100 * 12 + 150)


@with_any_statistics
def test_a_dead_letter_and_the_next_promote_read_those_that_wait_for_it(crowd, reads):
    (claim,) = running(crowd, 1)

    def fail_and_promote():
        crowd.fail(claim, permanent=True)
        return crowd.promote()

    reads.of(fail_and_promote)
    assert reads.were_at_most(100 * 12 + 150)


@with_any_statistics
def test_an_event_reads_those_that_wait_for_it(crowd, reads):
    def emit_and_promote():
        for n in range(5):
            crowd.emit(f"e{n}")
        return crowd.promote()

    assert reads.of(emit_and_promote).promoted == 50
    assert reads.were_at_most(50 * 6 + 150)


@with_any_statistics
def test_a_job_that_begins_to_wait_reads_itself(crowd, reads):
    (claim,) = running(crowd, 1)

    def wait_and_promote():
        crowd.emit("mine")
        crowd.wait_event(claim, "mine")
        return crowd.promote()

    assert reads.of(wait_and_promote).promoted == 1
    assert reads.were_at_most(150)


@with_any_statistics
def test_a_promote_with_nothing_to_do_reads_next_to_nothing(crowd, reads):
    # What tests before this one have left in the indexes is read once more, and marked.
    crowd.promote()
    answer = reads.of(crowd.promote)

    assert (answer.promoted, answer.next_run_at, answer.more) == (0, None, False)
    assert reads.were_at_most(150)


@pytest.mark.parametrize("statistics", [STATISTICS["fresh"]], ids=["fresh"])
def test_one_workflow_is_read_through_its_index(crowd, reads):
    root = running(crowd, 1)[0].job_id

    (row,) = reads.of(lambda: crowd.run("select * from onceward.workflows where id = %s", root))
    assert (row.jobs, row.live) == (101, 101)
    assert reads.were_at_most(500)
    assert (
        len(reads.of(lambda: crowd.run("select * from onceward.dependencies where workflow_id = %s", root)))
        == 100
    )
    assert reads.were_at_most(1000)
    assert reads.of(lambda: crowd.answer("cancel_workflow", workflow_id=root)) == 101
    assert reads.were_at_most(101 * 8)


# ------------------------------------------------------------ what costs nothing when it is not used


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_finish_without_dependencies_writes_nothing_for_them(db, isolation):
    claims = [db.running() for _ in range(20)]
    with db.conn.transaction():
        db.run(f"set transaction isolation level {isolation}")
        db.exchange(claims)

    # At a stricter level, nobody can know; the next promote does.
    assert db.value("select count(*) from onceward.recheck_private") == (
        0 if isolation == "read committed" else 20
    )
    db.promote()
    assert db.value("select count(*) from onceward.recheck_private") == 0


@pytest.mark.parametrize("statistics", list(STATISTICS.values()), ids=list(STATISTICS))
def test_a_finish_reads_no_page_of_edges_that_are_gone(db, statistics):
    """After a fan-in, dead rows stay until vacuum; no later finish walks through them."""
    db.run("alter table onceward.dependency_private set (autovacuum_enabled = false)")
    children = [row.job_id for row in db.enqueue_many("child", [{}] * 5000)]
    db.enqueue("sum", after=children, priority=-1)
    db.settle()
    claim = db.running()
    for statement in statistics:
        db.run(statement)
    db.run("discard plans")
    blocks = (
        "select pg_stat_get_xact_blocks_fetched('onceward.dependency_private'::regclass) "
        "     + pg_stat_get_xact_blocks_fetched('onceward.dependency_after_idx'::regclass)"
    )
    with db.conn.transaction():
        before = db.value(blocks)
        db.complete(claim)
        assert db.value(blocks) - before <= 8
