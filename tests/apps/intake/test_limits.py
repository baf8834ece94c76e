"""A provider's limit is kept to the request, its tokens are settled to the unit, and nothing leaks when a worker is killed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from onceward.worker import Worker
from tests.apps.intake import limits_load
from tests.apps.intake.conftest import Door
from tests.apps.intake.provider import Provider, reading_by
from tests.apps.intake.stage import Intake, png

LIMIT = "intake:openai:gpt-4o-mini"


@pytest.fixture
def asked(intake_database, tmp_path):
    """The system with a provider that counts."""
    opened = []

    def start(most: int, period: float) -> tuple[Intake, Provider, Door]:
        provider = Provider(most, period)
        provider.__enter__()
        intake = Intake(
            intake_database.dsn, tmp_path / "bucket", reading_by(provider.url), extractor="openai"
        )
        door = Door(intake)
        opened.append((provider, intake, door))
        return opened[-1][1], opened[-1][0], opened[-1][2]

    yield start
    for provider, intake, door in opened:
        door.close()
        provider.__exit__()
        intake.close()


@contextlib.contextmanager
def working(intake: Intake) -> Iterator[None]:
    """A worker of the AI queue in a thread: it wakes when the limit has room."""
    worker = Worker(intake.app, dsn=intake.dsn, lanes=["ai_queue"])
    thread = threading.Thread(target=lambda: asyncio.run(worker.run()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(30)


def finish(intake: Intake, files: int) -> None:
    # The double counts real windows, so real time passes.
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if intake.one("select count(*) from intake.shell_files where status = 'completed'") == files:
            return
        intake.conn.execute("select pg_sleep(0.02)")
    raise AssertionError(
        intake.all("select job_type, status, error_details from intake.job_queue where status <> 'completed'")
    )


@pytest.mark.slow
def test_never_more_than_the_limit_in_any_window_and_tokens_to_the_unit(asked):
    intake, provider, _ = asked(most=6, period=1)
    intake.conn.execute(
        "select onceward.set_limit(%s, 6, p_period => '1 second', p_weight => 9000000, p_weight_burst => 900000, p_slots => 50)",
        [LIMIT],
    )
    limits_load.prepare(intake, 9)
    with working(intake):
        finish(intake, 9)
    assert provider.refused == 0
    # Three windows' worth.
    assert len(provider.began) == 18
    assert provider.busiest() <= 6
    assert provider.tokens == provider.kept
    assert intake.one("select sum(actual_tokens) from intake.api_calls") == provider.tokens
    assert intake.one("select sum(ai_tokens_used) from intake.user_usage_tracking") == provider.tokens
    assert (
        intake.one("select active_requests from intake.api_rate_limits where provider_name = 'openai'") == 0
    )


@pytest.mark.slow
def test_a_provider_that_allows_less_than_it_says_is_waited_for_and_no_attempt_is_used_up(asked):
    intake, provider, door = asked(most=3, period=1.0)
    provider.to_refuse = 2
    for number in range(3):
        door.upload(png(f"Glucose {number} mmol/L"))
    intake.drain()
    with working(intake):
        finish(intake, 3)
    assert provider.refused >= 2
    assert provider.busiest() <= 3
    assert intake.one("select max(retry_count) from intake.job_queue") == 0
    assert intake.one("select sum(actual_tokens) from intake.api_calls") == provider.tokens


def test_a_killed_worker_leaks_no_slot_and_no_token(intake, door):
    intake.clock.pin()
    door.upload(png())
    intake.conn.execute(
        "update intake.api_providers set concurrent_requests = 1 where provider_name = 'embedded'"
    )
    intake.conn.execute(
        "select onceward.set_limit('intake:embedded:extractor', 6000, p_weight => 30000, p_weight_burst => 3000, p_slots => 1)"
    )
    limit = "select active_requests, tokens_left from intake.api_rate_limits where provider_name = 'embedded'"
    whole = intake.all(limit)[0]
    intake.conn.execute(
        "select intake.enqueue_pass(id, 1, 500, 'embedded', 'extractor') from intake.shell_files"
    )
    # Claimed, and never heard of again.
    intake.conn.execute(
        "select c.* from onceward.register_worker('doomed', array['ai_queue']) as w, onceward.claim(w, array['ai_queue'], 5) as c"
    )
    assert intake.all(limit)[0] == (1, pytest.approx(whole[1] - 500, abs=1))
    intake.clock.advance("31 s")
    intake.drain()
    assert intake.one("select status from intake.shell_files") == "completed"
    assert intake.all(limit)[0][0] == 0
    intake.clock.advance("60 s")
    assert intake.all(limit)[0][1] == pytest.approx(whole[1], abs=1)


@pytest.mark.slow
@pytest.mark.crash
def test_workers_that_are_killed_keep_the_limit_and_leak_nothing(intake_database, tmp_path):
    """The load test, small: python -m tests.apps.intake.limits_load runs it for a minute, and asks for 95 % of the limit."""
    plan = limits_load.Plan(
        requests=24,
        period=4,
        seconds=4,
        workers=2,
        kills=1,
        least_used=0.0,
        work=0.05,
        files=24,
        retry_after=8,
        under_way=7.0,
        # A fiftieth of so short a period would be over before a busy machine has read the pages.
        allowance="1 second",
    )
    outcome = limits_load.run(intake_database.dsn, tmp_path / "bucket", plan)
    assert outcome.over == outcome.not_quiet == 0
    assert outcome.fullest <= 24
    assert outcome.kills == 1
