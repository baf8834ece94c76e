"""Commands that change something: the change happens, standard output holds the data, the status tells."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from uuid import UUID

import pytest


@pytest.fixture
def task(db):
    db.worker(tasks=["ocr"])
    return "ocr"


def test_enqueue_prints_the_id_alone(cli, db, task):
    answer = cli.ok("job", "enqueue", task, '{"page": 7}')

    job = db.job(UUID(answer.out.strip()))
    assert (job.task, job.payload, job.state, job.lane) == ("ocr", {"page": 7}, "ready", "default")
    assert answer.err == ""


def test_enqueue_passes_every_option_on(cli, db, task):
    db.call("add_lane", name="mail")

    ref = cli.json(
        "job", "enqueue", task, "{}", "--lane", "mail", "--priority", "-7", "--delay", "1h30m", "--key", "k",
        "--key-window", "24h", "--concurrency-key", "c", "--concurrency-limit", "3", "--max-attempts", "4",
        "--timeout", "90s", "--expires-in", "2d", "--tenant", "red",
    )  # fmt: skip

    assert set(ref) == {"id", "created", "answer", "until", "reason"}
    job = db.job(UUID(ref["id"]))
    assert (job.lane, job.priority, job.key, job.concurrency_key) == ("mail", -7, "k", "c")
    assert (job.concurrency_limit, job.max_attempts, job.tenant) == (3, 4, "red")
    assert job.timeout == timedelta(seconds=90)
    assert job.run_at == db.now() + timedelta(minutes=90)
    assert job.expires_at == job.run_at + timedelta(days=2)
    expires = db.value("select expires_at from onceward.key_private")
    assert expires == db.now() + timedelta(hours=24)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("2030-01-31T18:00", "2030-01-31 18:00+00"), ("2030-01-31T18:00+02:00", "2030-01-31 16:00+00"), ("2030-01-31", "2030-01-31 00:00+00")],
)  # fmt: skip
def test_a_time_without_an_offset_is_utc(cli, db, task, typed, meant):
    job = cli.ok("job", "enqueue", task, "--run-at", typed).out.strip()

    assert db.value("select run_at = %s::timestamptz from onceward.jobs where id = %s", meant, UUID(job))


def test_enqueue_with_a_key_gives_the_same_job(cli, task):
    first = cli.ok("job", "enqueue", task, "--key", "k")
    second = cli.ok("job", "enqueue", task, "--key", "k")

    assert second.out == first.out
    assert "nothing was added" in second.err
    assert cli.json("job", "enqueue", task, "--key", "k")["created"] is False


def test_enqueue_reads_a_file_and_standard_input(cli, db, task, tmp_path):
    (tmp_path / "p.json").write_text('\ufeff{"from": "file"}', encoding="utf-8")

    of_file = cli.ok("job", "enqueue", task, f"@{tmp_path}/p.json").out.strip()
    of_input = cli.ok("job", "enqueue", task, "-", stdin='{"from": "input", "ü": "ß"}').out.strip()

    assert db.job(UUID(of_file)).payload == {"from": "file"}
    assert db.job(UUID(of_input)).payload == {"from": "input", "ü": "ß"}


def test_enqueue_of_a_task_nobody_announced_needs_the_flag(cli, db):
    cli.refused(1, "job", "enqueue", "new.task")

    job = cli.ok("job", "enqueue", "new.task", '{"a": [1, 2]}', "--unknown-task-ok").out.strip()

    assert db.job(UUID(job)).payload == {"a": [1, 2]}


def test_enqueue_with_an_application_takes_the_options_of_the_task(cli, db, shop):
    job = cli.ok("job", "enqueue", "mail.send", '{"to": "a@example.com"}', "--app", shop).out.strip()

    found = db.job(UUID(job))
    assert (found.lane, found.max_attempts, found.payload) == ("mail", 3, {"to": "a@example.com"})


def test_cancel_reports_each_job_and_fails_if_one_could_not_be(cli, db):
    waiting, running, finished = db.enqueue(priority=-1), db.running().job_id, db.done(priority=1)

    answer = cli("job", "cancel", waiting, running, finished, "--reason", "not needed")

    assert answer.status == 1
    assert answer.out.splitlines() == [f"{waiting} cancelled", f"{running} cancelling"]
    assert f"error: cannot cancel job {finished}" in answer.err
    assert "2 of 3 done, 1 failed" in answer.err
    assert db.job(waiting).note == "not needed"


def test_requeue_with_another_payload_keeps_the_old_one(cli, db):
    job = db.dead_letter("bill", {"amount": 1})

    assert cli.json("job", "requeue", job, "--payload", '{"amount": 2}') == [
        {"id": str(job), "state": "ready"}
    ]
    assert db.job(job).payload == {"amount": 2}
    assert db.value("select payload_before from onceward.payload_edits") == {"amount": 1}


def test_requeue_later(cli, db):
    job = db.dead_letter()

    assert cli.ok("job", "requeue", job, "--delay", "2h").out == f"{job} scheduled\n"
    assert db.job(job).run_at == db.now() + timedelta(hours=2)


def test_one_payload_is_not_given_to_several_jobs(cli, db):
    jobs = [db.dead_letter(), db.dead_letter()]

    assert "--payload goes with one job" in cli.refused(2, "job", "requeue", *jobs, "--payload", "{}")
    assert set(db.states().values()) == {"dead_letter"}


def test_resolve_needs_a_note_and_keeps_it(cli, db):
    job = db.dead_letter()

    assert "--note" in cli.refused(2, "job", "resolve", job)
    assert cli.ok("job", "resolve", job, "--note", "refunded by hand").out == f"{job} resolved\n"
    assert "refunded by hand" in db.job(job).note


def test_run_now_starts_a_scheduled_job(cli, db):
    job = UUID(cli.ok("job", "enqueue", "x", "--unknown-task-ok", "--delay", "5d").out.strip())

    assert cli.ok("job", "run-now", job).out == f"{job} ready\n"
    assert "Only a scheduled job is started early." in cli("job", "run-now", job).err


def test_wait_prints_the_result(cli, db):
    job = db.done(result={"pages": 3})

    assert cli.ok("job", "wait", job).json == {"pages": 3}
    assert cli.json("job", "wait", job) == {
        "id": str(job), "state": "done", "result": {"pages": 3}, "last_error": None, "note": None,
    }  # fmt: skip


def test_wait_fails_when_the_job_failed(cli, db):
    job = db.dead_letter(message="declined")

    error = cli.refused(1, "job", "wait", job)

    assert f"job {job} ended as dead_letter" in error
    assert "ValueError: declined" in error
    answer = cli("job", "wait", job, "--json")
    assert (answer.status, answer.json["state"]) == (1, "dead_letter")


def test_wait_gives_up_after_its_timeout_and_leaves_the_job_alone(cli, db):
    job = db.enqueue()

    error = cli.refused(1, "job", "wait", job, "--timeout", "0s")

    assert "has not ended within" in error
    assert "is in state ready and goes on" in error


WAITS = "select pid from pg_stat_activity where application_name = 'onceward cli' and datname = current_database()"
BLOCKED = WAITS.replace("pid", "pid, query", 1) + " and wait_event_type = 'Lock'"


@contextmanager
def waiting_for(db, claim):
    """`job wait` in a process of its own."""
    command = [sys.executable, "-m", "onceward.cli", "--dsn", db.dsn, "job", "wait", str(claim.job_id)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        # It is waiting as soon as its session is there.
        while not db.run(WAITS):
            assert waiting.poll() is None
        yield waiting


@pytest.mark.slow
def test_wait_ends_when_the_job_ends(db):
    claim = db.running()
    with waiting_for(db, claim) as waiting:
        db.complete(claim, "finished")
        out, _ = waiting.communicate()

    assert (waiting.returncode, out) == (0, '"finished"\n')


@pytest.mark.slow
def test_wait_outlives_its_session(db):
    claim = db.running()
    with waiting_for(db, claim) as waiting:
        asked = 0
        while asked < 2:
            # Whatever it asks next has to wait, so that it can be seen.
            with db.connect() as other, other.transaction():
                other.execute("lock table onceward.job_private in access exclusive mode")
                while not (blocked := db.run(BLOCKED)):
                    assert waiting.poll() is None
                if "last_error, note from" in blocked[0].query:
                    asked += 1
                    db.run("select pg_terminate_backend(%s, 30000)", blocked[0].pid)
        db.complete(claim, "finished")
        out, err = waiting.communicate()

    assert (waiting.returncode, out) == (0, '"finished"\n')
    assert "trying again" in err


def test_the_cap_of_a_lane_is_set_shown_and_removed(cli, db):
    cap = "select max_running from onceward.lanes where name = 'mail'"
    cli.ok("lane", "add", "mail", "--max-running", "2")
    assert db.value(cap) == 2
    db.enqueue_many("ocr", [{}] * 3, lane="mail")
    db.worker("a", lanes=["mail"], tasks=["ocr"])
    db.claims(9, lanes=["mail"])

    line = next(line for line in cli.ok("lane", "list").out.splitlines() if line.startswith("mail"))
    assert line.split()[:5] == ["mail", "open", "1", "2", "2"]
    (mail,) = [lane for lane in cli.json("lane", "list") if lane["name"] == "mail"]
    assert (mail["running"], mail["max_running"]) == (2, 2)
    assert "lane_full" in cli.ok("lane", "explain", "mail").out

    cli.ok("lane", "set", "mail", "--max-running", "5")
    assert db.value(cap) == 5
    cli.ok("lane", "set", "mail", "--max-running", "0")
    assert db.value(cap) is None
    assert "max_running must be between 0" in cli.refused(1, "lane", "set", "mail", "--max-running", "-1")
    assert 'lane "mial" does not exist' in cli.refused(1, "lane", "set", "mial", "--max-running", "1")


def test_lanes_are_added_paused_and_resumed(cli, db):
    assert (
        cli.ok("lane", "add", "mail", "--max-payload", "1MiB", "--max-result", "4096").err
        == 'lane "mail" is set up\n'
    )
    assert "exists already" in cli.ok("lane", "add", "mail").err
    assert db.one("select max_payload_bytes, max_result_bytes from onceward.lanes where name = 'mail'") == (
        1048576,
        4096,
    )

    assert "is paused" in cli.ok("lane", "pause", "mail", "--reason", "provider is down").err
    assert "paused already" in cli.ok("lane", "pause", "mail").err
    assert db.value("select pause_reason from onceward.lanes where name = 'mail'") == "provider is down"
    assert "is open" in cli.ok("lane", "resume", "mail").err
    assert "was not paused" in cli.ok("lane", "resume", "mail").err


def test_a_job_of_another_tenant_is_not_touched(cli, db):
    job = db.enqueue(tenant="red")

    assert "belongs to another tenant" in cli.refused(1, "job", "cancel", job, "--tenant", "blue")
    assert db.state(job) == "ready"
    assert cli.ok("job", "cancel", job, "--tenant", "red")
