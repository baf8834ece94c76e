"""From where a worker claims: floors, and when it looks from the beginning."""

from __future__ import annotations

import time

from onceward.worker.claims import LONGEST, SHORTEST, SWEEP_SECONDS, Claims


def claims_after(*, took: float) -> Claims:
    """A worker under load, whose last look from the beginning took so long and is just over."""
    claims = Claims({"default": None}, 10, 1.0)
    claimed = ("claimed", "id", 1, "task", "{}", "default", 0, 70, 1, 8, "default", None, None, None, "")
    claims.learned([claimed] * 10, asked=10, swept=True, took=took)
    return claims


def test_under_load_a_worker_claims_from_its_floors_on_until_a_second_has_passed():
    claims = claims_after(took=0.001)
    now = time.monotonic()

    assert claims.floors(now) == {"default": {0: 70}}
    assert claims.floors(now + SWEEP_SECONDS) is None


def test_when_jobs_have_returned_it_looks_from_the_beginning_at_once():
    claims = claims_after(took=0.001)
    claims.look_back()

    assert claims.floors(time.monotonic()) is None


def test_a_lane_is_known_as_full_until_the_next_claim_that_finds_room():
    claims = claims_after(took=0.001)
    full = ("lines", None, None, None, '{"full": true}', "default", *[None] * 8, "acme")

    claims.learned([full], asked=5, swept=True, took=0.001)
    assert claims.is_full("default")
    # Whose turn it is stays.
    assert claims.lines() == {"default": {"after": "acme", "floors": {}}}
    # Finishing alone looks for nothing.
    claims.learned([], asked=0, swept=False, took=0.001)
    assert claims.is_full("default")

    claims.learned([], asked=5, swept=True, took=0.001)
    assert not claims.is_full("default")


def test_but_not_when_looking_is_slow():
    claims = claims_after(took=0.5)
    claims.look_back()

    assert claims.floors(time.monotonic()) == {"default": {0: 70}}


def test_a_job_that_never_stood_in_line_moves_no_floor():
    claims = claims_after(took=0.001)
    let_in = ("claimed", "id", 1, "task", "{}", "default", 0, 0, 1, 8, "default", None, None, None, "")

    assert claims.learned([let_in], asked=1, swept=True, took=0.001) == 1
    assert claims.learned([let_in], asked=1, swept=False, took=0.001) == 1
    assert claims.floors(time.monotonic()) == {"default": {0: 70}}


def test_floors_of_lines_with_limits_are_kept_though_the_main_line_is_empty():
    claims = Claims({"default": None}, 10, 1.0)
    limited = (
        "claimed",
        "id",
        1,
        "task",
        "{}",
        "default",
        0,
        70,
        1,
        8,
        "default",
        None,
        None,
        None,
        "\x1fapi",
    )
    turn = ("lines", None, None, None, "{}", "default", *[None] * 8, "\x1fapi")

    claims.learned([*[limited] * 10, turn], asked=10, swept=True, took=0.001)

    assert claims.floors(time.monotonic()) == {"default": {}}
    assert claims.lines() == {"default": {"after": "\x1fapi", "floors": {"\x1fapi": {0: 70}}}}


def test_a_claim_that_found_a_limit_in_use_says_nothing_about_how_much_there_is():
    claims = claims_after(took=0.001)
    busy = ("lines", None, None, None, '{"busy": true, "next_in": 0.005}', "default", *[None] * 8, "\x1fapi")

    claims.learned([busy], asked=5, swept=False, took=0.001)
    now = time.monotonic()
    assert claims.hungry
    # Alone, it is tried again a moment later, and not as fast as can be.
    assert not claims.is_hungry(now)
    assert claims.is_hungry(now + SHORTEST)
    assert claims.next_poll <= now + SHORTEST

    # The longer that goes on, the less often.
    for _ in range(9):
        claims.learned([busy], asked=5, swept=False, took=0.001)
    now = time.monotonic()
    assert not claims.is_hungry(now + LONGEST / 2)
    assert claims.is_hungry(now + LONGEST)
    assert claims.next_poll <= now + LONGEST


def test_a_claim_that_found_nothing_says_that_there_is_no_more():
    claims = claims_after(took=0.001)
    empty = ("lines", None, None, None, "{}", "default", *[None] * 8, "\x1fapi")

    claims.learned([empty], asked=5, swept=False, took=0.001)
    assert not claims.hungry


def test_lines_have_floors_of_their_own_and_leave_that_of_the_main_line():
    claims = claims_after(took=0.001)
    of_line = ("claimed", "id", 1, "task", "{}", "default", 0, 90, 1, 8, "default", None, None, None, "acme")
    turn = ("lines", None, None, None, "{}", "default", *[None] * 8, "acme")

    claims.learned([of_line, (*of_line[:7], 91, *of_line[8:]), turn], asked=2, swept=False, took=0.001)

    assert claims.floors(time.monotonic()) == {"default": {0: 70}}
    assert claims.lines() == {"default": {"after": "acme", "floors": {"acme": {0: 91}}}}
