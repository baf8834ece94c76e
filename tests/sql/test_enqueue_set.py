"""enqueue_set says for all jobs at once what enqueue_many says for each."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

THREE = [Jsonb({"n": 1})] * 3
KEYS = {
    "none": None,
    "new": ["a", "b", "c"],
    "some taken": ["taken", None, "c"],
    "all taken": ["taken", "taken", "taken"],
    "one twice": ["a", "b", "a"],
}


def enqueue_set(db, **options):
    """What enqueue_set has answered, as rows of enqueue_many."""
    (row,) = db.call("enqueue_set", task="ocr", **options)
    ids = row.job_ids or []
    return [
        (job_id, True, row.answer, row.until, row.reason)
        if is_new
        else (job_id, False, "existing", None, None)
        for job_id, is_new in zip(ids, row.are_new or [True] * len(ids), strict=True)
    ]


def enqueue_many(db, **options):
    return [tuple(row) for row in db.call("enqueue_many", task="ocr", **options)]


@pytest.mark.parametrize("keys", list(KEYS.values()), ids=list(KEYS))
def test_keys_that_are_taken_are_named_in_both(db, keys):
    taken = db.enqueue("ocr", {"n": 1}, key="taken")
    first = enqueue_set(db, payloads=THREE, keys=keys)
    again = enqueue_many(db, payloads=THREE, keys=keys)

    given = keys or [None] * 3
    new = {key for key in given if key not in {None, "taken"}}
    assert [job_id == taken for job_id, *_ in first] == [key == "taken" for key in given]
    assert sum(is_new for _, is_new, *_ in first) == len(new) + given.count(None)
    for key, one, other in zip(given, first, again, strict=True):
        # Repeated, a key finds what the first call has made.
        expected = (one[0], False, "existing", None, None) if key else (other[0], *one[1:])
        assert other == expected


def test_no_jobs_have_no_answers(db):
    assert enqueue_set(db, payloads=[]) == enqueue_many(db, payloads=[]) == []


@pytest.mark.parametrize("over", ["signal", "defer", "reject"])
def test_a_lane_above_its_bound_answers_the_same_in_both(db, over):
    db.call("set_bound", lane="default", max_depth=2, over=over, defer_by="10 min")
    db.enqueue_many("ocr", [{}] * 3)
    db.clock.advance("2 s")
    db.promote()
    (found,) = db.call("enqueue_set", task="ocr", payloads=THREE)
    many = db.call("enqueue_many", task="ocr", payloads=THREE)

    assert found.answer == {"signal": "accepted", "defer": "deferred", "reject": "rejected"}[over]
    assert found.reason == 'more than 2 jobs are ready in lane "default"'
    assert found.until == (db.now() + timedelta(minutes=10) if over == "defer" else None)
    assert (found.job_ids is None) == (over == "reject")
    assert [(row.answer, row.reason, row.until) for row in many] == [
        (found.answer, found.reason, found.until)
    ] * 3
    assert [row.job_id is None for row in many] == [over == "reject"] * 3
