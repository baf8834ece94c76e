"""Steps and events on the command line: what a job has done, what it waits for, and how to let it go on."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest

from onceward.model import EventInfo, PartialCompletion, StepInfo


def names(kind) -> set[str]:
    return {field.name for field in fields(kind)}


@pytest.fixture
def half(db):
    """A dead letter with one step done and one failed."""
    claim = db.running("bill", max_attempts=1)
    db.finish_step(claim, "priced", {"amount": 7}, seq=1, took="340 ms")
    db.fail_step(claim, "charged", "card \x1b[31m declined", seq=2, tries=3, took="2 s")
    db.fail(claim, "declined")
    return claim.job_id


def test_step_list_has_the_columns_of_the_view(cli, half):
    priced, charged = cli.json("step", "list", half)

    assert set(priced) == names(StepInfo)
    assert (priced["name"], priced["state"], priced["result"], priced["took"]) == (
        "priced",
        "done",
        {"amount": 7},
        0.34,
    )
    assert (charged["name"], charged["state"], charged["tries"]) == ("charged", "failed", 3)


def test_step_list_as_a_table_tells_how_long_how_often_and_why(cli, half):
    head, priced, charged = cli.ok("step", "list", half).out.splitlines()

    assert head.split()[:5] == ["STEP", "STATE", "KIND", "TRIES", "TOOK"]
    assert priced.split()[:5] == ["priced", "done", "step", "1", "340ms"]
    assert '{"amount": 7}' in priced
    assert charged.split()[:5] == ["charged", "failed", "step", "3", "2s"]
    assert "ValueError: card \\x1b[31m declined" in charged


def test_a_job_without_steps_and_a_job_that_is_not_there(cli, db):
    assert cli.ok("step", "list", db.enqueue()).err == "no steps\n"
    assert "does not exist" in cli.refused(1, "step", "list", "00000000-0000-7000-8000-000000000000")
    assert "job id must be a UUID, got 'x'" in cli.refused(2, "step", "list", "x")


def test_partial_lists_jobs_that_stopped_half_way(cli, db, half):
    whole = db.running("other")
    db.finish_step(whole, "priced")
    db.complete(whole)

    (found,) = cli.json("step", "partial")
    row = cli.ok("step", "partial", "--task", "bill").out.splitlines()[1]

    assert set(found) == names(PartialCompletion)
    assert (found["job_id"], found["done"], found["last_done"]) == (str(half), 1, "priced")
    assert found["last_failed"] == "charged"
    assert row.split()[:7] == [str(half), "dead_letter", "bill", "1/1", "1", "priced", "charged"]
    assert "ValueError: declined" in row


def test_partial_of_a_task_that_nobody_announced_says_so(cli, db, half):
    db.worker("b", tasks=["bill"])

    answer = cli.ok("step", "partial", "--task", "bil")

    assert "no job has stopped half-way" in answer.err
    assert 'Did you mean "bill"?' in answer.err


def test_one_tenant_is_not_shown_what_another_has_half_done(cli, half):
    assert cli.json("step", "partial", "--tenant", "red") == []
    assert "does not exist" in cli.refused(1, "step", "list", half, "--tenant", "red")


def test_job_show_has_the_steps(cli, half):
    shown = cli.json("job", "show", half)["steps"]
    text = cli.ok("job", "show", half).out

    assert [step["name"] for step in shown] == ["priced", "charged"]
    assert "1. priced  done  took 340ms" in text
    assert "2. charged  failed  3 tries, took 2s" in text
    assert "ValueError: card \\x1b[31m declined" in text


def test_job_show_of_very_many_steps_shows_the_last_and_all_on_request(cli, db):
    claim = db.running()
    for number in range(1, 26):
        db.finish_step(claim, f"page {number}", seq=number)

    short = cli.ok("job", "show", claim.job_id).out
    full = cli.ok("job", "show", claim.job_id, "--full").out

    assert "… 5 earlier steps (5 done), shown with --full" in short
    assert "5. page 5 " not in short
    assert "6. page 6 " in short
    assert "5. page 5 " in full


@pytest.mark.parametrize(
    ("suspend", "words"),
    [
        (lambda db, claim: db.sleep(claim, "2 h", step="a nap"), ['Sleeps in step "a nap" until', "(in 2 hours)"]),
        (lambda db, claim: db.wait_event(claim, "paid 7"), ['Waits for event "paid 7".', "onceward event emit 'paid 7'"]),
        (lambda db, claim: db.wait_event(claim, "paid 7", timeout="3 h"), ['Waits for event "paid 7" and gives up at', "(in 3 hours)"]),
        (lambda db, claim: db.join(claim, [db.enqueue(priority=-1)]), ['Waits in step "fan in" for 1 job, the first: ocr (ready']),
    ],
    ids=["sleep", "event", "event with a timeout", "join"],
)  # fmt: skip
def test_job_show_says_what_a_suspended_job_waits_for(cli, db, suspend, words):
    claim = db.running()
    suspend(db, claim)

    text = cli.ok("job", "show", claim.job_id).out

    for word in words:
        assert word in text
    assert "waiting" in text


def test_a_retry_is_not_taken_for_a_sleep(cli, db):
    claim = db.running()
    db.sleep(claim, "1 h")
    db.clock.advance("1h")
    db.promote()
    db.fail(db.claim(), "declined")

    assert (
        "Attempt 1 of 8 failed with ValueError: declined; it is tried again at"
        in cli.ok("job", "show", claim.job_id).out
    )


# ---------------------------------------------------------------- events


def test_an_event_is_emitted_once(cli, db):
    assert cli.ok("event", "emit", "paid 7", "--payload", '{"by": "Ada"}', "--keep", "7d").err == (
        'event "paid 7" is emitted\n'
    )
    assert "nothing changed" in cli.ok("event", "emit", "paid 7", "--payload", '{"by": "Bob"}').err
    assert cli.json("event", "emit", "paid 7") == {"name": "paid 7", "emitted": False}

    (event,) = cli.json("event", "list")
    assert set(event) == names(EventInfo)
    assert (event["name"], event["payload"], event["tenant"]) == ("paid 7", {"by": "Ada"}, "default")
    assert db.value("select expires_at from onceward.events") == db.now() + timedelta(days=7)


def test_a_job_goes_on_when_its_event_is_emitted(cli, db):
    claim = db.running()
    db.wait_event(claim, "paid 7")

    cli.ok("event", "emit", "paid 7")
    db.promote()

    assert db.state(claim.job_id) == "ready"


def test_events_are_listed_by_prefix_and_tenant(cli, db):
    cli.ok("event", "emit", "paid 7", "--tenant", "red")
    cli.ok("event", "emit", "paid 8", "--payload", "[1]")
    cli.ok("event", "emit", "shipped 7")

    def found(*options: str) -> set[str]:
        return {event["name"] for event in cli.json("event", "list", *options)}

    assert found() == {"paid 7", "paid 8", "shipped 7"}
    assert found("--prefix", "paid") == {"paid 7", "paid 8"}
    assert found("--prefix", "paid", "--tenant", "red") == {"paid 7"}
    assert len(cli.json("event", "list", "--limit", 2)) == 2
    table = cli.ok("event", "list", "--prefix", "paid 8").out
    assert table.splitlines()[0].split() == ["EVENT", "EMITTED", "KEPT", "PAYLOAD"]
    assert "[1]" in table
    assert cli.ok("event", "list", "--prefix", "nothing").err == "no events\n"


@pytest.mark.parametrize(
    ("arguments", "status", "fragments"),
    [
        (["emit", "paid", "--payload", "{"], 2, ["--payload is not JSON"]),
        (["emit", "paid", "--keep", "7"], 2, ["--keep must be a duration, got '7'", "7s, 7m or 7h"]),
        (["emit", "paid", "--keep", "0s"], 2, ["--keep must be more than 0"]),
        (["emit", "paid", "--keep", "20000d"], 1, ["keep must be more than 0 and at most 10 years"]),
        (["emit", ""], 1, ["event must be 1 to 194 characters"]),
        (["emit", "x", "--payload", '"' + "x" * 300_000 + '"'], 1, ["payload must be at most 262144 bytes"]),
        (["emit"], 2, ["missing argument 'NAME'"]),
        (["emmit", "x"], 2, ['Did you mean "emit"?']),
        (["list", "--limit", "0"], 2, ["--limit must be at least 1, got 0"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_event_is_refused(cli, db, arguments, status, fragments):
    before = db.contents()

    error = cli.refused(status, "event", *arguments)

    for fragment in fragments:
        assert fragment in error
    assert db.contents() == before
