"""Workers under a provider's limit, killed now and then, against a double that counts: python -m tests.apps.intake.limits_load [seconds].

Never more than the limit in any window, nearly all of it used, quiet when the provider asks for it, every token on somebody's account,
and nothing held when it is over.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
from psycopg.types.json import Jsonb

from onceward import logs
from onceward.testing.database import DatabaseServer
from onceward_apps.intake import store
from tests.apps.intake.provider import Provider
from tests.apps.intake.stage import UPLOAD, Intake, png

LIMIT = "intake:openai:gpt-4o-mini"
ENDPOINT = {"provider_name": "openai", "api_endpoint": "gpt-4o-mini"}
# How long the double refuses at the end, in seconds.
REFUSES = 1.0
# Of tokens: as many as the limit ever gives at once.
AT_ONCE = 500_000
PROFILES = 5
# Until everything has to have ended, in seconds.
PATIENCE = 240


@dataclass(frozen=True)
class Plan:
    """`requests` in any `period` seconds; `seconds` of work are measured."""

    # Few enough that the limit decides, and not the machine.
    requests: int = 120
    period: int = 60
    # What may begin at once: what is kept for a moment in which nobody claims is lost for the rest of the period.
    burst: int = 2
    # Between the claim and the question, in which the pages are read; None is the engine's own.
    allowance: str | None = None
    seconds: int = 70
    workers: int = 3
    kills: int = 3
    slots: int = 40
    work: float = 0.15
    lease: str = "3s"
    # How long the double asks to wait, and how long a request may be under way that had not heard of it.
    retry_after: int = 10
    under_way: float = 5.0
    # The share of the limit that has to be used while there is work.
    least_used: float = 0.95
    # Two requests each, and enough that there is work to the end.
    files: int = 100

    @classmethod
    def lasting(cls, seconds: int) -> Plan:
        return cls(seconds=seconds, files=cls.requests * seconds // cls.period // 2 + 30)


@dataclass(frozen=True, slots=True)
class Outcome:
    limit: int
    fullest: int
    over: int
    used: float
    requests: int
    again: int
    kills: int
    at_once: int
    slots: int
    refused: int
    not_quiet: int
    tokens: int

    def report(self) -> str:
        return (
            f"{self.requests} requests, {self.fullest} of {self.limit} in the fullest window, {self.over} over, {self.used:.1%} used; "
            f"{self.at_once} of {self.slots} at once; {self.kills} workers killed, {self.again} questions asked again; "
            f"{self.refused} refused with Retry-After, {self.not_quiet} sent while it asked to wait; "
            f"{self.tokens} tokens settled to the unit, nothing held"
        )


def run(dsn: str, folder: Path, plan: Plan) -> Outcome:
    """Raises AssertionError when a limit was not kept or used, a token is missing, or something is held at the end."""
    intake = Intake(dsn, folder, extractor="openai")
    with Provider(plan.requests, plan.period, work=plan.work) as provider:
        _limit(intake, plan)
        prepare(intake, plan.files)
        fleet = Fleet(intake, provider.url, plan.lease)
        try:
            return _measure(intake, provider, fleet, plan)
        finally:
            fleet.close()
            intake.close()


def _limit(intake: Intake, plan: Plan, faster: int = 1) -> None:
    intake.conn.execute(
        "select onceward.set_limit(%s, %s, p_period => make_interval(secs => %s), p_burst => %s, p_allowance => %s::interval, "
        "p_weight => 90000000, p_weight_burst => %s, p_slots => %s)",
        [
            LIMIT,
            plan.requests * faster,
            plan.period,
            plan.burst * faster,
            plan.allowance,
            AT_ONCE,
            plan.slots,
        ],
    )


def prepare(intake: Intake, files: int) -> None:
    """Files that were uploaded and read: what is left is what the provider is asked for."""
    profiles = [intake.add_profile(intake.owner, f"Person {number}") for number in range(PROFILES)]

    async def upload() -> list[str]:
        transport = httpx.ASGITransport(intake.asgi())
        async with httpx.AsyncClient(transport=transport, base_url="http://intake") as http:
            ids = []
            for number in range(files):
                answer = await http.post(
                    UPLOAD, params={"profile_id": str(profiles[number % PROFILES]), "filename": "scan.png"}, content=png(f"Glucose {number} mmol/L"),
                    headers={"authorization": f"Bearer {intake.token()}"},
                )  # fmt: skip
                assert answer.status_code == 201, answer.text
                ids.append(answer.json()["shell_file_id"])
            return ids

    for number, file in enumerate(asyncio.run(upload())):
        words = [
            {"content": text, "x": 20 + 60 * place, "y": 40, "width": 50, "height": 20, "confidence": 0.9, "line": 1, "number": place}
            for place, text in enumerate(("Glucose", str(number), "mmol/L"))
        ]  # fmt: skip
        with intake.conn.transaction():
            intake.conn.execute("select intake.begin_file(%s)", [file])
            intake.conn.execute(
                "select intake.store_page(%s, 1, 800, 1000, 'none', %s)", [file, Jsonb(words)]
            )
            intake.conn.execute("select intake.finish_ocr(%s, 1, 400, %s)", [file, Jsonb(ENDPOINT)])
            # Nobody has to read it again.
            intake.conn.execute(
                "select onceward.cancel(job_id) from intake.shell_files where id = %s", [file]
            )


class Fleet:
    """Worker processes of the AI queue."""

    def __init__(self, intake: Intake, url: str, lease: str) -> None:
        self._environment = os.environ | {
            "ONCEWARD_DSN": intake.dsn, "INTAKE_LOAD_FOLDER": str(intake.folder), "INTAKE_LOAD_PROVIDER": url,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }  # fmt: skip
        self._lease = lease
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._workers.append(subprocess.Popen(
            [sys.executable, "-m", "onceward.cli", "worker", "tests.apps.intake.mortal:app", "--lanes", "ai_queue",
             "--concurrency", "20", "--lease", self._lease],
            env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ))  # fmt: skip

    def kill(self) -> None:
        """The oldest, in the middle of its work.  Another one takes its place."""
        doomed = self._workers.pop(0)
        doomed.kill()
        doomed.wait()
        self.start()

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()


def _measure(intake: Intake, provider: Provider, fleet: Fleet, plan: Plan) -> Outcome:
    for _ in range(plan.workers):
        fleet.start()
    # What the workers need to get going is not the limit's fault.
    _until(lambda: len(provider.began) > plan.burst * 2, "the provider is asked")
    began = time.monotonic()
    print(f"measuring for {plan.seconds} s", file=sys.stderr, flush=True)
    for number in range(plan.kills):
        _rest_until(began + (number + 1) * plan.seconds / (plan.kills + 1))
        fleet.kill()
    _rest_until(began + plan.seconds)
    ended = time.monotonic()
    asked = provider.between(began, ended)
    fullest, over = provider.busiest(), provider.over
    waiting = intake.one(
        "select count(*) from intake.job_queue where job_type in ('ai_queue_pass1', 'ai_queue_pass2') and status = 'pending'"
    )
    assert waiting, "the work has run out before the time, so nothing was measured: prepare more files"

    provider.retry_after, provider.refuse_for = plan.retry_after, REFUSES
    _until(lambda: provider.refused > over, "the provider has refused")
    heard = provider.refusals[over]
    _rest_until(heard + plan.retry_after)
    not_quiet = provider.between(heard + plan.under_way, heard + plan.retry_after)
    # The rest is not measured.
    provider.most *= 20
    _limit(intake, plan, 20)
    _until(
        lambda: not intake.one("select count(*) from intake.shell_files where status <> 'completed'"),
        "every file is completed",
    )
    _until(
        lambda: (
            not intake.one(
                "select active_requests from intake.api_rate_limits where provider_name = 'openai'"
            )
        ),
        "no slot is held",
    )

    used = asked / (plan.requests * (ended - began) / plan.period)
    assert fullest <= plan.requests, f"{fullest} requests in one window, {plan.requests} are allowed"
    assert over == 0, f"{over} requests were refused as too many"
    assert provider.most_at_once <= plan.slots, (
        f"{provider.most_at_once} requests at once, {plan.slots} are allowed"
    )
    assert not_quiet == 0, f"{not_quiet} requests while the provider asked to wait"
    assert used >= plan.least_used, f"{used:.1%} of the limit was used, less than {plan.least_used:.0%}"
    _check_accounts(intake, provider, plan)
    return Outcome(
        limit=plan.requests, fullest=fullest, over=over, used=used, requests=len(provider.began),
        again=len(provider.began) - len(provider.used), kills=plan.kills, at_once=provider.most_at_once, slots=plan.slots,
        refused=provider.refused, not_quiet=not_quiet, tokens=provider.kept,
    )  # fmt: skip


def _check_accounts(intake: Intake, provider: Provider, plan: Plan) -> None:
    """Each answer that was kept is on somebody's account, to the token; each file once."""
    assert len(provider.used) == 2 * plan.files, f"{len(provider.used)} questions for {plan.files} files"
    assert intake.one("select count(*) from intake.api_calls") == 2 * plan.files
    assert intake.one("select sum(actual_tokens) from intake.api_calls") == provider.kept
    assert intake.one("select sum(ai_tokens_used) from intake.user_usage_tracking") == provider.kept
    assert (
        intake.one("select max(retry_count) from intake.job_queue where job_type like 'ai_queue_pass%%'")
        <= plan.kills
    )
    assert intake.one("select count(*) from intake.job_queue where status = 'failed'") == 0
    # Nothing leaks: when it has been quiet for a while, the limit gives all again.
    _until(
        lambda: intake.one("select tokens_left from intake.api_rate_limits where provider_name = 'openai'") >= AT_ONCE,
        "all tokens are free",
    )  # fmt: skip


def _until(done: Callable[[], object], what: str) -> None:
    print(f"until {what}", file=sys.stderr, flush=True)
    patience = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < patience, f"waited in vain: {what}"
        time.sleep(0.05)


def _rest_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


def main() -> None:
    logs.configure("text", level="warning")
    plan = Plan.lasting(int(sys.argv[1])) if len(sys.argv) > 1 else Plan()
    with (
        DatabaseServer.from_environment() as server,
        server.cloned() as database,
        tempfile.TemporaryDirectory() as folder,
    ):
        store.install(database.dsn)
        with psycopg.connect(database.dsn) as connection:
            version = connection.info.server_version // 10000
        print(f"{plan.seconds} s on PostgreSQL {version}: {run(database.dsn, Path(folder), plan).report()}")


if __name__ == "__main__":
    main()
