from __future__ import annotations

import pytest


def test_an_attempt_keeps_who_when_and_why(db):
    claim = db.running(worker="a", retry={"waits": [60]})
    started = db.now()
    db.clock.advance("3 s")
    db.fail(claim, "no route", error_type="ConnectionError", category="network", traceback="Traceback …")

    (attempt,) = db.attempts(claim.job_id)
    assert (attempt.outcome, attempt.attempt, attempt.epoch) == ("failed", 1, 1)
    assert (attempt.worker_id, attempt.started_at, attempt.ended_at) == (db.worker("a"), started, db.now())
    assert (attempt.error_type, attempt.category) == ("ConnectionError", "network")
    assert (attempt.message, attempt.traceback) == ("no route", "Traceback …")
    assert len(attempt.fingerprint) == 16
    assert attempt.retry_at == db.job(claim.job_id).run_at


def test_all_attempts_of_a_job_are_seen_in_order(db):
    job = db.enqueue(retry={"waits": [0]})
    db.fail(db.claim(worker="a"))
    db.snooze(db.claim(worker="a"), "0")
    db.claim(worker="a")
    db.lose("a")
    db.claim(worker="b")
    db.call("release", worker_id=db.worker("b"))
    last = db.claim(worker="c")
    assert db.outcomes(job) == ["failed", "snoozed", "rescued", "released", "running"]
    db.complete(last)

    assert db.outcomes(job) == ["failed", "snoozed", "rescued", "released", "done"]
    assert [attempt.attempt for attempt in db.attempts(job)] == [1, 2, 2, 3, 3]


def test_long_texts_are_shortened_and_keep_their_telling_ends(db):
    claim = db.running()
    trace = "BEGIN" + "x" * 50_000 + "END"

    db.fail(claim, "m" * 5000, error_type="E" * 500, category="c" * 500, traceback=trace)

    (attempt,) = db.attempts(claim.job_id)
    assert (len(attempt.error_type), len(attempt.category), len(attempt.message)) == (200, 100, 2000)
    assert len(attempt.traceback) < 20_100
    assert attempt.traceback.startswith("BEGIN")
    assert attempt.traceback.endswith("END")
    assert "shortened" in attempt.traceback


def test_a_failure_that_says_nothing_is_recorded_all_the_same(db):
    claim = db.running()

    assert db.fail(claim, None, error_type=None, category=None).state == "scheduled"
    (attempt,) = db.attempts(claim.job_id)
    assert (attempt.error_type, attempt.category, attempt.message) == ("Error", "error", "")


@pytest.mark.parametrize(
    "text", ["日本語 🙂", "'; drop table x; --", "%s %I $1 \\", '{"a": "b"}', "\x01\x7f"]
)
def test_any_text_comes_back_as_it_was(db, text):
    claim = db.running()

    db.fail(claim, text, traceback=text)

    (attempt,) = db.attempts(claim.job_id)
    assert (attempt.message, attempt.traceback) == (text, text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 not found", "order 4711 not found"),
        ("took 1.5 s", "took 22.75 s"),
        ("key 'abc' missing", "key 'xyz' missing"),
        ('file "a.pdf" is gone', 'file "b c.pdf" is gone'),
        ("id 3f2b8c1e-aaaa-4bbb-8ccc-0123456789ab", "id 00000000-0000-4000-8000-000000000000"),
        ("at 0x7f00aa", "at 0x1200bb"),
    ],
)
def test_failures_of_one_kind_have_one_fingerprint(db, one, other):
    prints = [db.value("select onceward.fingerprint('ocr', 'ValueError', %s)", text) for text in (one, other)]

    assert prints[0] == prints[1]


def test_failures_of_different_kinds_have_different_fingerprints(db):
    kinds = [
        ("ocr", "ValueError", "a"),
        ("mail", "ValueError", "a"),
        ("ocr", "KeyError", "a"),
        ("ocr", "ValueError", "b"),
    ]

    assert len({db.value("select onceward.fingerprint(%s, %s, %s)", *kind) for kind in kinds}) == 4


def test_a_finished_job_moves_to_the_archive_whole(db):
    claim = db.running(
        "ocr", {"n": 1}, priority=3, timeout="1 min", headers={"h": "1"}, retry={"waits": [1]}, key="k"
    )
    db.progress(claim, {"percent": 90})
    before = db.job(claim.job_id)
    db.clock.advance("2 s")
    db.complete(claim, {"pages": 3})

    after = db.job(claim.job_id)
    changed = {field for field in before._fields if getattr(before, field) != getattr(after, field)}
    assert changed == {"state", "finished_at", "result"}
    assert (after.state, after.finished_at, after.result) == ("done", db.now(), {"pages": 3})
    assert db.value("select count(*) from onceward.job_private") == 0
    assert db.value("select count(*) from onceward.archive_private") == 1


@pytest.mark.parametrize("result", [None, {}, [], "text", 0, False, {"deep": [1, {"x": None}]}])
def test_a_result_comes_back_as_it_was(db, result):
    job = db.done(result=result)

    assert db.job(job).result == result


def test_progress_is_seen_while_the_job_runs_and_replaced_by_the_next(db):
    claim = db.running()
    db.progress(claim, {"percent": 10})
    db.progress(claim, {"percent": 20})

    assert db.job(claim.job_id).progress == {"percent": 20}
    assert db.state(claim.job_id) == "running"
