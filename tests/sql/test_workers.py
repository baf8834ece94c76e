from __future__ import annotations

from datetime import timedelta


def test_a_worker_is_listed_with_what_it_told_about_itself(db):
    db.answer("add_lane", name="mail")
    worker = db.answer(
        "register_worker",
        name="w1",
        lanes=["default", "mail"],
        tasks=["ocr", "mail.send"],
        lease="1 min",
        host="box",
        pid=4711,
        version="1.2",
        concurrency=8,
    )

    row = db.one("select * from onceward.workers")
    assert (row.id, row.name, row.host, row.pid, row.version) == (worker, "w1", "box", 4711, "1.2")
    assert (row.lanes, row.tasks, row.concurrency) == (["default", "mail"], ["ocr", "mail.send"], 8)
    assert (row.lease, row.expires_at) == (timedelta(minutes=1), db.now() + timedelta(minutes=1))
    assert (row.state, row.running, row.retired_at) == ("live", 0, None)


def test_every_registration_is_a_new_identity(db):
    assert len({db.answer("register_worker", name="same") for _ in range(5)}) == 5


def test_the_tasks_of_workers_become_known(db):
    db.answer("register_worker", name="a", tasks=["ocr", "mail", "ocr"])
    first = db.now()
    db.clock.advance("1 hour")
    db.answer("register_worker", name="b", tasks=["ocr"])

    seen = {row.name: (row.first_seen_at, row.last_seen_at) for row in db.run("select * from onceward.tasks")}
    assert seen == {"ocr": (first, db.now()), "mail": (first, first)}


def test_a_heartbeat_renews_the_lease(db):
    db.worker("a", lease="30 s")
    db.clock.advance("20 s")

    assert db.heartbeat("a").expires_at == db.now() + timedelta(seconds=30)
    db.clock.advance("20 s")
    assert db.value("select state from onceward.workers") == "live"


def test_frequent_heartbeats_write_only_when_a_sixth_of_the_lease_has_passed(db):
    db.worker("a", lease="30 s")
    before = db.contents()
    db.clock.advance("4.9 s")

    first = db.heartbeat("a").expires_at
    assert db.contents() == before
    db.clock.advance("0.1 s")
    assert db.heartbeat("a").expires_at == first + timedelta(seconds=5)


def test_a_worker_that_retires_hands_its_jobs_back_without_using_up_an_attempt(db):
    claims = [db.running(worker="a", max_attempts=1) for _ in range(3)]
    other = db.running(worker="b")

    assert db.answer("retire_worker", worker_id=db.worker("a")) == 3

    for claim in claims:
        row = db.job(claim.job_id)
        assert (row.state, row.attempt, row.epoch) == ("ready", 0, 1)
        assert db.outcomes(claim.job_id) == ["released"]
    assert db.state(other.job_id) == "running"
    row = db.one("select * from onceward.workers where id = %s", db.worker("a"))
    assert (row.state, row.retired_why) == ("retired", "stopped")


def test_a_worker_can_hand_some_of_its_jobs_back(db):
    back, kept = db.running(worker="a"), db.running(worker="a")

    assert db.answer("release", worker_id=db.worker("a"), job_ids=[back.job_id]) == 1
    assert (db.state(back.job_id), db.state(kept.job_id)) == ("ready", "running")


def test_a_worker_cannot_hand_back_the_jobs_of_another(db):
    claim = db.running(worker="a")

    assert db.answer("release", worker_id=db.worker("b"), job_ids=[claim.job_id]) == 0
    assert db.state(claim.job_id) == "running"


def test_a_worker_counts_the_jobs_it_runs(db):
    db.running(worker="a")
    db.running(worker="a")

    assert db.value("select running from onceward.workers where id = %s", db.worker("a")) == 2


def test_long_descriptions_are_shortened(db):
    db.answer("register_worker", name="n" * 500, host="h" * 500, version="v" * 500)

    row = db.one("select name, host, version from onceward.workers")
    assert {len(text) for text in row} == {200}
