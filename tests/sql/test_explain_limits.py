"""Why is this job not running: limits without room, turns of tenants, back-pressure; for a job and for a whole lane."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.limits import fill, limit, uses


@pytest.fixture
def staffed(db):
    """A worker of the default lane with room for more than the limits of these tests give."""
    db.worker("a", tasks=["ocr"], concurrency=50)
    return db


def why(db, job):
    return db.call("explain", job_id=job)


def lane(db, name: str = "default"):
    (row,) = db.call("explain_lane", lane=name)
    return row


def emptied(db, count: int = 3, **options):
    """Jobs that wait for a limit of which everything is taken."""
    limit(db, requests=60, period="60 s", burst=1)
    jobs = fill(db, count + 1, **options)
    assert len(db.claims(10)) == 1
    return jobs[1:]


# ------------------------------------------------------------ limits


def test_a_limit_that_is_empty_is_named_with_its_level_and_when_there_is_room(staffed):
    job, *_ = emptied(staffed)

    (row,) = why(staffed, job)

    assert row.reason == "waits_for_limit"
    assert row.sentence.startswith(
        'Waits for limit "api", of which 0.000 of 1 requests are left; there is room at'
    )
    (told,) = row.detail["limits"]
    assert (told["limit"], told["requests_left"], told["burst"]) == ("api", 0, 1)
    # It is no guess: then, and not before, somebody can claim it.
    staffed.clock.advance(row.until - staffed.now() - timedelta(milliseconds=20))
    assert staffed.claims(1) == []
    staffed.clock.advance("0.1 s")
    assert [claim.job_id for claim in staffed.claims(1)] == [job]


def test_behind_others_of_its_line_the_place_in_the_line_comes_second(staffed):
    *_, last = emptied(staffed, 3)

    rows = why(staffed, last)

    assert [row.reason for row in rows] == ["waits_for_limit", "turn"]
    assert rows[1].detail["ahead"] == 2


def test_the_key_of_a_limit_is_named(staffed):
    limit(staffed, requests=60, burst=1, per_key=True)
    fill(staffed, 1, key="eu")
    job, other = fill(staffed, 1, key="eu")[0], fill(staffed, 1, key="us")[0]
    staffed.claims(1)

    assert why(staffed, job)[0].sentence.startswith('Waits for limit "api" (key "eu"), of which 0.000 of 1')
    assert why(staffed, other)[0].reason != "waits_for_limit"


def test_a_limit_that_a_provider_has_paused(staffed):
    limit(staffed, requests=60, burst=5)
    job, waiting = fill(staffed, 2)
    claim = staffed.claim()
    staffed.of_job("limited", claim, retry_after="10 min", reason="429 from the provider.")

    (row,) = why(staffed, waiting)

    assert row.until == staffed.now() + timedelta(minutes=10)
    assert row.sentence.startswith('Waits for limit "api", paused until ')
    assert row.sentence.endswith("(in 10 minutes): 429 from the provider.")
    assert row.next_step == 'If it need not wait: "onceward limit resume api".'
    # The job that was refused was put off; that is its reason.
    assert why(staffed, job)[0].reason == "snoozed"
    # Afterwards one tries, and the others wait for it.
    staffed.clock.advance("11 min")
    staffed.claim()
    fill(staffed, 1)
    assert "one job tries after a pause" in why(staffed, fill(staffed, 1)[0])[0].sentence


def test_the_slots_of_a_limit_are_held(staffed):
    limit(staffed, slots=2)
    *_, job = fill(staffed, 3)
    assert len(staffed.claims(10)) == 2

    (row,) = why(staffed, job)

    assert (row.reason, row.until) == ("waits_for_limit", None)
    assert row.sentence == 'Waits for limit "api", whose 2 slots are held.'


def test_weight_that_is_not_left(staffed):
    limit(staffed, weight=6000, period="60 s", weight_burst=100)
    *_, job = fill(staffed, 2, weight=80)
    assert len(staffed.claims(10)) == 1

    assert (
        "of which 20.000 of the 80 that it needs are left; there is room at" in why(staffed, job)[0].sentence
    )


def test_a_job_that_needs_more_than_its_limit_gives_since_it_was_lowered(staffed):
    limit(staffed, weight=6000, period="60 s", weight_burst=100)
    (job,) = fill(staffed, 1, weight=80)
    limit(staffed, weight=600, period="60 s", weight_burst=50)
    staffed.clock.advance("1 hour")

    (row,) = why(staffed, job)

    assert (row.sentence, row.until) == ('Waits for limit "api", which never gives 80 at once.', None)
    assert "weight_burst" in row.next_step


def test_of_several_limits_all_are_told_the_last_to_open_first(staffed):
    limit(staffed, requests=60, burst=1)
    limit(staffed, "slow", requests=1, period="1 hour")
    *_, job = fill(staffed, 2, "api", "slow")
    assert len(staffed.claims(10)) == 1

    (row,) = why(staffed, job)

    assert [told["limit"] for told in row.detail["limits"]] == ["slow", "api"]
    assert '; and for limit "api"' in row.sentence


def test_a_limit_that_was_dropped_holds_nobody_back(staffed):
    job, *_ = emptied(staffed)
    staffed.call("drop_limit", name="api")

    assert why(staffed, job)[0].reason == "turn"


# ------------------------------------------------------------ turns


def test_tenants_take_turns_and_the_place_is_that_in_the_own_line(db):
    db.worker("a", tasks=["ocr"], concurrency=1)
    db.running(tenant="initech")
    for _ in range(30):
        db.enqueue(tenant="acme")
    mine = [db.enqueue(tenant="globex") for _ in range(3)]

    rows = [why(db, job)[0] for job in mine]

    assert [row.reason for row in rows] == ["tenant_turn"] * 3
    assert [row.detail["ahead"] for row in rows] == [0, 1, 2]
    assert rows[2].sentence.startswith(
        '2 jobs are ahead of it in its tenant\'s line in lane "default".  '
        "It takes turns with 1 other tenant, whose jobs wait there, too.  The 1 worker of the lane runs 1 of 1 at once"
    )
    assert "onceward lane share default" in rows[2].next_step
    # And so it is: the first of them is among the next two.
    assert mine[0] in {claim.job_id for claim in db.claims(2)}


def test_a_session_of_one_tenant_is_not_told_who_the_others_are(db):
    db.worker("a", tasks=["ocr"], concurrency=1)
    db.running(tenant="acme")
    db.enqueue(tenant="acme")
    job = db.enqueue(tenant="globex")
    globex = db.on(db.connect(role="onceward_operator", tenant="globex"))

    assert why(globex, job)[0].detail["other_tenants"] == 1
    assert "acme" not in str(why(globex, job))


def test_in_a_lane_that_is_not_fair_there_are_no_turns_of_tenants(db):
    db.worker("a", tasks=["ocr"], concurrency=1)
    db.call("add_lane", name="default", fair=False)
    db.enqueue(tenant="acme")
    job = db.enqueue(tenant="globex")

    assert (why(db, job)[0].reason, why(db, job)[0].detail["ahead"]) == ("turn", 1)


def test_lines_of_the_same_tenant_take_turns(db):
    db.worker("a", tasks=["ocr"], concurrency=1)
    limit(db, requests=600, burst=10)
    db.running()
    fill(db, 2)
    db.enqueue()
    job = db.enqueue()

    row = why(db, job)[0]

    assert (row.reason, row.detail["ahead"], row.detail["other_lines"]) == ("turn", 1, 1)
    assert "It takes turns with 1 line of jobs that use other limits, or none." in row.sentence


# ------------------------------------------------------------ back-pressure


def full(db, over: str):
    db.call("set_bound", lane="default", max_depth=2, over=over)
    db.enqueue_many("ocr", [{}] * 3)
    db.clock.advance("2 s")
    db.promote()


@pytest.mark.parametrize("many", [False, True])
def test_a_job_that_was_put_off_because_its_lane_was_full_says_so(staffed, many):
    full(staffed, "defer")
    job = staffed.enqueue_many("ocr", [{}])[0].job_id if many else staffed.enqueue()
    chosen = staffed.enqueue(run_at=staffed.now() + timedelta(hours=1), key="k")

    (row,) = why(staffed, job)

    assert (row.reason, row.until) == ("deferred", staffed.now() + timedelta(minutes=1))
    assert row.sentence.endswith('when it was enqueued: more than 2 jobs are ready in lane "default".')
    assert why(staffed, chosen)[0].reason == "deferred"
    # When it has run once, something else is the reason.
    staffed.clock.advance("2 min")
    staffed.promote()
    for claim in staffed.claims(10):
        staffed.fail(claim)
    assert why(staffed, job)[0].reason == "retry"


def test_a_job_that_was_put_off_because_of_a_limit_says_so(staffed):
    limit(staffed, requests=10, period="60 s", threshold=0.1, over="defer")
    fill(staffed, 20)
    staffed.clock.advance("2 s")
    staffed.promote()

    (row,) = why(staffed, staffed.enqueue(uses=uses("api")))

    assert row.reason == "deferred"
    assert 'jobs wait for limit "api"' in row.sentence


@pytest.mark.parametrize(
    ("over", "told"), [("reject", "refused"), ("defer", "put off"), ("signal", "Its bound is passed")]
)
def test_a_lane_that_is_full_says_what_it_answers(staffed, over, told):
    full(staffed, over)

    row = lane(staffed)

    assert told in row.sentence
    assert row.sentence.endswith('more than 2 jobs are ready in lane "default".')
    # What is measured no more does not count.
    staffed.clock.advance("2 min")
    assert told not in lane(staffed).sentence


# ------------------------------------------------------------ lanes


def test_a_lane_in_which_everything_waits_for_a_limit(staffed):
    emptied(staffed)

    row = lane(staffed)

    assert row.reason == "waits_for_limit"
    assert row.sentence.startswith("3 jobs are ready, the oldest due at ")
    assert (
        'and all of it waits for limit "api", of which 0.000 of 1 requests are left; there is room'
        in row.sentence
    )
    assert row.until > staffed.now()
    assert row.detail["limits"] == ["api"]


def test_a_lane_in_which_some_of_it_waits_for_a_limit(staffed):
    emptied(staffed)
    staffed.enqueue()

    row = lane(staffed)

    assert (row.reason, row.detail["lines"], row.detail["lines_without_room"]) == ("working", 2, 1)
    assert '1 of 2 lines waits for limit "api"' in row.sentence


def test_all_lines_of_a_lane_are_counted(staffed):
    for tenant in ("acme", "globex", "default"):
        staffed.enqueue_many("ocr", [{}] * 2, tenant=tenant)

    assert lane(staffed).detail["ready"] == 6
    globex = staffed.on(staffed.connect(role="onceward_operator", tenant="globex"))
    assert lane(globex).detail["ready"] == 2


def test_a_tenant_among_hundreds_is_told_of_its_own_line(staffed):
    for n in range(150):
        staffed.enqueue(tenant=f"tenant-{n:03}")
    staffed.enqueue_many("ocr", [{}] * 3, tenant="zz")
    last = staffed.on(staffed.connect(role="onceward_operator", tenant="zz"))

    assert lane(last).detail["ready"] == 3


# ------------------------------------------------------------ bounds


def test_explaining_a_long_lane_of_many_lines_reads_little(db):
    """By the index of claims, also with the statistics of an empty table."""
    db.run("alter table onceward.job_private set (autovacuum_enabled = off)")
    limit(db, requests=60, burst=1)
    db.worker("a", tasks=["ocr"], concurrency=50)
    fill(db, 1)
    for tenant in ("acme", "globex", "default"):
        db.run(
            "select count(*) from onceward.enqueue_many('ocr', array(select '{}'::jsonb from generate_series(1, 15000)), "
            "p_tenant => %s)",
            tenant,
        )
    *_, job = fill(db, 3000, tenant="globex")
    statement = "select seq_tup_read, idx_tup_fetch from pg_stat_all_tables where relname = 'job_private'"

    def fetched(act) -> int:
        db.run("select pg_stat_force_next_flush()")
        before = db.one(statement)
        act()
        db.run("select pg_stat_force_next_flush()")
        after = db.one(statement)
        assert after.seq_tup_read == before.seq_tup_read
        return after.idx_tup_fetch - before.idx_tup_fetch

    assert fetched(lambda: why(db, job)) < 2500
    assert fetched(lambda: lane(db)) < 12_000
    assert fetched(lambda: db.value("select onceward.oldest_ready('default')")) < 100
    assert fetched(lambda: db.run("select * from onceward.ready_heads()")) < 100
