"""Why is this job not running?  One test for each reason; the first row is the answer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.engine import Engine


class Explained:
    """Asks, and remembers every reason that was given as an answer."""

    def __init__(self, db: Engine) -> None:
        self.db = db

    def __call__(self, job, db=None):
        rows = (db or self.db).call("explain", job_id=job)
        assert rows, "there is always an answer"
        for row in rows:
            assert row.sentence.endswith("."), row.sentence
            assert row.sentence[:1].isupper() or row.sentence[:1].isdigit(), row.sentence
            assert row.next_step is None or row.next_step.endswith("."), row.next_step
        return rows

    def answer(self, job, db=None):
        return self(job, db)[0]

    def reasons(self, job) -> list[str]:
        return [row.reason for row in self(job)]


@pytest.fixture
def explain(db):
    return Explained(db)


@pytest.fixture
def staffed(db):
    """A worker of the default lane that knows the tasks of these tests."""
    db.worker("a", tasks=["ocr", "child"], host="box", pid=7, concurrency=1)
    return db


# ------------------------------------------------------------ what the job itself waits for


def test_a_time_in_the_future(staffed, explain):
    at = staffed.now() + timedelta(hours=2)
    job = staffed.enqueue(run_at=at)

    row = explain.answer(job)

    assert (row.reason, row.until) == ("run_at", at)
    assert row.sentence == f"Is to start at {at:%Y-%m-%d %H:%M:%S}Z (in 2 hours), not before."
    assert f"onceward job run-now {job}" in row.next_step
    assert explain.reasons(job) == ["run_at"]


def test_a_retry_with_the_error_and_the_attempt(staffed, explain):
    claim = staffed.running(retry={"waits": [60]})
    staffed.fail(claim, "the scanner\n  is  on fire.")

    row = explain.answer(claim.job_id)

    assert row.reason == "retry"
    assert row.sentence.startswith(
        "Attempt 1 of 8 failed with ValueError: the scanner is on fire; it is tried again at"
    )
    assert row.detail["error"]["type"] == "ValueError"
    assert row.until == staffed.job(claim.job_id).run_at


def test_a_snooze_with_its_reason(staffed, explain):
    claim = staffed.running()
    staffed.snooze(claim, "5 min", reason="the bank is closed")

    row = explain.answer(claim.job_id)

    assert row.reason == "snoozed"
    assert "put it off until" in row.sentence
    assert row.sentence.endswith("(in 5 minutes): the bank is closed.")
    assert row.detail["snoozes"] == 1


def test_a_sleep_with_its_step(staffed, explain):
    claim = staffed.running()
    until = staffed.sleep(claim, "3 days", step="cool down")

    row = explain.answer(claim.job_id)

    assert (row.reason, row.until) == ("sleeps", until)
    assert 'Sleeps in step "cool down" until' in row.sentence


def test_an_early_start_after_a_failure_is_not_told_as_the_retry(staffed, explain):
    claim = staffed.running(retry={"waits": [600]})
    staffed.fail(claim, permanent=True)
    staffed.requeue(claim.job_id, run_at=staffed.now() + timedelta(hours=1))

    assert explain.answer(claim.job_id).reason == "run_at"


def test_a_time_that_has_come(staffed, explain):
    job = staffed.enqueue(run_at=staffed.now() + timedelta(minutes=1))
    staffed.clock.advance(timedelta(minutes=2))

    row = explain.answer(job)

    assert row.reason == "due"
    assert "within about a second" in row.sentence
    assert row.next_step is None


def test_a_time_that_has_come_while_nobody_is_there(db, explain):
    job = db.enqueue(run_at=db.now() + timedelta(minutes=1))
    db.clock.advance(timedelta(minutes=2))

    row = explain.answer(job)

    assert row.reason == "due"
    assert "no worker is alive" in row.sentence
    assert "onceward worker" in row.next_step


def test_an_event_with_its_name_and_until_when(staffed, explain):
    claim = staffed.running()
    until = staffed.wait_event(claim, "paid:42", timeout="1 hour")

    row = explain.answer(claim.job_id)

    assert (row.reason, row.until) == ("waits_for_event", until)
    assert row.sentence.startswith('Waits for event "paid:42" and gives up at')
    assert "onceward event emit" in row.next_step


def test_an_event_without_end_has_no_until(staffed, explain):
    claim = staffed.running()
    staffed.wait_event(claim, "paid")

    row = explain.answer(claim.job_id)

    assert (row.sentence, row.until) == ('Waits for event "paid".', None)


def test_an_event_that_has_come(staffed, explain):
    claim = staffed.running()
    staffed.wait_event(claim, "paid")
    staffed.emit("paid")

    row = explain.answer(claim.job_id)

    assert row.reason == "waits_for_event"
    assert "has come" in row.sentence


def test_other_jobs_with_their_names_and_states(staffed, explain):
    nodes = staffed.workflow(
        {"name": "scan"}, {"name": "weigh"}, {"name": "ship", "after": ["scan", "weigh"]}
    )
    staffed.promote()
    staffed.complete(next(c for c in staffed.claims(2) if c.job_id == nodes["weigh"]))

    row = explain.answer(nodes["ship"])

    assert row.reason == "waits_for_jobs"
    assert row.sentence == f"Waits for 1 job, the first: scan (running, {nodes['scan']})."
    assert row.detail["policy"] == "fail"
    assert row.next_step == f'Ask the same of it: "onceward job explain {nodes["scan"]}".'


def test_children_that_are_joined(staffed, explain):
    claim = staffed.running()
    children = staffed.spawn(claim, [{}] * 7)
    staffed.join(claim, children, step="gather")

    row = explain.answer(claim.job_id)

    assert row.reason == "waits_for_jobs"
    assert row.sentence.startswith('Waits in step "gather" for 7 jobs, the first: child (ready, ')
    assert [job["job_id"] for job in row.detail["jobs"]] == [str(child) for child in sorted(children)[:5]]


def test_other_jobs_that_have_all_ended(staffed, explain):
    first = staffed.done()
    job = staffed.enqueue(after=[first])
    staffed.run("update onceward.dependency_private set outcome = 'done'")

    assert "Every job that it waits for has ended" in explain.answer(job).sentence


def test_a_concurrency_key_and_who_holds_it(staffed, explain):
    holder = staffed.running(concurrency_key="customer 7")
    second = staffed.enqueue(concurrency_key="customer 7")
    third = staffed.enqueue(concurrency_key="customer 7")
    staffed.clock.advance(timedelta(minutes=3))

    row = explain.answer(second)

    assert row.reason == "waits_for_key"
    assert (
        f'"customer 7": at most 1 at once, held by job {holder.job_id} (ocr, on worker "a" since'
        in row.sentence
    )
    assert "(3 minutes ago)" in row.sentence
    assert row.detail["holders"][0]["worker"] == "a"
    assert row.next_step == f'Ask what holds it: "onceward job explain {holder.job_id}".'
    assert explain.answer(third).sentence.endswith("; 1 job of the key waits before it.")


def test_a_concurrency_key_that_has_room(staffed, explain):
    job = staffed.enqueue(concurrency_key="k")

    row = explain.answer(job)

    assert row.reason == "waits_for_key"
    assert "has room" in row.sentence


def test_a_job_that_expired_before_it_could_start(staffed, explain):
    job = staffed.enqueue(expires_at=staffed.now() + timedelta(minutes=1))
    staffed.clock.advance(timedelta(minutes=2))

    row = explain.answer(job)

    assert row.reason == "expired"
    assert "the next worker that looks cancels it" in row.sentence


# ------------------------------------------------------------ what the lane lacks


def test_a_paused_lane_by_whom_and_why(staffed, explain):
    staffed.call("pause_lane", name="default", reason="the printer is out of paper.")
    job = staffed.enqueue()

    row = explain.answer(job)

    assert row.reason == "lane_paused"
    assert row.sentence.endswith("by postgres: the printer is out of paper.")
    assert row.next_step == 'Open it with "onceward lane resume default".'
    assert explain.reasons(job) == ["lane_paused"]


def test_a_job_that_waits_for_its_time_in_a_paused_lane_is_told_both(staffed, explain):
    staffed.call("pause_lane", name="default")
    job = staffed.enqueue(run_at=staffed.now() + timedelta(hours=1))

    assert explain.reasons(job) == ["run_at", "lane_paused"]


def test_a_lane_that_nobody_serves(db, explain):
    db.call("add_lane", name="mail")
    db.worker("a", tasks=["ocr"], lanes=["default"])
    job = db.enqueue(lane="mail")

    row = explain.answer(job)

    assert row.reason == "no_worker"
    assert row.sentence == 'No live worker serves lane "mail".'
    assert row.detail["served"] == ["default"]
    assert "--lanes mail" in row.next_step


def test_a_lane_whose_worker_is_gone(db, explain):
    db.worker("a", tasks=["ocr"], lease="30 s")
    job = db.enqueue()
    db.clock.advance(timedelta(minutes=5))

    row = explain.answer(job)

    assert row.reason == "no_worker"
    assert "the last one was heard of at" in row.sentence


def test_a_task_that_no_worker_knows_and_the_nearest_name(db, explain):
    db.worker("a", tasks=["send_mail", "ocr", "resize"])
    job = db.enqueue("send_mial")

    row = explain.answer(job)

    assert row.reason == "no_worker_for_task"
    assert row.sentence == (
        'No live worker of lane "default" knows task "send_mial"; the nearest name is "send_mail".'
    )
    assert row.detail["nearest"] == "send_mail"


def test_no_name_is_offered_that_is_not_near(db, explain):
    db.worker("a", tasks=["ocr", "resize"])

    assert explain.answer(db.enqueue("newsletter")).detail["nearest"] is None


def test_a_task_that_is_known_in_another_lane(db, explain):
    db.call("add_lane", name="mail")
    db.worker("a", tasks=["ocr"], lanes=["default"])
    db.worker("b", tasks=["send"], lanes=["mail"])
    job = db.enqueue("send")

    row = explain.answer(job)

    assert row.reason == "no_worker_for_task"
    assert row.sentence.endswith('knows task "send"; those of lane "mail" do.')


def test_a_job_that_a_worker_put_off_because_it_had_no_such_task(db, explain):
    db.worker("a", tasks=["resize"])
    claim = db.running("ocr")
    db.snooze(claim, "30 s", reason='this worker has no task "ocr"', counted=False)

    row = explain.answer(claim.job_id)

    assert row.reason == "no_worker_for_task"
    assert row.until == db.job(claim.job_id).run_at


@pytest.mark.parametrize("others", [["ocr"], None])
def test_that_the_worker_had_no_such_task_is_told_also_when_another_has_or_none_is_left(db, explain, others):
    db.worker("a", tasks=["resize"])
    claim = db.running("ocr")
    db.snooze(claim, "30 s", reason='this worker has no task "ocr"', counted=False)
    if others:
        db.worker("b", tasks=others)
    else:
        db.run("select onceward.retire_worker(id) from onceward.workers")

    row = explain.answer(claim.job_id)

    assert row.sentence.startswith('The worker that took it has no task "ocr". It is offered again at ')
    assert ("no_worker" in explain.reasons(claim.job_id)) is (others is None)


def test_a_worker_that_announced_no_tasks_may_know_any(db, explain):
    db.worker("a")

    assert explain.answer(db.enqueue("anything")).reason == "turn"


def test_steps_of_a_version_that_no_worker_runs_any_more(db, explain):
    db.worker("a", tasks=["ocr"], version="1.4")
    claim = db.running(retry={"waits": [60]})
    db.finish_step(claim, "read", version="1.4")
    db.fail(claim)
    assert "new_version" not in explain.reasons(claim.job_id)

    db.call("retire_worker", worker_id=db.worker("a"))
    db.worker("b", tasks=["ocr"], version="1.5")

    rows = explain(claim.job_id)
    assert [row.reason for row in rows] == ["retry", "new_version"]
    assert rows[1].sentence.startswith("1 step was done by version 1.4, and the live workers run 1.5:")


# ------------------------------------------------------------ its turn


def test_the_next_one_while_there_are_free_slots(staffed, explain):
    row = explain.answer(staffed.enqueue())

    assert row.reason == "turn"
    assert row.sentence.startswith('Is the next in lane "default", which has free slots')
    assert row.next_step is None


def test_its_place_in_the_lane_and_what_the_workers_do(staffed, explain):
    staffed.running("child")
    for priority in (5, 0, 0, -5):
        job = staffed.enqueue(priority=priority)
    third = staffed.enqueue()

    row = explain.answer(third)

    assert row.reason == "turn"
    assert row.sentence == (
        '3 jobs are ahead of it in lane "default".  The 1 worker of the lane runs 1 of 1 at once, mostly 1 child.'
    )
    assert "more workers" in row.next_step
    assert explain.answer(job).detail["ahead"] == 4


def test_counting_stops_at_a_thousand(staffed, explain):
    staffed.enqueue_many("ocr", [{}] * 1100)
    last = staffed.enqueue()

    assert explain.answer(last).sentence.startswith("More than 1000 jobs are ahead")


# ------------------------------------------------------------ running and over


def test_a_running_job_since_when_and_where(staffed, explain):
    claim = staffed.running(timeout=timedelta(hours=1))
    staffed.progress(claim, {"pages": 3})
    staffed.clock.advance(timedelta(minutes=4))

    row = explain.answer(claim.job_id)

    assert row.reason == "running"
    assert row.sentence.endswith('(4 minutes ago) on worker "a", attempt 1 of 8.')
    assert (row.detail["host"], row.detail["pid"], row.detail["progress"]) == ("box", 7, {"pages": 3})
    assert row.until == staffed.job(claim.job_id).started_at + timedelta(hours=1)


def test_a_job_that_was_asked_to_stop(staffed, explain):
    claim = staffed.running()
    staffed.cancel(claim.job_id, "no longer wanted")

    rows = explain(claim.job_id)

    assert [row.reason for row in rows] == ["cancelling", "running"]
    assert ": no longer wanted; its worker ends it" in rows[0].sentence


@pytest.mark.parametrize(
    ("max_attempts", "fate"),
    [(8, "it starts again then"), (1, "it becomes a dead letter then")],
)
def test_a_job_whose_lease_is_over(db, explain, max_attempts, fate):
    db.worker("a", tasks=["ocr"], lease="30 s")
    claim = db.running(max_attempts=max_attempts)
    db.clock.advance(timedelta(minutes=1))

    row = explain.answer(claim.job_id)

    assert row.reason == "lease_over"
    assert row.sentence.startswith('Its worker "a" is gone, last heard of at')
    assert fate in row.sentence
    assert row.next_step == "No worker is alive to do that: start one."
    db.worker("b")
    assert explain.answer(claim.job_id).next_step.startswith("Any live worker does that")


def test_a_job_past_its_timeout(staffed, explain):
    claim = staffed.running(timeout=timedelta(seconds=30))
    staffed.clock.advance(timedelta(minutes=2))

    row = explain.answer(claim.job_id)

    assert row.reason == "lease_over"
    assert "longer than its timeout of 30 seconds" in row.sentence


def test_a_dead_letter_with_its_cause_and_what_to_do(staffed, explain):
    job = staffed.dead_letter(message="no such customer")

    row = explain.answer(job)

    assert row.reason == "dead_letter"
    assert row.sentence.endswith("after attempt 1 of 8: ValueError: no such customer.")
    assert row.next_step.startswith(f'Mend the cause, then "onceward dead-letter requeue {job}"')


@pytest.mark.parametrize(
    ("category", "advice"),
    [
        ("payload", "The payload does not fit"),
        ("result", "its result could not be kept"),
        ("timeout", "It ran out of time"),
        ("lost_worker", "Its worker died each time"),
        ("snoozes_used_up", "It was put off too often"),
        ("uncertain", "onceward delivery decide"),
    ],
)
def test_each_kind_of_dead_letter_has_its_own_advice(staffed, explain, category, advice):
    claim = staffed.running()
    staffed.fail(claim, permanent=True, category=category)

    assert advice in explain.answer(claim.job_id).next_step


def test_a_job_that_is_done(staffed, explain):
    claim = staffed.running()
    staffed.clock.advance(timedelta(seconds=12))
    staffed.complete(claim)

    row = explain.answer(claim.job_id)

    assert row.reason == "done"
    assert row.sentence.endswith("in attempt 1, which took 12 seconds.")
    assert row.next_step is None


def test_a_cancelled_job_with_its_note(staffed, explain):
    job = staffed.enqueue()
    staffed.cancel(job, "ordered twice")

    row = explain.answer(job)

    assert row.reason == "cancelled"
    assert row.sentence.endswith(": ordered twice.")
    assert f"onceward job requeue {job}" in row.next_step


def test_a_resolved_job_with_its_note(staffed, explain):
    job = staffed.dead_letter()
    staffed.resolve(job, "sent by post")

    row = explain.answer(job)

    assert row.reason == "resolved"
    assert ": sent by post (by postgres)." in row.sentence


# ------------------------------------------------------------ not there


def test_a_job_that_never_was(db, explain):
    row = explain.answer("00000000-0000-4000-8000-000000000000")

    assert row.reason == "unknown"
    assert row.sentence == "No such job: it was never committed, or this session may not see it."


def test_a_job_that_is_no_longer_kept_but_has_left_something(staffed, explain):
    claim = staffed.running()
    staffed.fail(claim, permanent=True)
    staffed.resolve(claim.job_id)
    staffed.run("delete from onceward.archive_private where id = %s", claim.job_id)

    row = explain.answer(claim.job_id)

    assert row.reason == "removed"
    assert 'It was of task "ocr", and the last that is known: attempt 1 ended as dead_letter' in row.sentence


def test_an_id_from_before_everything_that_is_kept(staffed, explain):
    staffed.done()
    old = staffed.value("select onceward.id_at(now() - interval '400 days')::text")
    old = f"{old[:14]}7{old[15:]}"

    row = explain.answer(old)

    assert row.reason == "removed"
    assert "the archive begins later" in row.sentence


def test_no_job_at_all_is_refused(db):
    with db.refused("OW008", "job_id must name a job"):
        db.call("explain", job_id=None)


# ------------------------------------------------------------ tenants


def bound(db, role: str, tenant: str | None) -> Engine:
    return db.on(db.connect(role=f"onceward_{role}", tenant=tenant))


@pytest.mark.parametrize("role", ["producer", "worker", "operator", "auditor"])
@pytest.mark.parametrize("tenant", ["globex", None, "", "%"])
def test_a_job_of_another_tenant_is_answered_like_one_that_never_was(staffed, explain, role, tenant):
    jobs = [
        staffed.done(tenant="acme"),
        staffed.dead_letter(tenant="acme", message="secret of acme"),
        staffed.enqueue(tenant="acme", run_at=staffed.now() + timedelta(days=1)),
    ]
    other = bound(staffed, role, tenant)

    never = explain(staffed.value("select onceward.new_id()"), other)
    for job in jobs:
        rows = explain(job, other)
        assert [(row.reason, row.sentence, row.next_step) for row in rows] == [
            (row.reason, row.sentence, row.next_step) for row in never
        ]
    assert explain.answer(jobs[0], bound(staffed, role, "acme")).reason == "done"


def test_of_the_jobs_of_others_only_their_number_is_told(staffed, explain):
    staffed.running("child", tenant="acme")
    hidden = staffed.enqueue("ocr", tenant="acme", key="secret of acme")
    mine = staffed.enqueue(tenant="globex")

    row = explain.answer(mine, bound(staffed, "operator", "globex"))

    assert (row.detail["ahead"], row.detail["other_tenants"]) == (0, 1)
    assert row.detail["busy_with"] == {"(other tenants)": 1}
    assert str(hidden) not in str(row)
    assert "acme" not in str(row)
