"""Bad input: a clear error that names the value and the way out, and nothing is written."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("writes_nothing")


@pytest.fixture(autouse=True)
def known(db):
    """A task that a worker has announced, and a second lane."""
    db.call("add_lane", name="mail")
    db.worker(tasks=["mail.send"])


# Ordered as pytest needs it: the digest is taken after the fixture above has written.
@pytest.fixture
def writes_nothing(db, known):
    before = db.contents()
    yield
    assert db.contents() == before


CASES = [
    # what is typed after "job enqueue", exit status, what the error must contain
    (["mail.send", "--lane", "mial"], 1, ['lane "mial" does not exist', 'Did you mean "mail"?', "onceward lane add"]),
    (["mail.sned"], 1, ['task "mail.sned" is not known', 'Did you mean "mail.send"?', "--unknown-task-ok"]),
    (["mail.send", "[1, 2]"], 2, ["payload must be a JSON object, got an array: [1, 2]"]),
    (["new.task", "[1, 2]", "--unknown-task-ok"], 2, ["payload must be a JSON object, got an array: [1, 2]"]),
    (["mail.send", "17"], 2, ["payload must be a JSON object, got a number: 17"]),
    (["mail.send", "null"], 2, ["payload must be a JSON object, got null"]),
    (["mail.send", '{"to": }'], 2, ["payload is not JSON", "line 1, column 8", "@file"]),
    (["mail.send", '{"a": 1,\n "b" 2}'], 2, ["line 2, column 6", 'Near:  "b" 2}']),
    (["mail.send", ""], 2, ["payload is not JSON", "line 1, column 1"]),
    (["mail.send", '{"a": NaN}'], 2, ["payload contains NaN"]),
    (["mail.send", '{"a": "\\u0000"}'], 1, ["payload.a contains a NUL character"]),
    (["mail.send", '{"a": ' + "[" * 300 + "]" * 300 + "}"], 1, ["nested deeper than 200 levels"]),
    (["mail.send", '{"a": ' + "[" * 100_000], 2, ["payload is n"]),
    (["mail.send", '{"a": ' + "1" * 5000 + "}"], 2, ["payload is not JSON"]),
    (["mail.send", '{"a": "' + "x" * 300_000 + '"}'], 1, ["payload must be at most 262144 bytes"]),
    (["mail.send", "@missing.json"], 2, ['could not read payload from file "missing.json": No such file']),
    (["mail.send", "--delay", "-5s"], 2, ["--delay must not be negative, got -5s", "30s"]),
    (["mail.send", "--delay=-1h"], 2, ["--delay must not be negative, got -1h"]),
    (["mail.send", "--delay", "30"], 2, ["--delay must be a duration, got '30'", "30s"]),
    (["mail.send", "--delay", "soon"], 2, ["--delay must be a duration, got 'soon'"]),
    (["mail.send", "--delay", "99999999d"], 2, ["--delay must be at most 100 years, got 99999999d"]),
    (["mail.send", "--delay", "20000d"], 1, ["--run-at must lie within the next 10 years"]),
    (["mail.send", "--delay", "5s", "--run-at", "2030-01-01"], 2, ["--delay and --run-at cannot be given together"]),
    (["mail.send", "--run-at", "9999-12-31T23:59:59Z"], 1, ["--run-at must lie within the next 10 years", "9999-12-31"]),
    (["mail.send", "--run-at", "9999-12-31T23:59:59-12:00"], 2, ["--run-at must be a time"]),
    (["mail.send", "--run-at", "tomorrow"], 2, ["--run-at must be a time, got 'tomorrow'", "2030-01-31T18:00"]),
    (["mail.send", "--expires-in", "-1m"], 2, ["--expires-in must not be negative, got -1m"]),
    (["mail.send", "--expires-in", "0s"], 2, ["--expires-in must be more than 0"]),
    (["mail.send", "--timeout", "-1s"], 2, ["--timeout must not be negative, got -1s"]),
    (["mail.send", "--timeout", "31d"], 1, ["--timeout must be more than 0 and at most 30 days"]),
    (["mail.send", "--priority", "high"], 2, ["--priority must be a whole number, got 'high'"]),
    (["mail.send", "--priority", "5000"], 2, ["--priority must be between -1000 and 1000, got 5000"]),
    (["mail.send", "--priority", "9" * 20], 2, ["--priority must be between -1000 and 1000, got 9999"]),
    (["mail.send", '{"a": 1, "b": {"c": 1, "c": 2}}'], 2, ['payload has the member "c" twice']),
    (["mail.send", "--run-at", "0001-01-01"], 1, ["--run-at must not be before the year 2000", "0001-01-01"]),
    (["mail.send", "--lane", ""], 1, ['lane "" does not exist', "Known lanes: default, mail"]),
    (["mail.send", "--lane", "x" * 9999], 1, ["does not exist", "x…"]),
    (["x" * 9999], 1, ["is not known", "x…"]),
    (["x" * 9999, "--unknown-task-ok"], 1, ["task must be 1 to 200 letters", "x…"]),
    (["mail.send", "--delay", "x" * 9999], 2, ["--delay must be a duration", "x…"]),
    (["mail.send", "--max-attempts", "0"], 2, ["--max-attempts must be between 1 and 1000, got 0"]),
    (["mail.send", "--concurrency-key", "k", "--concurrency-limit", "0"], 2, ["--concurrency-limit must be between 1"]),
    (["mail.send", "--concurrency-limit", "3"], 2, ["--concurrency-limit goes with --concurrency-key"]),
    (["mail.send", "--key-window", "1h"], 2, ["--key-window goes with --key"]),
    (["mail.send", "--key", "k", "--key-window", "forevr"], 2, ["--key-window must be one of", 'Did you mean "forever"?']),
    (["mail.send", "--key", "k" * 600], 1, ["--key must be 1 to 500 characters"]),
    (["mail.send", "--tenant", "a*b"], 1, ["--tenant must be 1 to 200 characters"]),
    (["mail.send", "--dealy", "5s"], 2, ["unknown option --dealy", 'Did you mean "--delay"?', "onceward job enqueue --help"]),
    (["no spaces please", "--unknown-task-ok"], 1, ["task must be 1 to 200 letters", "no spaces please"]),
    ([], 2, ["missing argument 'TASK'", "onceward job enqueue --help"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "status", "fragments"), CASES, ids=lambda value: str(value)[:60])
def test_enqueue_refuses(cli, arguments, status, fragments):
    error = cli.refused(status, "job", "enqueue", *arguments)

    for fragment in fragments:
        assert fragment in error
    assert len(error) < 1500


@pytest.mark.parametrize(
    ("payload", "fragments"),
    [
        ('{"to": 5}', ["payload does not fit task mail.send", "to:", "got 5", "takes to: str"]),
        ('{"to": "a", "copies": "many"}', ["copies:", "got 'many'"]),
        ("{}", ["to:", "required"]),
        ('{"to": "a", "cc": "b"}', ["cc:"]),
        ("[1]", ["must be an object"]),
    ],
)
def test_with_an_application_the_payload_is_checked_by_its_types(cli, shop, payload, fragments):
    error = cli.refused(1, "job", "enqueue", "mail.send", payload, "--app", shop)

    for fragment in fragments:
        assert fragment in error


def test_with_an_application_an_unknown_task_is_answered_with_the_nearest(cli, shop):
    error = cli.refused(1, "job", "enqueue", "mail.sedn", "{}", "--app", shop)

    assert 'Did you mean "mail.send"?' in error


def test_a_payload_file_that_is_no_text_is_refused(cli, tmp_path):
    (tmp_path / "p.json").write_bytes(b'{"a": "\xff"}')

    assert "is not UTF-8 text: byte 8" in cli.refused(2, "job", "enqueue", "mail.send", f"@{tmp_path}/p.json")


def test_a_payload_of_standard_input_is_named_as_such(cli):
    assert "line 2, column 1 of standard input" in cli.refused(
        2, "job", "enqueue", "mail.send", "-", stdin="{\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "fragments"),
    [
        (
            ["job", "list", "--state", "redy"],
            2,
            ["--state must be one of scheduled, ready", 'Did you mean "ready"?'],
        ),
        (["job", "list", "--lane", "mial"], 1, ['lane "mial" does not exist', 'Did you mean "mail"?']),
        (["job", "list", "--limit", "0"], 2, ["--limit must be at least 1, got 0"]),
        (["job", "list", "--limit", "x"], 2, ["--limit must be a whole number, got 'x'"]),
        (["job", "list", "--since", "yesterday"], 2, ["--since must be a time, got 'yesterday'"]),
        (["job", "list", "--limit", "9" * 20], 2, ["--limit must be at most", "got 9999"]),
        (["job", "show", "x" * 9999], 2, ["job id must be a UUID", "x…"]),
        (["job", "show", "42"], 2, ["job id must be a UUID, got '42'"]),
        (["job", "wait", "42"], 2, ["job id must be a UUID, got '42'"]),
        (["job", "cancel"], 2, ["missing argument"]),
        (["lane", "add", "no spaces"], 1, ["lane must be 1 to 100 letters", "no spaces"]),
        (
            ["lane", "add", "big", "--max-payload", "huge"],
            2,
            ["--max-payload must be a size, got 'huge'", "1MiB"],
        ),
        (["lane", "add", "big", "--max-payload", "5000MiB"], 2, ["between 1 KiB and 256 MiB"]),
        (["lane", "pause", "mial"], 1, ['lane "mial" does not exist', 'Did you mean "mail"?']),
        (["lane", "resume", "mial"], 1, ['Did you mean "mail"?']),
        (["dead-letter", "list", "--lane", "mial"], 1, ['Did you mean "mail"?']),
        (["dead-letter", "requeue"], 2, ["no dead letters are named", "--fingerprint"]),
        (["dead-letter", "requeue", "--all", "--limit", "0"], 2, ["--limit must be at least 1"]),
        (["dead-letter", "resolve", "--all"], 2, ["--note is missing"]),
        (["dead-letter", "resolve", "--all", "--note", "  "], 2, ["--note is missing"]),
        (["db", "sql", "--installer", "joe"], 2, ["go with --roles"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_other_commands_refuse(cli, arguments, status, fragments):
    error = cli.refused(status, *arguments)

    for fragment in fragments:
        assert fragment in error
    assert len(error) < 1500


def test_a_job_that_does_not_exist_is_named(cli):
    unknown = "01900000-0000-7000-8000-000000000000"

    for command in ("show", "wait", "cancel", "requeue", "run-now"):
        error = cli(*("job", command, unknown))
        assert error.status == 1
        assert f"job {unknown} does not exist" in error.err
        assert "onceward job list" in error.err


def test_an_unknown_task_in_a_filter_finds_nothing_and_says_why(cli):
    answer = cli.ok("job", "list", "--task", "mail.sned")

    assert answer.out == ""
    assert 'No worker has announced task "mail.sned". Did you mean "mail.send"?' in answer.err
