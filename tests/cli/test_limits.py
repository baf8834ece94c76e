"""`onceward limit`, and what `onceward lane` says about turns and bounds."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb


def test_a_limit_is_set_with_every_option(cli, db):
    done = cli.ok(
        "limit", "set", "api", "--requests", "500", "--per", "2m", "--tokens", "90000", "--tokens-per", "1h", "--slots", "5",
        "--burst", "7", "--tokens-burst", "4000", "--allowance", "3s", "--per-key", "--threshold", "50", "--over", "defer",
    )  # fmt: skip

    assert 'limit "api" is set' in done.err
    (row,) = db.run("select * from onceward.limits where name = 'api'")
    assert (row.requests, row.period, row.weight, row.weight_period) == (
        500, timedelta(minutes=2), 90_000, timedelta(hours=1),
    )  # fmt: skip
    assert (row.slots, row.burst, row.weight_burst, row.allowance) == (5, 7, 4000, timedelta(seconds=3))
    assert (row.per_key, row.threshold, row.over, row.source) == (True, 0.5, "defer", "person")
    assert (
        "nothing changed"
        in cli.ok("limit", "set", "openai", "--requests", "1").err
        + cli.ok("limit", "set", "openai", "--requests", "1").err
    )


def test_limits_are_listed_with_what_is_left(cli, db):
    cli.ok("limit", "set", "api", "--requests", "100", "--slots", "2")
    db.enqueue_many("ocr", [{}] * 5, uses=Jsonb([{"limit": "api"}]))
    db.claims(5)

    (line,) = [line for line in cli.ok("limit", "list").out.splitlines() if line.startswith("api")]
    assert "100 per 60s, 0 now" in line
    assert "2 of 2 held" in line
    assert "no requests left" in line
    (info,) = [info for info in cli.json("limit", "list") if info["name"] == "api"]
    assert (info["slots_held"], info["reason"]) == (2, "no requests left")


def test_a_limit_is_shown_for_each_key(cli, db):
    cli.ok("limit", "set", "api", "--tokens", "1000", "--per-key")
    for key in ("a", "b"):
        db.call("acquire", limit="api", key=key, weight=10)

    shown = cli.ok("limit", "show", "api").out
    assert "1,000 per 60s, at most 30 at once" in shown
    assert [info["key"] for info in cli.json("limit", "show", "api")] == ["a", "b"]


def test_a_limit_is_paused_resumed_and_dropped(cli, db):
    cli.ok("limit", "set", "api", "--requests", "100")

    assert 'limit "api" is paused until' in cli.ok("limit", "pause", "api", "30s", "--reason", "429").err
    assert "paused: 429" in cli.ok("limit", "list").out
    assert 'limit "api" is open' in cli.ok("limit", "resume", "api").err
    assert "was not paused" in cli.ok("limit", "resume", "api").err
    assert 'limit "api" is gone' in cli.ok("limit", "drop", "api").err
    assert "api" not in [info["name"] for info in cli.json("limit", "list")]


@pytest.mark.parametrize("verb", [["show"], ["drop"], ["resume"], ["pause", "30s"]])
def test_an_unknown_limit_is_answered_with_the_nearest(cli, verb):
    error = cli.refused(1, "limit", verb[0], "opanai", *verb[1:])

    assert 'limit "opanai" does not exist' in error
    assert 'Did you mean "openai"?' in error


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--requests", "0"], 1, "requests must be between"),
        ([], 1, "must have requests, weight or slots"),
        (["--requests", "many"], 2, "--requests must be a whole number"),
        (["--requests", "5", "--per", "soon"], 2, "--per must be a duration"),
        (["--requests", "5", "--over", "drop"], 2, "--over must be one of accept, defer"),
    ],
)
def test_a_wrong_limit_is_refused(cli, arguments, status, words):
    assert words in cli.refused(status, "limit", "set", "api", *arguments)


def test_a_lane_is_set(cli, db):
    cli.ok("lane", "set", "default", "--not-fair", "--max-wait", "1h")
    row = db.one("select fair, max_wait from onceward.lanes")
    assert row == (False, timedelta(hours=1))
    cli.ok("lane", "set", "default", "--fair", "--max-wait", "0s")
    assert db.one("select fair, max_wait from onceward.lanes") == (True, None)


def test_a_lane_is_bounded(cli, db):
    cli.ok(
        "lane",
        "set",
        "default",
        "--max-depth",
        "2",
        "--max-age",
        "5m",
        "--max-bytes",
        "1MiB",
        "--over",
        "reject",
    )
    cli.ok(
        "lane", "set", "default", "--max-depth", "1", "--of", "acme", "--over", "defer", "--defer-by", "5m"
    )
    db.enqueue_many("ocr", [{}] * 3)
    db.promote()

    shown = cli.ok("lane", "bounds").out
    assert "2 jobs, 5m, 1,048,576 bytes" in shown
    assert "more than 2 jobs are ready" in shown
    found = cli.json("lane", "bounds", "default")
    assert [(bound["tenant"], bound["over"], bound["depth"]) for bound in found["bounds"]] == [
        ("", "reject", 3),
        ("acme", "defer", 0),
    ]
    cli.ok("lane", "set", "default", "--no-bound")
    cli.ok("lane", "set", "default", "--no-bound", "--of", "acme")
    assert cli.json("lane", "bounds")["bounds"] == []


def test_a_tenant_gets_more_turns(cli, db):
    assert (
        'tenant "acme" has 3 turns in lane "default"' in cli.ok("lane", "share", "default", "acme", "3").err
    )
    assert cli.json("lane", "bounds")["shares"] == [{"lane": "default", "tenant": "acme", "share": 3}]
    assert "Shares" in cli.ok("lane", "bounds").out


def test_what_a_lane_cannot_be_set_to_is_refused(cli):
    assert "nothing to set" in cli.refused(2, "lane", "set", "default")
    assert "cannot be given with a bound" in cli.refused(
        2, "lane", "set", "default", "--no-bound", "--max-depth", "1"
    )
    assert 'Did you mean "default"?' in cli.refused(1, "lane", "set", "defualt", "--fair")
    assert 'Did you mean "default"?' in cli.refused(1, "lane", "share", "defualt", "acme", "3")
    assert "--over must be one of" in cli.refused(
        2, "lane", "set", "default", "--max-depth", "1", "--over", "x"
    )
