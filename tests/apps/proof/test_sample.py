"""What the demo shows, and that it shows it once."""

from __future__ import annotations

import asyncio

import pytest

from onceward_apps.proof import sample

pytestmark = pytest.mark.slow


def test_the_samples_tell_their_stories_and_a_second_start_changes_nothing(proof):
    for _ in range(2):
        asyncio.run(sample.fill(proof.dsn, proof.storage))
    statuses = proof.all("select status, count(*) from raw_ops.batches group by status order by status")
    assert dict(statuses) == {"QA_HOLD": 4, "REJECTED": 1, "RELEASED": 11}
    verdicts = proof.all(
        "select raw_ops.fn_release_verdict(id) -> 'can_be_released' from raw_ops.batches where status = 'QA_HOLD' order by created_at"
    )
    assert verdicts == [(True,), (False,), (False,), (False,)]
    # Weeks of history: created first, tested later, released after that.
    assert proof.one("select count(*) from raw_ops.proof_batch_volume where batches > 0") >= 11
    assert (
        proof.one(
            "select count(*) from raw_ops.batches as b join raw_ops.lab_results as r on r.batch_id = b.id"
            " where r.recorded_at < b.created_at or b.released_at < b.created_at"
        )
        == 0
    )
    assert len(list((proof.folder / "lab-reports").iterdir())) == 14


def test_a_worker_makes_their_labels_and_one_is_a_dead_letter(proof):
    asyncio.run(sample.fill(proof.dsn, proof.storage))
    proof.drain()
    states = dict(proof.all("select state, count(*) from raw_ops.proof_jobs group by state"))
    assert states == {"done": 15, "dead_letter": 1}
    assert len(proof.mail.kept) == 15
    (letter,) = proof.all(
        "select error_category, qr_uploaded, label_generated from raw_ops.proof_partial_completions"
    )
    assert letter == ("pdf_generation", True, False)
