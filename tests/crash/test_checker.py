"""The checker finds every kind of violation that is planted in a clean history, and nothing in a clean one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.crash.checker import check
from tests.crash.faults_clocks import _judged
from tests.crash.ledger import AttemptRow, ClientLedger, History, JobRow, Ledger, Mark, Op

SECOND = 1_000_000_000
# Wall clock of the machine when CLOCK_MONOTONIC was 0.
EPOCH = 1_700_000_000 * SECOND


def mark(job: str, epoch: int, at: float, word: str, *, life: int = 1) -> Mark:
    """A mark `at` seconds after the start."""
    return Mark(job, epoch, life, int(at * SECOND), EPOCH + int(at * SECOND), word)


def attempt(job: str, epoch: int, started: float, ended: float | None, outcome: str, **more) -> AttemptRow:
    def us(at):
        return (EPOCH + int(at * SECOND)) // 1000

    return AttemptRow(job, epoch, epoch, us(started), None if ended is None else us(ended), outcome, **more)


@pytest.fixture
def history():
    """Three jobs: a plain one, one with a transactional effect, and one whose first worker was killed."""
    found = History()
    found.ops["a"] = Op(["t1", "t2"], result="ok", refs=[("j1", True), ("j2", True)])
    found.ops["b"] = Op(["t3"], result="unknown")
    found.ops["c"] = Op(["t3"], result="ok", refs=[("j3", False)])
    found.ops["d"] = Op(["t4"], result="fail")
    found.jobs = {
        "j1": JobRow("done", 1, 1, "t1"),
        "j2": JobRow("done", 1, 1, "t2", "tx"),
        "j3": JobRow("done", 2, 2, "t3"),
    }
    found.begins = [
        mark("j1", 1, 1, "t1"),
        mark("j2", 1, 1, "t2"),
        mark("j3", 1, 1, "t3", life=2),
        mark("j3", 2, 5, "t3"),
    ]
    found.ends = [mark("j1", 1, 2, "ok"), mark("j2", 1, 2, "ok"), mark("j3", 2, 6, "ok")]
    found.txs = [mark("j2", 1, 2, "ok")]
    found.effects = [("t2", "j2", 1)]
    found.processes = {2: [("kill", 2 * SECOND), ("exit", int(2.1 * SECOND))]}
    found.attempts = [
        attempt("j1", 1, 0.9, 2.1, "done"),
        attempt("j2", 1, 0.9, 2.0, "done"),
        attempt("j3", 1, 0.9, 4.5, "rescued"),
        attempt("j3", 2, 4.9, 6.1, "done"),
    ]
    return found


def counts(history: History) -> dict[str, int]:
    """What is not zero."""
    return {kind: count for kind, count in check(history).counts.items() if count}


def test_a_clean_history_is_clean(history):
    assert check(history).clean


def test_an_acknowledged_job_that_is_not_there_is_lost(history):
    history.ops["e"] = Op(["t5"], result="ok", refs=[("j5", True)])
    assert counts(history) == {"lost": 1}


def test_a_job_that_is_done_but_was_never_run_is_lost(history):
    history.ends = [end for end in history.ends if end.job != "j1"]
    assert "lost" in counts(history)


def test_a_transactional_job_that_is_done_without_its_effect_is_lost(history):
    history.effects = []
    history.txs = []
    assert counts(history) == {"lost": 1}


def test_a_job_whose_only_call_was_rolled_back_is_a_phantom(history):
    history.jobs["j4"] = JobRow("done", 1, 1, "t4")
    history.begins.append(mark("j4", 1, 1, "t4"))
    history.ends.append(mark("j4", 1, 2, "ok"))
    history.attempts.append(attempt("j4", 1, 1, 2, "done"))
    assert counts(history) == {"phantom": 1}


def test_a_run_without_an_attempt_in_the_database_is_a_phantom(history):
    history.begins.append(mark("j1", 7, 1, "t1"))
    history.ends.append(mark("j1", 7, 1.5, "failed"))
    assert "phantom" in counts(history)


def test_an_effect_that_nobody_asked_for_is_a_phantom(history):
    history.effects.append(("t9", "j9", 1))
    assert counts(history) == {"phantom": 1}


def test_a_transactional_effect_twice_is_a_duplicate(history):
    history.effects.append(("t2", "j2", 1))
    assert counts(history) == {"dup_tx": 1}


def test_a_transactional_effect_of_an_attempt_that_lost_the_job_is_a_duplicate(history):
    history.effects.append(("t3", "j3", 1))
    assert counts(history) == {"dup_tx": 1}


def test_an_attempt_that_is_begun_twice_is_a_duplicate(history):
    history.begins.append(mark("j1", 1, 3, "t1", life=3))
    history.ends.append(mark("j1", 1, 4, "ok", life=3))
    assert counts(history) == {"dup_ext": 1}


def test_two_jobs_for_one_token_are_a_duplicate(history):
    history.jobs["j6"] = JobRow("done", 1, 1, "t3")
    history.begins.append(mark("j6", 1, 1, "t3"))
    history.ends.append(mark("j6", 1, 2, "ok"))
    history.attempts.append(attempt("j6", 1, 1, 2, "done"))
    assert counts(history) == {"dup_ext": 1}


def test_a_success_that_a_healthy_worker_did_not_keep_is_a_duplicate(history):
    history.attempts[2] = attempt("j3", 1, 0.9, 4.5, "released")
    history.ends.append(mark("j3", 1, 1.5, "ok", life=2))
    assert counts(history) == {"dup_ext": 1}


def test_a_success_of_a_killed_worker_is_uncertain_and_no_violation(history):
    history.ends.append(mark("j3", 1, 1.5, "ok", life=2))
    assert check(history).clean
    assert check(history).uncertain == 1


def test_a_job_begun_before_its_time_is_early(history):
    history.ops["a"].due_ns = EPOCH + int(1.5 * SECOND)
    assert counts(history) == {"early": 2}


def test_a_retry_begun_before_its_wait_is_over_is_early(history):
    history.attempts[2] = attempt("j3", 1, 0.9, 4.5, "failed", retry_at=(EPOCH + int(5.5 * SECOND)) // 1000)
    assert counts(history) == {"early": 1}


def test_two_attempts_at_work_at_once_overlap(history):
    history.ends.append(mark("j3", 1, 5.5, "failed", life=2))
    assert counts(history) == {"overlap": 1}


def test_an_attempt_whose_process_lives_and_has_not_ended_it_overlaps_with_the_next(history):
    history.processes = {}
    assert counts(history) == {"overlap": 1}


def test_two_attempts_that_the_database_takes_for_running_overlap(history):
    history.attempts[2] = attempt("j3", 1, 0.9, None, "running")
    assert counts(history) == {"overlap": 1}


def test_what_a_stopped_process_does_when_it_is_woken_is_no_overlap(history):
    history.processes = {2: [("stop", 2 * SECOND), ("cont", int(5.2 * SECOND))]}
    history.ends.append(mark("j3", 1, 5.4, "failed", life=2))
    assert check(history).clean
    assert check(history).zombie_runs == 1


def test_but_a_write_of_it_that_is_accepted_is_found(history):
    history.processes = {2: [("stop", 2 * SECOND), ("cont", int(5.2 * SECOND))]}
    history.ends.append(mark("j3", 1, 5.4, "ok", life=2))
    history.txs.append(mark("j3", 1, 5.4, "ok", life=2))
    history.effects.append(("t3", "j3", 1))
    assert counts(history) == {"dup_tx": 1}


def test_more_jobs_of_a_key_at_work_than_its_limit_are_over(history):
    for job in ("j1", "j2"):
        row = history.jobs[job]
        history.jobs[job] = JobRow(row.state, row.epoch, row.attempt, row.token, row.mode, "k", 1)
    assert counts(history) == {"over": 1}


def test_jobs_of_a_key_one_after_the_other_are_not_over(history):
    for job in ("j1", "j3"):
        row = history.jobs[job]
        history.jobs[job] = JobRow(row.state, row.epoch, row.attempt, row.token, row.mode, "k", 2)
    assert check(history).clean


@pytest.mark.parametrize("state", ["ready", "running", "scheduled", "blocked", "dead_letter", "cancelled"])
def test_a_job_that_has_not_ended_as_it_should_is_stuck(history, state):
    history.jobs["j1"] = JobRow(state, 1, 1, "t1")
    assert counts(history)["stuck"] == 1


def test_two_callers_told_that_they_created_one_thing_is_a_lie(history):
    history.ops["e"] = Op(["t1"], result="ok", refs=[("j1", True)])
    assert counts(history) == {"lies": 1}


def test_callers_told_of_different_jobs_for_one_token_is_a_lie(history):
    history.ops["e"] = Op(["t1"], result="ok", refs=[("j3", False)])
    assert "lies" in counts(history)


def test_a_commit_acknowledged_without_its_effect_is_a_lie(history):
    history.effects = []
    assert "lies" in counts(history)


def test_a_refusal_of_what_was_committed_is_a_lie(history):
    history.txs = [mark("j2", 1, 2, "refused")]
    assert counts(history) == {"lies": 1}


def test_two_attempts_told_that_they_finished_one_job_is_a_lie(history):
    history.txs += [mark("j2", 2, 3, "ok")]
    history.effects += [("t2", "j2", 2)]
    assert counts(history)["lies"] == 1


def test_a_claim_without_a_record_is_a_gap(history):
    del history.attempts[2]
    assert "gaps" in counts(history)


def test_what_is_written_is_what_is_read(tmp_path):
    client = ClientLedger(tmp_path, "c")
    for number, (result, refs) in enumerate([("ok", [("j1", True)]), ("fail", []), ("unknown", [])]):
        op = client.invoke([f"t{number}"], due_ns=number)
        if result == "ok":
            client.ok(op, refs)
        else:
            getattr(client, result)(op, "some trouble")
    client.invoke(["t3"])
    effects = Ledger(tmp_path / "effects-1.log")
    effects.write("begin", "j1", 1, 1, 5, 6, "t1")
    effects.write("end", "j1", 1, 1, 7, 8, "ok")
    effects.write("tx", "j1", 1, 1, 7, 8, "refused")
    harness = Ledger(tmp_path / "harness.log")
    harness.write("kill", 1, 9)

    found = History().read(tmp_path)

    assert [op.result for op in found.ops.values()] == ["ok", "fail", "unknown", "open"]
    assert found.ops["c.1"].refs == [("j1", True)]
    assert found.begins == [Mark("j1", 1, 1, 5, 6, "t1")]
    assert found.ends == [Mark("j1", 1, 1, 7, 8, "ok")]
    assert found.txs == [Mark("j1", 1, 1, 7, 8, "refused")]
    assert found.processes == {1: [("kill", 9)]}


def test_a_line_cut_off_by_a_kill_is_not_read(tmp_path):
    (tmp_path / "effects-1.log").write_text("begin j1 1 1 5 6 t1\nend j1 1")

    found = History().read(tmp_path)

    assert len(found.begins) == 1
    assert found.ends == []


def test_a_rescue_of_a_worker_that_lived_is_found(history):
    skews = {1: 0, 2: 3600}
    assert _judged(history, skews, killed={2})["false_rescues"] == 0
    assert _judged(history, skews, killed={3})["false_rescues"] == 1


def test_a_clock_that_was_right_though_it_should_be_wrong_is_found(history):
    skews = {1: 0, 2: 3600}
    assert _judged(history, skews, killed={2})["never_wrong"] == 0
    hour = 3600 * SECOND
    # Its marks are corrected by a skew that it did not have.
    history.begins = [
        replace(begin, wall=begin.wall - hour) if begin.life == 2 else begin for begin in history.begins
    ]
    assert _judged(history, skews, killed={2})["never_wrong"] == 1
