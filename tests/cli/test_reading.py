"""Every read: --json parses and has the fields that are documented; tables say the same."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime

import pytest

from onceward.model import (
    AttemptInfo,
    DeadLetterGroup,
    DeadLetterInfo,
    JobInfo,
    LaneInfo,
    PayloadEdit,
    WorkerInfo,
)


def names(kind) -> set[str]:
    return {field.name for field in fields(kind)}


def test_job_list_has_the_columns_of_the_view(cli, db):
    job = db.enqueue("ocr", {"page": 1}, timeout="90 s", key="k")

    (listed,) = cli.json("job", "list")

    assert set(listed) == names(JobInfo)
    assert listed["id"] == str(job)
    assert listed["payload"] == {"page": 1}
    assert listed["timeout"] == 90.0
    assert listed["created_at"].endswith("Z")
    assert datetime.fromisoformat(listed["created_at"]) == db.now()


def test_job_list_is_filtered_by_everything_it_offers(cli, db):
    db.call("add_lane", name="mail")
    ready = db.enqueue("ocr")
    mail = db.enqueue("send", lane="mail", key="letter-1")
    later = db.enqueue("ocr", run_at=datetime.fromisoformat("2031-01-01T00:00Z"))
    dead = db.dead_letter("bill", message="card 4711 declined", priority=5)
    fingerprint = db.job(dead).last_error["fingerprint"]

    def found(*options: str) -> list[str]:
        return [job["id"] for job in cli.json("job", "list", *options)]

    assert found() == [str(dead), str(later), str(mail), str(ready)]
    assert found("--lane", "mail") == [str(mail)]
    assert found("--task", "ocr") == [str(later), str(ready)]
    assert found("--state", "scheduled") == [str(later)]
    assert found("--state", "dead-letter,scheduled") == [str(dead), str(later)]
    assert found("--state", "dead_letter", "--state", "scheduled") == [str(dead), str(later)]
    assert found("--key", "letter-1") == [str(mail)]
    assert found("--error", "DECLINED") == [str(dead)]
    assert found("--fingerprint", fingerprint) == [str(dead)]
    assert found("--limit", "2") == [str(dead), str(later)]
    assert found("--before", str(later)) == [str(mail), str(ready)]
    assert found("--tenant", "default", "--task", "send") == [str(mail)]
    assert found("--tenant", "other") == []
    assert found("--since", "1h") == found()
    assert found("--until", "1h") == []
    assert found("--since", "2020-01-01", "--until", "2020-01-02T00:00+02:00") == []
    assert cli.json("job", "list", "--task", "ocr", "--count") == {"count": 2}
    assert cli.ok("job", "list", "--task", "ocr", "--count").out == "2\n"


def test_job_list_as_a_table_is_not_cut_when_another_program_reads(cli, db):
    message = "a long reason " * 20
    db.dead_letter("ocr", message=message)

    answer = cli.ok("job", "list")

    assert message.strip() in answer.out
    assert answer.out.splitlines()[0].split() == [
        "ID",
        "STATE",
        "TASK",
        "LANE",
        "TRY",
        "CREATED",
        "RUNS",
        "LAST",
        "ERROR",
    ]
    assert answer.out.count("\n") == 2


def test_a_full_page_says_how_to_go_on(cli, db):
    for _ in range(3):
        db.enqueue()

    page = cli.ok("job", "list", "--limit", 2)
    last = page.out.splitlines()[-1].split()[0]

    assert f"--before {last}" in page.err
    assert len(cli.json("job", "list", "--before", last)) == 1


def test_job_show_has_the_job_its_attempts_and_its_edited_payloads(cli, db):
    job = db.dead_letter("bill", {"amount": 1}, message="declined")
    db.requeue(job, payload={"amount": 2})

    shown = cli.json("job", "show", job)

    assert set(shown) == names(JobInfo) | {"reasons", "attempts", "steps", "payload_edits"}
    assert shown["payload"] == {"amount": 2}
    (attempt,) = shown["attempts"]
    assert set(attempt) == names(AttemptInfo)
    assert (attempt["outcome"], attempt["message"]) == ("dead_letter", "declined")
    (edit,) = shown["payload_edits"]
    assert set(edit) == names(PayloadEdit)
    assert edit["payload_before"] == {"amount": 1}


def test_job_show_tells_the_runs_of_a_requeued_job_apart(cli, db):
    claim = db.running("bill", {"amount": 1}, max_attempts=1)
    db.fail(claim, "declined", traceback="first traceback")
    assert "run 1" not in cli.ok("job", "show", claim.job_id).out
    cli.ok("job", "requeue", claim.job_id)
    db.fail(db.claim(), "declined again", traceback="second traceback")

    first, _, second = cli.ok("job", "show", claim.job_id).out.partition("Attempts of run 2, requeued ")

    assert "Attempts of run 1\n" in first
    assert "1. dead_letter" in first
    assert first.count("ValueError: declined\n") == 1
    assert "1. dead_letter" in second
    assert "ValueError: declined again" in second
    # Of all tracebacks, the last.
    assert "first traceback" not in first
    assert "second traceback" in second


def test_job_show_tells_what_happened_with_error_traceback_and_payload(cli, db):
    claim = db.running("bill", {"amount": 1}, max_attempts=1)
    lines = "\n".join(f"line {number}" for number in range(50))
    db.fail(claim, "declined", traceback=lines)

    short = cli.ok("job", "show", claim.job_id).out
    full = cli.ok("job", "show", claim.job_id, "--full").out

    assert "after attempt 1 of 1: ValueError: declined." in short
    assert "ValueError: declined" in short
    assert '"amount": 1' in short
    assert "line 49" in short
    assert "line 10\n" not in short
    assert "44 more lines, shown with --full" in short
    assert "line 10\n" in full


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda db: db.enqueue(), 'No live worker serves lane "default".'),
        (lambda db: (db.call("pause_lane", name="default", reason="spring cleaning"), db.enqueue())[1], "spring cleaning"),
        (lambda db: db.enqueue(run_at=datetime.fromisoformat("2031-01-01T00:00Z")), "Is to start at 2031-01-01 00:00:00Z"),
        (lambda db: db.enqueue(concurrency_key="account-1"), 'Its concurrency key "account-1" has room'),
        (lambda db: db.running().job_id, 'on worker "a", attempt 1 of 8.'),
        (lambda db: db.done(result={"pages": 3}), '"pages": 3'),
    ],
)  # fmt: skip
def test_job_show_says_where_a_job_stands(cli, db, prepare, words):
    assert words in cli.ok("job", "show", prepare(db)).out


def test_control_characters_of_payloads_and_errors_do_not_reach_the_terminal(cli, db):
    db.dead_letter("ocr", {"a\x1b[31m": "b"}, message="\x1b]0;gotcha\x07 \u202ehidden")

    for command in (["job", "list"], ["dead-letter", "list"], ["dead-letter", "list", "--group"]):
        assert "\x1b" not in cli.ok(*command).out
    job = cli.json("job", "list")[0]["id"]
    shown = cli.ok("job", "show", job).out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b]0;gotcha" in shown


def test_lane_list_has_the_columns_of_the_view(cli, db):
    db.enqueue()
    db.call("pause_lane", name="default", reason="maintenance")

    (lane,) = cli.json("lane", "list")

    assert set(lane) == names(LaneInfo)
    assert (lane["ready"], lane["paused"], lane["pause_reason"]) == (1, True, "maintenance")
    assert "paused" in cli.ok("lane", "list").out


def test_lane_list_of_one_tenant_counts_only_its_jobs_even_for_a_superuser(cli, db):
    db.enqueue(tenant="red")
    db.enqueue(tenant="blue")
    db.done(tenant="blue", priority=9)

    assert cli.json("lane", "list")[0]["ready"] == 2
    (lane,) = cli.json("lane", "list", "--tenant", "red")
    assert set(lane) == names(LaneInfo)
    assert lane["ready"] == 1


def test_workers_has_the_columns_of_the_view_and_hides_those_that_stopped(cli, db):
    db.worker("here")
    db.call("retire_worker", worker_id=db.worker("gone"))

    listed = cli.json("workers")

    assert [worker["name"] for worker in listed] == ["here"]
    assert set(listed[0]) == names(WorkerInfo)
    assert listed[0]["lease"] == 86400.0
    assert {worker["name"] for worker in cli.json("workers", "--all")} == {"here", "gone"}
    assert "here" in cli.ok("workers").out


def test_dead_letter_list_has_the_columns_of_the_view(cli, db):
    db.dead_letter("bill", message="declined")

    (letter,) = cli.json("dead-letter", "list")

    assert set(letter) == names(DeadLetterInfo)
    assert letter["message"] == "declined"


def test_dead_letters_are_grouped_by_fingerprint(cli, db):
    first = db.now()
    for number in range(3):
        db.dead_letter("bill", message=f"card {number} declined")
        db.clock.advance("1 min")
    db.dead_letter("bill", message="no such customer")

    groups = cli.json("dead-letter", "list", "--group")

    assert set(groups[0]) == names(DeadLetterGroup)
    assert [group["count"] for group in groups] == [3, 1]
    assert datetime.fromisoformat(groups[0]["first_dead_at"]) == first
    assert groups[0]["message"] == "card 2 declined"
    assert cli.ok("dead-letter", "list", "--group").out.splitlines()[1].split()[0] == "3"


def test_db_status_and_doctor_and_check_are_json(cli):
    assert set(cli.json("db", "status")) == {
        "database", "installed", "current", "applied", "pending", "code_is_current", "newer",
    }  # fmt: skip
    for command in (["doctor"], ["db", "check"]):
        findings = cli(*command, "--json").json
        assert {frozenset(finding) for finding in findings} == {
            frozenset({"name", "status", "value", "meaning", "action"})
        }


def test_an_empty_answer_is_an_empty_document_and_a_message(cli):
    assert cli.json("job", "list") == []
    answer = cli.ok("job", "list")
    assert (answer.out, answer.err) == ("", "no jobs\n")


def test_the_tenant_restricts_every_read(cli, db):
    red = db.enqueue(tenant="red")
    blue = db.dead_letter(tenant="blue", priority=1)

    assert [job["id"] for job in cli.json("job", "list", "--tenant", "red")] == [str(red)]
    assert cli.json("dead-letter", "list", "--tenant", "red") == []
    assert str(blue) in cli.refused(1, "job", "show", blue, "--tenant", "red")
    assert cli.ok("--tenant", "blue", "job", "show", blue)


@pytest.mark.parametrize("levels", [900, 5000])
def test_a_value_that_is_nested_without_end_does_not_stop_the_reading_of_the_others(cli, db, levels):
    plain, deep = db.dead_letter(payload={"order": 1}), db.dead_letter()
    db.run(
        "update onceward.job_private set payload = ('{\"a\":' || repeat('[', %s) || repeat(']', %s) || '}')::jsonb where id = %s",
        levels, levels, deep,
    )  # fmt: skip

    for command in (("job", "list"), ("dead-letter", "list"), ("job", "show", deep)):
        assert cli.ok(*command).out
    for command in (("job", "list"), ("dead-letter", "list")):
        assert {found["id"] for found in cli.json(*command)} == {str(plain), str(deep)}
    assert cli.json("job", "show", plain)["payload"] == {"order": 1}
    assert cli.json("job", "show", deep)["payload"].startswith("<JSON of ")


def test_json_has_no_character_that_a_terminal_obeys(cli, db):
    text = "\x1b[31m \x9b31m \x7f \u202ehidden \x85 ü"
    job = db.enqueue("ocr", {"a": text})

    for command in (("job", "show", job), ("job", "list")):
        answer = cli.ok(*command, "--json").out
        assert not [c for c in answer if c in "\x1b\x9b\x7f\u202e\x85"]
        assert "ü" in answer
    assert cli.json("job", "show", job)["payload"] == {"a": text}
