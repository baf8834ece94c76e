"""Runs in Python: a block that runs once per key."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from onceward import AsyncClient, Client, LeaseLost
from onceward.errors import InvalidArgument, RunHeld
from onceward.run_keys import run_key
from onceward.runs import AsyncRuns, Runs
from tests.sdk.conftest import Blocking


class BlockingRuns(Blocking):
    """AsyncRuns, called like Runs; the body of `hold` is a plain function."""

    def within(self, key, body):
        async def held():
            async with self._client.hold(key) as run:
                body(run)

        self._runner.run(held())


class PlainRuns:
    def __init__(self, runs):
        self._runs = runs

    def __getattr__(self, name):
        return getattr(self._runs, name)

    def within(self, key, body):
        with self._runs.hold(key) as run:
            body(run)


@pytest.fixture(params=["sync", "async"])
def runs(request, onceward_database):
    if request.param == "sync":
        with Client(onceward_database) as client:
            yield PlainRuns(Runs(client, holder="host-1"))
        return
    with asyncio.Runner() as runner:
        client = AsyncClient(onceward_database)
        yield BlockingRuns(AsyncRuns(client, holder="host-1"), runner)
        runner.run(client.close())


def test_a_block_runs_once_and_later_callers_hear_of_it(runs):
    seen = []

    def body(run):
        seen.append((run.attempt, run.holder))
        run.result = {"alerts": 3}

    runs.within("k", body)

    with pytest.raises(RunHeld, match='run "k" has completed') as error:
        runs.within("k", body)
    assert "host-1 ran it from" in error.value.detail
    assert seen == [(1, "host-1")]
    found = runs.get("k")
    assert (found.state, found.result) == ("completed", {"alerts": 3})
    assert runs.get("other") is None


def test_while_it_runs_others_hear_who_holds_it_since_when(runs):
    assert runs.begin("k").acquired

    with pytest.raises(RunHeld, match=r'run "k" is held by host-1 since \d{4}-') as error:
        runs.within("k", lambda run: pytest.fail("it ran"))
    assert "Its lease ends at" in error.value.detail


def test_an_exception_marks_it_failed_and_it_may_be_tried_again(runs):
    def breaks(run):
        raise ValueError("no rules")

    with pytest.raises(ValueError, match="no rules"):
        runs.within("k", breaks)
    assert (runs.get("k").state, runs.get("k").error) == ("failed", "ValueError: no rules")

    attempts = []
    runs.within("k", lambda run: attempts.append(run.attempt))
    assert attempts == [2]
    assert runs.get("k").state == "completed"


@pytest.mark.parametrize("fails", [False, True])
def test_a_block_that_was_taken_over_does_not_complete_the_run(runs, onceward_database, onceward_kit, fails):
    onceward_kit.clock.pin()

    def body(run):
        onceward_kit.clock.advance("1h")
        with Client(onceward_database) as client:
            assert Runs(client, holder="host-2").begin("k").acquired
        if fails:
            raise ValueError("too late")

    with pytest.raises(ValueError if fails else LeaseLost):
        runs.within("k", body)
    assert (runs.get("k").state, runs.get("k").holder) == ("running", "host-2")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_lease_is_renewed_while_the_block_runs(onceward_database, kind):
    with Client(onceward_database) as other:
        watch = Runs(other)

        def renewed(run):
            first = watch.get("k").expires_at
            return lambda: watch.get("k").expires_at > first

        if kind == "sync":
            with (
                Client(onceward_database) as client,
                Runs(client, lease=timedelta(seconds=1)).hold("k") as run,
            ):
                moved = renewed(run)
                while not moved():
                    assert not run.lost
            return

        async def main():
            async with (
                AsyncClient(onceward_database) as client,
                AsyncRuns(client, lease=timedelta(seconds=1)).hold("k") as run,
            ):
                moved = renewed(run)
                while not await asyncio.to_thread(moved):
                    assert not run.lost

        asyncio.run(main())


@pytest.mark.slow
def test_a_block_learns_that_it_has_lost_its_run(onceward_database, onceward_kit):
    onceward_kit.clock.pin()
    with (
        Client(onceward_database) as client,
        pytest.raises(LeaseLost),
        Runs(client, lease=timedelta(seconds=1)).hold("k") as run,
    ):
        # As if this process had been suspended past its lease.
        onceward_kit.clock.advance("1h")
        # A renewal may have come between the two.
        while not Runs(client, holder="host-2").begin("k").acquired and not run.lost:
            onceward_kit.clock.advance("1h")
        while not run.lost:
            assert Runs(client).get("k").holder == "host-2"


def test_the_key_by_the_clock_of_the_engine(runs, onceward_kit):
    onceward_kit.clock.pin(datetime(2031, 1, 1, 7, 0, tzinfo=UTC))

    key = runs.key("build", "acme", entity={"n": 1}, zone="America/Los_Angeles")

    assert key.startswith("build:acme:2030-12-31:")
    assert key == run_key(
        "build", "acme", entity={"n": 1}, zone="America/Los_Angeles", at=onceward_kit.clock.now()
    )


def test_a_lease_is_at_least_a_second(onceward_database):
    with Client(onceward_database) as client, pytest.raises(InvalidArgument, match="lease must be"):
        Runs(client, lease=timedelta(0))
