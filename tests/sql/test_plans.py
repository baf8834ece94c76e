"""A million jobs: claim, promote and rescue read what they need through their indexes, whatever the statistics say.

Counted, not explained: the counters of the transaction tell what the statements inside the functions really read.
"""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.support.engine import Engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

READY, SCHEDULED, BLOCKED, RUNNING, DEAD = 500_000, 430_000, 50_000, 10_000, 10_000
WORKERS = 20
KEYS = 500
# Of each index, what one call of the given size may read per job asked for, and on top of that.
PER_JOB, EXTRA = 5, 150

# Times and ids are made from n: calling functions a million times would take most of the time of this test.
FILL = """
insert into onceward.job_private
  (id, tenant, lane, task, state, priority, ready_seq, max_attempts, created_at, run_at, payload, worker_id, started_at,
   epoch, attempt, dead_at, expires_at, concurrency_key, concurrency_limit, concurrency_hash)
select (lpad(to_hex(%(first)s + n), 12, '0') || '70008000000000000000')::uuid,
       'default', case when n %% 10 = 0 then 'mail' else 'default' end, 'ocr', %(state)s, (n %% 3)::smallint,
       case when %(state)s in ('ready', 'running') then %(first)s + n end, 8, %(now)s,
       case when %(state)s = 'scheduled' then %(now)s + n * interval '1 second' else %(now)s end, '{}',
       case when %(state)s = 'running' then (%(workers)s::uuid[])[n %% cardinality(%(workers)s::uuid[]) + 1] end,
       case when %(state)s = 'running' then %(now)s end, 1, 1,
       case when %(state)s = 'dead_letter' then %(now)s end,
       case when n %% 20 = 0 and %(state)s in ('ready', 'scheduled') then %(now)s + n * interval '1 minute' end,
       case when %(state)s in ('blocked', 'running') then 'key-' || n %% %(keys)s end,
       case when %(state)s in ('blocked', 'running') then 1 end,
       case when %(state)s in ('blocked', 'running') then hashtextextended(E'default\\x1fkey-' || n %% %(keys)s, 0) end
  from generate_series(1, %(count)s) as n
"""


@pytest.fixture(scope="module")
def million(onceward_server):
    with onceward_server.cloned() as database, Engine(database) as engine:
        engine.clock.pin()
        engine.answer("add_lane", name="mail")
        engine.run("alter table onceward.job_private set (autovacuum_enabled = false)")
        workers = [engine.worker(f"w{number}") for number in range(WORKERS)]
        first = 0
        for state, count in {
            "ready": READY, "scheduled": SCHEDULED, "blocked": BLOCKED, "running": RUNNING, "dead_letter": DEAD,
        }.items():  # fmt: skip
            named = {
                "state": state,
                "count": count,
                "first": first,
                "now": engine.now(),
                "workers": workers,
                "keys": KEYS,
            }
            engine.conn.execute(FILL, named)
            first += count
        engine.run("select setval('onceward.ready_seq', %s)", first + 1)
        engine.run("analyze onceward.job_private")
        assert engine.value("select count(*) from onceward.job_private") == 1_000_000
        yield engine


# The last are those of a queue that was analysed when it had just run empty, before a million jobs came.
STATISTICS = {
    "fresh": [],
    "none": [
        "delete from pg_statistic where starelid = 'onceward.job_private'::regclass",
        "update pg_class set reltuples = -1, relpages = 0 where oid = 'onceward.job_private'::regclass",
    ],
    "of an empty table": [
        "delete from pg_statistic where starelid = 'onceward.job_private'::regclass",
        (
            "update pg_class set reltuples = 0, relpages = 1 where oid = 'onceward.job_private'::regclass "
            "or oid in (select indexrelid from pg_index where indrelid = 'onceward.job_private'::regclass)"
        ),
    ],
}
with_any_statistics = pytest.mark.parametrize("statistics", list(STATISTICS.values()), ids=list(STATISTICS))


class Reads:
    """What the calls inside one transaction, undone afterwards, read of the table of live jobs."""

    def __init__(self, db, statistics) -> None:
        self._db, self._statistics = db, statistics

    def of(self, call):
        db = self._db
        with db.conn.transaction(force_rollback=True):
            for statement in self._statistics:
                db.run(statement)
            db.run("discard plans")
            before = self._counters()
            answer = call()
            after = self._counters()
        self.scans = after.pop("")[0] - before.pop("")[0]
        self.tuples = {
            name: after[name][1] - before[name][1] for name in after if after[name] != before[name]
        }
        return answer

    def _counters(self):
        rows = self._db.run(
            "select '' as name, pg_stat_get_xact_numscans('onceward.job_private'::regclass) as scans, "
            "       pg_stat_get_xact_tuples_returned('onceward.job_private'::regclass) as tuples "
            "union all "
            "select indexrelid::regclass::text, pg_stat_get_xact_numscans(indexrelid), pg_stat_get_xact_tuples_returned(indexrelid) "
            "  from pg_index where indrelid = 'onceward.job_private'::regclass"
        )
        return {row.name: (row.scans, row.tuples) for row in rows}

    def counters(self):
        """For those who look in between."""
        return self._counters()

    def after(self, before):
        now = self._counters()
        self.inside = {name: now[name][1] - before[name][1] for name in now}

    def were_few(self, asked: int, *, extra: int = EXTRA) -> bool:
        assert self.scans == 0, "the whole table was read"
        assert all(count <= asked * PER_JOB + extra for count in self.tuples.values()), self.tuples
        return True


@pytest.fixture
def reads(million, statistics):
    return Reads(million, statistics)


@with_any_statistics
def test_a_claim_reads_the_jobs_it_takes(million, reads):
    claims = reads.of(lambda: million.claims(10, worker="w0"))

    assert len(claims) == 10
    assert reads.were_few(10)
    assert reads.tuples["onceward.job_ready_idx"] >= 10


@with_any_statistics
def test_a_claim_from_two_lanes_reads_the_jobs_it_takes(million, reads):
    claims = reads.of(lambda: million.claims(1000, worker="w0", lanes=["mail", "default"]))

    assert len(claims) == 1000
    assert reads.were_few(1000)


@with_any_statistics
def test_a_claim_from_a_lane_with_a_cap_reads_the_running_jobs_and_those_it_takes(million, reads):
    def cap_and_claim():
        million.answer("add_lane", name="mail", max_running=RUNNING // 10 + 7)
        before = reads.counters()
        claims = million.claims(10, worker="w0", lanes=["mail"])
        reads.after(before)
        return claims

    # What the other tests here have claimed and undone would still be in the index.
    million.run("reindex index onceward.job_running_idx")
    claims = reads.of(cap_and_claim)

    assert len(claims) == 7
    assert reads.scans == 0
    assert reads.inside["onceward.job_running_idx"] <= RUNNING + EXTRA
    others = [n for name, n in reads.inside.items() if name not in {"onceward.job_running_idx", ""}]
    assert max(others) <= 10 * PER_JOB + EXTRA


@with_any_statistics
def test_an_exchange_reads_the_jobs_it_finishes_and_takes(million, reads):
    running = million.run(
        "select id as job_id, epoch from onceward.job_private where state = 'running' and worker_id = %s limit 200",
        million.worker("w0"),
    )
    rows = reads.of(lambda: million.exchange(running, worker="w0", lanes=["default"], max=200))

    assert len(rows) == 200
    # Each of the 200 has a key, in which room is looked for: the waiting ones, and who holds it.
    assert reads.were_few(200, extra=200 * (RUNNING // KEYS + BLOCKED // KEYS))


@with_any_statistics
def test_an_exchange_above_a_floor_does_not_walk_what_lies_below(million, reads):
    floor = million.value("select ready_seq from onceward.job_private where state = 'ready' and lane = 'default' and priority = 1 "
                          "order by ready_seq offset 100000 limit 1")  # fmt: skip
    rows = reads.of(
        lambda: million.exchange(worker="w0", lanes=["default"], max=50, floors={"default": {"1": floor}})
    )

    assert [row.ready_seq > floor for row in rows] == [True] * 50
    assert reads.were_few(50)


@with_any_statistics
def test_a_claim_from_lines_reads_the_jobs_it_takes_and_one_of_each_line(million, reads):
    def enqueue_and_claim():
        million.answer("set_limit", name="full", requests=1000, burst=10)
        million.answer("set_limit", name="empty", requests=1)
        for name in ("full", "empty"):
            million.enqueue_many("ocr", [{}] * 500, uses=Jsonb([{"limit": name}]))
        for tenant in range(20):
            million.enqueue_many("ocr", [{}] * 20, tenant=f"t{tenant}")
        before = reads.counters()
        claims = million.claims(100, worker="w0")
        reads.after(before)
        return claims

    claims = reads.of(enqueue_and_claim)
    # What was undone must not be in the way of the next test.
    million.run("vacuum (index_cleanup on) onceward.job_private")

    assert len(claims) == 100
    # Each line is looked for, and a line with limits is looked at twice; a line without room is not walked.
    assert reads.inside["onceward.job_ready_idx"] <= 100 * PER_JOB + EXTRA


@with_any_statistics
def test_a_lane_without_lines_pays_one_look_for_them(million, reads):
    assert reads.of(lambda: million.value("select onceward.has_lines('default')")) is False
    assert reads.were_few(0, extra=2)


@with_any_statistics
def test_promote_reads_the_jobs_that_are_due(million, reads):
    million.clock.advance("500 s")
    try:
        answer = reads.of(lambda: million.promote(limit=100))
    finally:
        million.clock.pin(million.value("select max(created_at) from onceward.job_private"))

    assert answer.promoted == 100
    assert reads.were_few(100)


@with_any_statistics
def test_promote_reads_next_to_nothing_when_nothing_is_due(million, reads):
    answer = reads.of(million.promote)

    assert (answer.promoted, answer.expired) == (0, 0)
    assert reads.were_few(0)


@with_any_statistics
def test_promote_reads_the_jobs_that_have_expired(million, reads):
    million.clock.advance("1000 min")
    try:
        answer = reads.of(lambda: million.promote(limit=10))
    finally:
        million.clock.pin(million.value("select max(created_at) from onceward.job_private"))

    assert answer.expired == 10
    assert reads.were_few(10)


@with_any_statistics
def test_a_new_blocked_job_is_admitted_by_reading_its_key_only(million, reads):
    def enqueue_and_promote():
        for n in range(20):
            million.enqueue(concurrency_key=f"new-{n}")
        return million.promote()

    answer = reads.of(enqueue_and_promote)

    assert answer.promoted == 20
    assert reads.were_few(20)


@with_any_statistics
def test_finishing_lets_the_first_of_each_key_in_and_reads_none_of_the_others_that_wait(million, reads):
    """A hundred wait for each key; twenty running jobs of it are in the way, and are cleared beforehand."""
    keys = 20

    def finish():
        million.run(
            "delete from onceward.job_private where state = 'running' and worker_id <> %s",
            million.worker("w1"),
        )
        claims = [
            million.run(
                "update onceward.job_private set concurrency_key = %s, concurrency_hash = hashtextextended(%s, 0) where id = "
                "(select id from onceward.job_private where state = 'running' and worker_id = %s order by id offset %s limit 1) "
                "returning id as job_id, epoch",
                f"key-{n}", f"default\x1fkey-{n}", million.worker("w1"), n,
            )[0]
            for n in range(keys)
        ]  # fmt: skip
        million.run(
            "delete from onceward.job_private where state = 'running' and id <> all (%s)",
            [claim.job_id for claim in claims],
        )
        before = reads.counters()
        million.exchange(claims, worker="w1", lanes=[], max=0)
        reads.after(before)
        return million.value(
            "select count(*) from onceward.job_private where state = 'ready' and concurrency_key is not null"
        )

    assert reads.of(finish) == keys
    # Of those that held a place, the entries are still there.
    assert reads.inside["onceward.job_key_idx"] <= keys * (RUNNING // KEYS + PER_JOB), reads.inside


KEYED = """
insert into onceward.key_private (tenant, task, key, job_id, payload_hash)
select 'default', 'ocr', 'other ' || n, gen_random_uuid(), '' from generate_series(1, 5000) as n
"""


def test_finishing_gives_idempotency_keys_back_and_reads_none_of_the_others(db):
    """Planned when the table of keys was empty, and asked for again when it is not."""
    jobs = db.enqueue_many(payloads=[{}] * 40, keys=[f"mine {n}" for n in range(40)])
    first, second = db.claims(20), db.claims(20)
    with db.conn.transaction(force_rollback=True):
        db.run(
            "update pg_class set reltuples = 0, relpages = 1 where relname in ('key_private', 'key_private_pkey')"
        )
        db.exchange(first, max=0)
        db.run(KEYED)
        read = "select pg_stat_get_xact_tuples_returned('onceward.key_private_pkey'::regclass)"
        before = db.value(read)
        db.exchange(second, max=0)

        assert db.value(read) - before <= len(second)
        assert db.value("select pg_stat_get_xact_numscans('onceward.key_private'::regclass)") == 0
        assert db.value("select count(*) from onceward.key_private") == 5000
    assert len(jobs) == 40


@with_any_statistics
def test_rescue_reads_the_jobs_of_the_workers_that_died(million, reads):
    def kill_and_rescue():
        million.run(
            "update onceward.worker_private set expires_at = onceward.now() where id = %s",
            million.worker("w0"),
        )
        return million.rescue(limit=100, thorough=False)

    assert reads.of(kill_and_rescue) == 100
    assert reads.were_few(RUNNING // WORKERS)


@with_any_statistics
def test_rescue_reads_next_to_nothing_when_nobody_died(million, reads):
    assert reads.of(lambda: million.rescue(thorough=False)) == 0
    assert reads.were_few(0)


@with_any_statistics
def test_a_thorough_rescue_reads_running_jobs_only(million, reads):
    assert reads.of(million.rescue) == 0
    assert reads.were_few(RUNNING)


@with_any_statistics
def test_completing_one_job_reads_one_job(million, reads):
    (claim,) = million.run(
        "select id as job_id, epoch from onceward.job_private where state = 'running' and worker_id = %s limit 1",
        million.worker("w0"),
    )
    reads.of(lambda: million.complete(claim))

    assert reads.were_few(1, extra=RUNNING // KEYS + BLOCKED // KEYS + EXTRA)


SINGLE = {
    "fail": lambda db, claim: db.fail(claim),
    "snooze": lambda db, claim: db.snooze(claim),
    "progress": lambda db, claim: db.progress(claim, {"n": 1}),
    "cancel": lambda db, claim: db.cancel(claim.job_id, epoch=claim.epoch),
    "heartbeat": lambda db, claim: db.heartbeat("w0"),
    "enqueue": lambda db, claim: db.enqueue(key="k"),
    "read one job": lambda db, claim: db.job(claim.job_id),
    "requeue": lambda db, claim: db.requeue(
        db.value("select id from onceward.dead_letters order by dead_at limit 1")
    ),
}


@with_any_statistics
@pytest.mark.parametrize("call", list(SINGLE.values()), ids=list(SINGLE))
def test_what_is_done_to_one_job_reads_one_job(million, reads, call):
    (claim,) = million.run(
        "select id as job_id, epoch from onceward.job_private where state = 'running' and worker_id = %s limit 1",
        million.worker("w0"),
    )
    reads.of(lambda: call(million, claim))

    assert reads.were_few(1, extra=RUNNING // KEYS + BLOCKED // KEYS + EXTRA)
