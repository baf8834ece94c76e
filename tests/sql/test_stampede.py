"""Many connections at once: what holds for two holds for a crowd."""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict

import psycopg
import pytest

from tests.support.engine import Engine
from tests.support.races import deadlocks, together

pytestmark = [pytest.mark.race, pytest.mark.slow, pytest.mark.timeout(120)]


def test_64_clients_with_one_set_of_keys_make_one_live_job_per_key_although_a_fifth_rolls_back(db):
    keys = [f"k{n}" for n in range(40)]
    told = defaultdict(list)
    noting = threading.Lock()

    def client(seed):
        choice = random.Random(seed)
        order = choice.sample(keys, len(keys))

        def run(engine):
            for key in order:
                with engine.conn.transaction(force_rollback=choice.random() < 0.2) as block:
                    answer = engine.enqueued("ocr", {"key": key}, key=key)
                if not block.force_rollback:
                    with noting:
                        told[key].append(answer)

        return run

    answers = together(db, [client(seed) for seed in range(64)])
    assert answers == [None] * 64

    live = db.run("select key, id from onceward.jobs")
    assert sorted(row.key for row in live) == sorted(keys)
    for row in live:
        assert {answer.job_id for answer in told[row.key]} == {row.id}
        assert [answer.created for answer in told[row.key]].count(True) == 1
    assert deadlocks(db) == 0


def test_batches_of_overlapping_keys_make_one_live_job_per_key(db):
    keys = [f"k{n}" for n in range(60)]

    def client(seed):
        choice = random.Random(seed)

        def run(engine):
            for _ in range(15):
                batch = choice.sample(keys, 10)
                with engine.conn.transaction(force_rollback=choice.random() < 0.2):
                    engine.enqueue_many("ocr", [{"key": key} for key in batch], keys=batch)

        return run

    assert together(db, [client(seed) for seed in range(16)]) == [None] * 16
    assert max(Counter(row.key for row in db.run("select key from onceward.jobs")).values()) == 1
    assert deadlocks(db) == 0


def test_a_crowd_of_workers_gets_each_job_once(db):
    jobs = {row.job_id for row in db.enqueue_many("ocr", [{}] * 600)}
    workers = [f"w{n}" for n in range(12)]
    for worker in workers:
        db.worker(worker)

    def work(worker, most):
        def run(engine):
            got = []
            # Empty once does not mean empty: others may hold what is left for a moment.
            while engine.value("select exists (select from onceward.job_private)"):
                claims = engine.claims(most, worker=worker)
                got += [claim.job_id for claim in claims]
                engine.exchange(claims, worker=worker)
            return got

        return run

    answers = together(
        db, [work(worker, most) for worker, most in zip(workers, [1, 2, 3, 7] * 3, strict=True)]
    )

    claimed = [job for got in answers for job in got]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) == jobs
    assert set(db.states().values()) == {"done"}


def test_concurrent_workers_never_exceed_the_limit_of_a_key_and_leave_nothing_behind(db):
    """Every way to stop running, maintenance and tidying beside it; no job runs beyond its limit, none is forgotten."""
    limits = {f"key-{n}": n % 3 + 1 for n in range(6)}
    for key, limit in limits.items():
        db.enqueue_many(
            "ocr",
            [{}] * 25,
            concurrency_key=key,
            concurrency_limit=limit,
            max_attempts=1000,
            retry={"waits": [0]},
        )
    in_flight, most_seen, counting = Counter(), Counter(), threading.Lock()
    workers = [f"w{n}" for n in range(6)]
    for worker in workers:
        db.worker(worker)
    key_of = dict(db.run("select id, concurrency_key from onceward.jobs"))
    finished = threading.Event()

    def count(claims, by):
        with counting:
            for claim in claims:
                key = key_of[claim.job_id]
                in_flight[key] += by
                most_seen[key] = max(most_seen[key], in_flight[key])

    def work(worker, seed):
        choice = random.Random(seed)

        def run(engine):
            while not finished.is_set():
                claims = engine.claims(choice.randint(1, 6), worker=worker)
                count(claims, 1)
                rest = []
                for claim in claims:
                    end = choice.random()
                    count([claim], -1)
                    if end < 0.15:
                        engine.fail(claim)
                    elif end < 0.3:
                        engine.snooze(claim, "0")
                    elif end < 0.4:
                        engine.answer("release", worker_id=engine.worker(worker), job_ids=[claim.job_id])
                    else:
                        rest.append(claim)
                assert engine.exchange(rest, worker=worker) == []
                if not claims and engine.value("select not exists (select from onceward.job_private)"):
                    finished.set()

        return run

    def maintain(engine):
        while not finished.is_set():
            engine.promote()
            engine.rescue()
            engine.answer("tidy")
            over = engine.run(
                "select concurrency_key from onceward.job_private where state in ('ready', 'running') "
                " group by 1 having count(*) > max(concurrency_limit)"
            )
            assert over == []

    answers = together(db, [*(work(worker, seed) for seed, worker in enumerate(workers)), maintain])

    assert [answer for answer in answers if answer is not None] == []
    assert all(most_seen[key] <= limit for key, limit in limits.items()), most_seen
    assert set(db.states().values()) == {"done"}
    assert deadlocks(db) == 0


def test_a_crowd_with_one_dead_letter_hears_success_once(db):
    for call in (Engine.requeue, Engine.resolve):
        job = db.dead_letter()
        answers = together(db, [lambda engine, call=call, job=job: call(engine, job)] * 16)
        refused = [answer for answer in answers if isinstance(answer, psycopg.Error)]
        assert [error.sqlstate for error in refused] == ["OW007"] * 15
        if db.state(job) == "ready":
            db.complete(db.claim())


def test_a_crowd_that_cancels_finishes_and_rescues_agrees_on_one_end_per_job(db):
    for round_number in range(15):
        claim = db.running(worker=f"w{round_number}", retry={"waits": [3600]})
        answers = together(
            db,
            [
                lambda engine, claim=claim: engine.complete(claim),
                lambda engine, claim=claim: engine.fail(claim),
                lambda engine, claim=claim: engine.snooze(claim, "1 h"),
                lambda engine, claim=claim: engine.cancel(claim.job_id),
                lambda engine, claim=claim: engine.cancel(claim.job_id, epoch=claim.epoch),
            ],
        )
        told = [
            answer for n, answer in enumerate(answers) if n != 3 and not isinstance(answer, psycopg.Error)
        ]
        # complete answers nothing, fail and snooze a state and a time, cancel a state.
        assert (
            len({"done" if end is None else end if isinstance(end, str) else end[0] for end in told}) == 1
        ), answers
        assert len(db.attempts(claim.job_id)) == 1
    assert deadlocks(db) == 0
