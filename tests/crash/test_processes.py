"""Several worker processes and their parent, which beats for them: who is hurt, and what the others make of it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from onceward import Client
from tests.crash.hosts import Host, gone
from tests.crash.proxy import Proxy
from tests.crash.waiting import until
from tests.sdk import stage

pytestmark = [pytest.mark.crash, pytest.mark.slow]


class _Seconds:
    """Read by the process as code."""

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"timedelta(seconds={self._seconds})"


# Short, for tests that wait for its end or its renewal; with the usual one, a busy machine is not taken for trouble.
SHORT, USUAL = _Seconds(6), _Seconds(30)


def host(arena, processes: int = 2, **settings: Any) -> Host:
    """Each process runs one job at a time, unless told otherwise."""
    return Host(arena, processes, **{"lease": SHORT, "concurrency": 1, **settings})


def busy(processes: int) -> dict[str, int]:
    return {"onceward worker 1": processes, "onceward hearts": 1}


@pytest.fixture
def client(arena):
    with Client(arena.dsn, app=stage.app) as client:
        yield client


def until_each_has_one(
    arena, host: Host, client: Client, task: Any = stage.hangs, **payload: Any
) -> dict[int, str]:
    """Every process runs a job of this task.  Returns the jobs, by process."""
    client.enqueue_many(task, [payload] * len(host.workers))
    running = (
        "select w.pid, j.id::text from onceward.jobs as j join onceward.workers as w on w.id = j.worker_id "
        "where j.state = 'running' and j.progress is not null and w.state = 'live'"
    )
    until(lambda: len(dict(arena.query(running))) == len(host.workers), what="each process at work")
    return dict(arena.query(running))


def attempts(arena) -> list[str]:
    return [
        outcome for (outcome,) in arena.query("select distinct outcome from onceward.attempts order by 1")
    ]


@pytest.mark.parametrize("processes", [2, 3])
def test_a_busy_host_has_a_connection_for_each_process_and_one_for_all_leases(arena, client, processes):
    with host(arena, processes, lease=USUAL, concurrency=20) as here:
        here.until_sessions(busy(processes))
        most: dict[str, int] = {}
        done = 0
        # On a crowded machine one process may have worked everything off before another had its turn.
        for _ in range(50):
            done += len(client.enqueue_many(stage.echo, [{"text": "a"}] * 3000))
            client.enqueue_many(stage.fails, [{"secret": "b"}] * 50)
            while arena.done() < done:
                for name, count in here.sessions().items():
                    most[name] = max(count, most.get(name, 0))
            worked = arena.value("select count(distinct worker_id) from onceward.jobs")
            if most and worked == processes:
                break

        assert (most, worked) == (busy(processes), processes)


def test_a_cancellation_reaches_a_handler_in_any_process(arena, client):
    with host(arena, lease=USUAL) as here:
        for job in until_each_has_one(arena, here, client).values():
            client.cancel(job)
        until(
            lambda: arena.value("select count(*) from onceward.jobs where state = 'cancelled'") == 2,
            what="both",
        )
        assert here.identities() == here.workers


def test_processes_whose_parent_was_killed_beat_by_themselves_and_work_on(arena, client):
    with host(arena) as here:
        until_each_has_one(arena, here, client)
        here.parent.kill()
        here.parent.wait(30)

        here.until_said("heartbeats_on_own_connection", 2)
        here.until_renewed(list(here.workers), times=8)
        assert here.identities() == here.workers
        assert attempts(arena) == ["running"]
        here.until_sessions({"onceward worker 1": 2, "onceward heart": 2})


def test_processes_whose_parent_is_suspended_beat_by_themselves_until_it_is_back(arena, client):
    with host(arena) as here:
        until_each_has_one(arena, here, client)
        os.kill(here.parent.pid, signal.SIGSTOP)
        here.until_said("heartbeats_on_own_connection", 2)
        here.until_renewed(list(here.workers), times=8)
        os.kill(here.parent.pid, signal.SIGCONT)

        here.until_said("heartbeats_relayed", 2)
        here.until_sessions(busy(2))
        assert here.identities() == here.workers
        assert attempts(arena) == ["running"]


def test_a_process_suspended_past_its_lease_loses_its_job_and_the_other_does_not(arena, client, tmp_path):
    with host(arena) as here:
        go = tmp_path / "go"
        held = until_each_has_one(
            arena, here, client, stage.writes, dsn=arena.dsn, go=str(go), told=str(tmp_path / "told")
        )
        zombie, other = held
        os.kill(zombie, signal.SIGSTOP)
        until(lambda: here.identities() == {other: here.workers[other]}, what="the lease over")
        go.touch()
        job = held[zombie]
        until(lambda: client.job(job).state == "done", what="its job done by the other one")
        os.kill(zombie, signal.SIGCONT)

        late = tmp_path / f"told-{zombie}"
        until(lambda: late.exists() and late.read_text(), what="its late write")
        assert late.read_text() == "LeaseLost\n"
        assert arena.query("select job_id::text, epoch from public.effect order by 2") == [
            (held[other], 1), (job, 2),
        ]  # fmt: skip
        until(lambda: here.identities().keys() == here.workers.keys(), what="the suspended one, anew")
        assert here.identities()[other] == here.workers[other]
        assert here.identities()[zombie] != here.workers[zombie]
        here.until_sessions(busy(2))


def test_a_process_that_was_killed_loses_its_job_and_its_successor_shares_the_connection(arena, client):
    with host(arena) as here:
        held = until_each_has_one(arena, here, client)
        victim, other = held
        os.kill(victim, signal.SIGKILL)

        job = held[victim]
        until(lambda: client.job(job).attempt == 2, what="its job begun again")
        assert client.attempts(job)[0].outcome == "rescued"
        assert here.identities()[other] == here.workers[other]
        assert client.job(held[other]).attempt == 1
        here.until_sessions(busy(2))


def test_leases_survive_any_number_of_terminated_sessions(arena, client):
    with host(arena) as here:
        until_each_has_one(arena, here, client)
        for _ in range(20):
            pid = until(
                lambda: arena.query(
                    "select pid from pg_stat_activity where application_name = 'onceward hearts'"
                ),
                what="a session for the leases",
            )[0][0]
            arena.query("select pg_terminate_backend(%s, 30000)", pid)
        here.until_renewed(list(here.workers))

        assert here.identities() == here.workers
        assert attempts(arena) == ["running"]
        here.until_sessions(busy(2))


def test_a_half_open_connection_of_the_parent_costs_nobody_the_lease_and_is_replaced(arena, client):
    with (
        Proxy(arena.server.port, arena.seed) as proxy,
        host(arena, dsn=proxy.dsn(arena.name), lease=USUAL) as here,
    ):
        until_each_has_one(arena, here, client)
        before = arena.query("select pid from pg_stat_activity where application_name = 'onceward hearts'")
        proxy.hang()

        here.until_said("heartbeats_on_own_connection", 2)
        here.until_said("heartbeats_relayed", 2)
        after = arena.query("select pid from pg_stat_activity where application_name = 'onceward hearts'")
        assert set(after) - set(before)
        assert here.identities() == here.workers
        assert attempts(arena) == ["running"]


def test_a_restart_of_the_database_costs_nobody_the_lease(arena, client):
    with host(arena, lease=USUAL) as here:
        until_each_has_one(arena, here, client)
        arena.server.embedded.restart_immediate()

        here.until_renewed(list(here.workers))
        assert here.identities() == here.workers
        assert attempts(arena) == ["running"]
        here.until_sessions(busy(2))


def test_sigterm_lets_running_jobs_finish_and_hands_the_others_back(arena, client, tmp_path):
    with host(arena) as here:
        go = tmp_path / "go"
        held = until_each_has_one(
            arena, here, client, stage.writes, dsn=arena.dsn, go=str(go), told=str(tmp_path / "told")
        )
        waiting = client.enqueue(stage.echo, {"text": "later"})
        here.parent.send_signal(signal.SIGTERM)
        here.until_said("signal_received", 2)
        go.touch()

        assert here.parent.wait(60) == 0
        assert {client.job(job).state for job in held.values()} == {"done"}
        assert (client.job(waiting).state, client.job(waiting).attempt) == ("ready", 0)
        assert set(attempts(arena)) <= {"done", "released"}
        assert all(gone(pid) for pid in here.workers)
        here.until_sessions({})
