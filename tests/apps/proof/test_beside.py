"""A program that speaks SQL works beside Onceward's worker: every job is done once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from onceward.worker import Worker
from tests.apps.proof.conftest import DAY
from tests.apps.proof.load import measure

pytestmark = [pytest.mark.race, pytest.mark.slow]
BATCHES = 24


def test_two_programs_and_a_worker_share_the_jobs_and_none_is_done_twice(proof):
    batches = [proof.create(DAY) for _ in range(BATCHES)]
    by_program, refused = Counter(), []
    start = threading.Barrier(3)

    def program():
        """Only what the contract documents, by its ids alone."""
        with psycopg.connect(proof.dsn, autocommit=True, row_factory=namedtuple_row) as conn:

            def call(statement, *params):
                return conn.execute(statement, params).fetchone()[0]

            start.wait(30)
            while jobs := conn.execute(
                "select id, batch_id from raw_ops.fn_claim_proof_jobs_v1(2)"
            ).fetchall():
                for job in jobs:
                    answers = [
                        call(
                            "select raw_ops.fn_set_batch_qr_assets_v1(%s, 'https://p/q', 'https://p')",
                            job.batch_id,
                        ),
                        call("select raw_ops.fn_set_batch_label_asset_v1(%s, 'https://p/l')", job.batch_id),
                        call(
                            "select raw_ops.fn_finalize_proof_job_v1(%s, 'https://p/q', 'https://p/l', 5)",
                            job.id,
                        ),
                    ]
                    refused.extend(answer for answer in answers if not answer["success"])
                    by_program[str(job.batch_id)] += 1

    def work():
        start.wait(30)
        # Few slots, so that something is left for the others.
        asyncio.run(Worker(proof.app, dsn=proof.dsn, concurrency=2).drain())

    threads = [
        threading.Thread(target=program),
        threading.Thread(target=program),
        threading.Thread(target=work),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    proof.drain()

    assert refused == []
    assert proof.all("select state, count(*) from raw_ops.proof_jobs group by 1") == [("done", BATCHES)]
    assert proof.one("select max(attempts) from raw_ops.proof_jobs") == 1
    mailed = Counter(mail.message["Subject"].split()[3] for mail in proof.mail.kept)
    done = Counter(
        {
            batch["batch_code"]: by_program[batch["batch_id"]] + mailed[batch["batch_code"]]
            for batch in batches
        }
    )
    assert done == Counter({batch["batch_code"]: 1 for batch in batches})
    # Both had a part in it.
    assert by_program
    assert mailed


def test_many_claim_at_once_and_no_job_is_given_to_two(proof):
    for _ in range(30):
        proof.create(DAY)
    start, claimed = threading.Barrier(10), []

    def claim():
        with proof.connect() as conn:
            start.wait(30)
            claimed.extend(row[0] for row in conn.execute("select id from raw_ops.fn_claim_proof_jobs_v1(5)"))

    threads = [threading.Thread(target=claim) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(claimed) == len(set(claimed)) == 30


def test_batches_of_twenty_callers_all_get_one_of_everything(sql, tmp_path):
    """Forty here; `python -m tests.apps.proof.load` does a thousand."""
    sql.clock.unpin()
    verdict = measure(sql.dsn, tmp_path / "bucket", batches=40, callers=20)
    print(verdict)
    assert verdict["problems"] == []
    assert verdict["most_attempts"] == 1
