"""Whose turn it is: tenants take turns, by their shares, and a low priority has a bounded wait."""

from __future__ import annotations

from collections import Counter

import pytest
from psycopg.types.json import Jsonb


def tenants(claims):
    return Counter(claim.tenant for claim in claims)


def claimed(rows):
    return [row for row in rows if row.outcome == "claimed"]


class Turns:
    """A worker that hands its cursors in, as the Python worker does."""

    def __init__(self, db, lane="default"):
        self.db, self.lane, self.lines = db, lane, None

    def claim(self, most, **options):
        rows = self.db.exchange(
            lanes=[self.lane], max=most, lines=self.lines and Jsonb(self.lines), **options
        )
        for row in rows:
            if row.outcome == "lines":
                self.lines = {self.lane: {"after": row.line}}
        return claimed(rows)


def test_a_quiet_tenant_is_served_beside_a_noisy_one(db):
    db.enqueue_many("ocr", [{}] * 2000, tenant="noisy")
    db.enqueue_many("ocr", [{}] * 10, tenant="quiet")

    assert tenants(db.claims(50)) == {"noisy": 40, "quiet": 10}


@pytest.mark.slow
def test_ten_jobs_are_served_first_of_all_beside_two_hundred_thousand(db):
    db.run("select onceward.enqueue_many('ocr', array_fill('{}'::jsonb, array[200000]), p_tenant => 'noisy')")
    db.enqueue_many("ocr", [{}] * 10, tenant="quiet")
    turns = Turns(db)

    rounds = [tenants(turns.claim(10)) for _ in range(3)]

    assert sum(served["quiet"] for served in rounds) == 10
    assert rounds[0]["noisy"] > 0


def test_a_quiet_tenant_is_served_beside_a_noisy_default_tenant(db):
    db.enqueue_many("ocr", [{}] * 2000)
    db.enqueue_many("ocr", [{}] * 10, tenant="quiet")

    assert tenants(db.claims(20)) == {"default": 10, "quiet": 10}


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_tenants_take_turns_however_few_are_claimed_at_once(db, most):
    for tenant in ("a", "b", "c", "default"):
        db.enqueue_many("ocr", [{}] * 100, tenant=tenant)
    turns = Turns(db)

    seen = tenants(claim for _ in range(84 // most) for claim in turns.claim(most))

    assert max(seen.values()) - min(seen.values()) <= 2 * most
    assert set(seen) == {"a", "b", "c", "default"}


def test_a_worker_that_calls_claim_takes_turns_as_well(db):
    for tenant in ("a", "b", "c"):
        db.enqueue_many("ocr", [{}] * 10, tenant=tenant)

    assert tenants(claim for _ in range(12) for claim in db.claims(1)) == {"a": 4, "b": 4, "c": 4}


def test_a_thousand_tenants_all_get_their_turn(db):
    for number in range(300):
        db.enqueue_many("ocr", [{}] * 3, tenant=f"t{number}")
    turns = Turns(db)

    seen = Counter()
    rounds = 0
    while len(seen) < 300:
        seen += tenants(turns.claim(50))
        rounds += 1
    assert rounds <= 12
    assert max(seen.values()) <= 2


def test_what_one_tenant_does_not_use_the_others_get(db):
    db.enqueue_many("ocr", [{}] * 3, tenant="a")
    db.enqueue_many("ocr", [{}] * 5, tenant="b")
    db.enqueue_many("ocr", [{}] * 100, tenant="c")

    assert tenants(db.claims(60)) == {"a": 3, "b": 5, "c": 52}


def test_shares_weigh_the_turns(db):
    for tenant in ("gold", "plain"):
        db.enqueue_many("ocr", [{}] * 1000, tenant=tenant)
    db.call("set_share", lane="default", tenant="gold", share=3)

    assert tenants(db.claims(400)) == {"gold": 300, "plain": 100}


def test_a_tenant_with_many_lines_gets_no_more_than_one_with_a_single_line(db):
    db.answer("set_limit", name="api", requests=100_000, burst=1000, per_key=True)
    for key in range(5):
        db.enqueue_many("ocr", [{}] * 100, tenant="many", uses=Jsonb([{"limit": "api", "key": f"k{key}"}]))
    db.enqueue_many("ocr", [{}] * 500, tenant="one")

    seen = tenants(db.claims(100))

    # Five lines round up five times, and no more.
    assert seen["many"] <= 60


def test_priority_counts_within_a_tenant(db):
    for tenant in ("a", "b"):
        for priority in (0, 5):
            db.enqueue_many("ocr", [{}] * 10, tenant=tenant, priority=priority * (tenant == "a"))

    claims = db.claims(20)

    assert tenants(claims) == {"a": 10, "b": 10}
    assert {claim.priority for claim in claims if claim.tenant == "a"} == {5}


def test_in_a_lane_that_is_not_fair_everybody_stands_in_one_line(db):
    db.call("add_lane", name="plain", fair=False)
    first = [db.enqueue(lane="plain", tenant=tenant) for tenant in ("a", "a", "a", "b")]

    assert [claim.job_id for claim in db.claims(3, lanes=["plain"])] == first[:3]


def test_jobs_keep_their_line_through_retries(db):
    claim = db.running(tenant="a")
    db.fail(claim, retry_after="0")
    db.promote()

    assert db.value("select line from onceward.job_private") == "a"


def test_a_tenants_order_is_that_of_becoming_ready(db):
    jobs = [db.enqueue(tenant="a") for _ in range(5)]

    assert [claim.job_id for claim in db.claims(5)] == jobs


@pytest.mark.parametrize("tenant", ["default", "acme"])
def test_a_job_that_has_waited_too_long_is_not_passed_over_any_more(db, tenant):
    low = db.enqueue(priority=-5, tenant=tenant)
    db.clock.advance("6 min")
    db.enqueue_many("ocr", [{}] * 100, priority=5, tenant=tenant)

    assert low in {claim.job_id for claim in db.claims(8)}


def test_overdue_jobs_get_a_quarter_and_the_lowest_priority_is_not_forgotten(db):
    for priority in (-3, -2, -1):
        db.enqueue_many("ocr", [{}] * 100, priority=priority)
    db.clock.advance("6 min")
    db.enqueue_many("ocr", [{}] * 100, priority=5)

    seen = Counter(claim.priority for claim in db.claims(48))

    assert seen[5] in (36, 35)
    assert min(seen[-3], seen[-2], seen[-1]) >= 4


def test_before_that_time_priority_decides(db):
    db.enqueue(priority=-5)
    db.clock.advance("4 min")
    db.enqueue_many("ocr", [{}] * 100, priority=5)

    assert {claim.priority for claim in db.claims(20)} == {5}


def test_a_lane_may_let_low_priorities_wait_for_ever(db):
    db.call("add_lane", name="default", max_wait="0")
    db.enqueue(priority=-5)
    db.clock.advance("1 day")
    db.enqueue_many("ocr", [{}] * 100, priority=5)

    assert {claim.priority for claim in db.claims(20)} == {5}


# ------------------------------------------------------------ what exchange tells a worker


def test_a_lane_without_lines_says_nothing_about_them(db):
    db.enqueue_many("ocr", [{}] * 3)

    assert [row.outcome for row in db.exchange(lanes=["default"], max=5)] == ["claimed"] * 3


def test_lines_are_looked_for_from_the_beginning_or_when_the_worker_knows_of_some(db):
    db.enqueue(tenant="a")
    floors = Jsonb({"default": {"0": 0}})

    assert db.exchange(lanes=["default"], max=5, floors=floors) == []
    known = Jsonb({"default": {"after": ""}})
    assert len(claimed(db.exchange(lanes=["default"], max=5, floors=floors, lines=known))) == 1


def test_a_floor_of_a_line_bounds_its_scan(db):
    first, second = db.enqueue(tenant="a"), db.enqueue(tenant="a")
    seq = db.value("select ready_seq from onceward.job_private where id = %s", first)
    lines = Jsonb({"default": {"after": "", "floors": {"a": {"0": seq}}}})

    rows = db.exchange(lanes=["default"], max=5, floors=Jsonb({"default": {"0": 0}}), lines=lines)

    assert [row.job_id for row in claimed(rows)] == [second]


def test_a_floor_of_a_line_with_limits_bounds_its_scan_and_its_limits_hold(db):
    db.call("set_limit", name="api", requests=3, period="1 h", burst=3)
    jobs = [db.enqueue(uses=Jsonb([{"limit": "api"}])) for _ in range(5)]
    seqs = {
        row.id: (row.line, row.ready_seq)
        for row in db.run("select id, line, ready_seq from onceward.job_private")
    }
    line, second = seqs[jobs[1]]
    known = Jsonb({"default": {"after": "", "floors": {line: {"0": second}}}})

    rows = db.exchange(lanes=["default"], max=10, floors=Jsonb({"default": {}}), lines=known)

    assert [row.job_id for row in claimed(rows)] == jobs[2:]
    assert db.exchange(lanes=["default"], max=10)[0].outcome == "lines", (
        "three requests were taken, and there are no more"
    )


def test_lines_beside_one_that_is_known_are_found(db):
    db.enqueue_many("ocr", [{}] * 3, tenant="b")
    for tenant in "acd":
        db.enqueue(tenant=tenant)
    floor = db.value("select max(ready_seq) from onceward.job_private where tenant = 'b'")
    known = Jsonb({"default": {"after": "b", "floors": {"b": {"0": floor}, "x": {"0": 0}}}})

    rows = db.exchange(lanes=["default"], max=10, floors=Jsonb({"default": {}}), lines=known)

    assert [row.tenant for row in claimed(rows)] == ["c", "d", "a"]


def test_a_line_with_limits_that_nobody_has_looked_at_gives_nothing(db):
    """Its first job may come between the look at its limits and the claim."""
    db.call("set_limit", name="api", requests=1, period="1 h", burst=1)
    db.enqueue(uses=Jsonb([{"limit": "api"}]))

    (room,) = db.call("room_in", uses=None, max=1)

    assert room.most == 0


def test_of_lines_with_limits_no_more_are_taken_than_can_start(db):
    db.answer("set_limit", name="api", requests=1000, burst=100)
    db.enqueue_many("ocr", [{}] * 50, uses=Jsonb([{"limit": "api"}]))
    db.enqueue_many("ocr", [{}] * 50)

    rows = claimed(db.exchange(lanes=["default"], max=60, start=3))

    assert sum(row.line != "" for row in rows) == 3
    assert sum(row.line == "" for row in rows) == 50


def test_a_worker_hears_when_there_is_room_and_how_soon_a_job_has_to_begin(db):
    db.answer("set_limit", name="api", requests=60, period="60 s", burst=1)
    db.enqueue_many("ocr", [{}] * 2, uses=Jsonb([{"limit": "api"}]))

    *_, info = db.exchange(lanes=["default"], max=5)

    assert info.outcome == "lines"
    assert info.payload["start_in"] == 1.2
    assert 1.0 <= info.payload["next_in"] <= 1.1


def test_a_worker_is_asleep_though_lines_have_no_room(db):
    db.answer("set_limit", name="api", requests=1)
    db.enqueue_many("ocr", [{}] * 2, uses=Jsonb([{"limit": "api"}]))
    db.exchange(lanes=["default"], max=5, sleep=True)

    db.exchange(lanes=["default"], max=5, sleep=True)

    assert db.value("select asleep_until > onceward.now() from onceward.worker_private") is True


def test_a_share_that_makes_no_sense_is_refused(db):
    with db.refused("OW008", "share must be between 1 and 1000"):
        db.call("set_share", lane="default", tenant="a", share=0)
    with db.refused("OW002"):
        db.call("set_share", lane="nope", tenant="a", share=1)
    with db.refused("OW008", "tenant must be"):
        db.call("set_share", lane="default", tenant="*", share=1)


def test_a_worker_hears_that_somebody_else_is_taking_from_the_limit(db):
    db.answer("set_limit", name="api", requests=1000, burst=100)
    db.enqueue_many("ocr", [{}] * 5, uses=Jsonb([{"limit": "api"}]))
    other = db.on(db.connect(autocommit=False))
    assert len(claimed(other.exchange(worker="b", lanes=["default"], max=2))) == 2

    rows = db.exchange(lanes=["default"], max=10)
    (told,) = [row.payload for row in rows if row.outcome == "lines"]
    assert (claimed(rows), told["busy"], told["next_in"]) == ([], True, 0.005)

    other.conn.commit()
    rows = db.exchange(lanes=["default"], max=10)
    (told,) = [row.payload for row in rows if row.outcome == "lines"]
    assert (len(claimed(rows)), "busy" in told) == (3, False)
