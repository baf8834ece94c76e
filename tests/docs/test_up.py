"""`onceward up` as a newcomer meets it: it starts, signs in, works, and finds everything again."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import psycopg
import pytest

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Up:
    def __init__(self, dsn: str, home, *apps: str) -> None:
        self.port = free_port()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onceward.cli", "up", *apps],
            cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**environment, "ONCEWARD_DSN": dsn, "ONCEWARD_HOME": str(home), "PORT": str(self.port)},
        )  # fmt: skip
        self.seen: list[str] = []
        for line in self.process.stdout:
            self.seen.append(line)
            if "Ctrl-C" in line:
                break
        else:
            pytest.fail("it did not start:\n" + "".join(self.seen))
        self.http = httpx.Client(base_url=f"http://localhost:{self.port}", timeout=20)

    @property
    def link(self) -> str:
        return re.search(r"sign-in\?link=(\S+)", "".join(self.seen))[1]

    def stop(self) -> int:
        self.http.close()
        self.process.send_signal(signal.SIGINT)
        self.seen.append(self.process.communicate(timeout=60)[0])
        return self.process.returncode


def wait_for(dsn: str, query: str, wanted: object) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + 60
    with psycopg.connect(dsn, autocommit=True) as connection:
        while (seen := connection.execute(query).fetchone()) != (wanted,):
            assert time.monotonic() < deadline, f"{query}: {seen}"
            connection.execute("select pg_sleep(0.1)")


def test_it_starts_signs_in_works_and_finds_everything_again(onceward_database, tmp_path):
    dead = "select count(*) from onceward.dead_letters where task = 'charge_card'"
    up = Up(onceward_database, tmp_path)
    try:
        assert up.http.get("/healthz").status_code == 200
        # The sample that fails is there to be mended.
        wait_for(onceward_database, dead, 3)
        assert up.http.post("/sign-in", data={"link": up.link}).status_code == 303
        page = up.http.get("/samples/").text
        csrf = re.search(r'name="csrf" value="(\w+)"', page)[1]
        answer = up.http.post("/samples/fail", data={"csrf": csrf})
        assert answer.status_code == 303
        wait_for(onceward_database, dead, 4)
        job = answer.headers["location"]
        payload = '{"order": 1, "card": "valid 12/31", "amount": 1}'
        assert up.http.post(f"{job}/requeue", data={"csrf": csrf, "payload": payload}).status_code == 303
        wait_for(onceward_database, dead, 3)
    finally:
        status = up.stop()
    assert status == 0, "".join(up.seen)
    with psycopg.connect(onceward_database) as connection:
        assert connection.execute(
            "select count(*) from onceward.workers where state = 'live'"
        ).fetchone() == (0,)
        before = connection.execute(
            "select count(*) from onceward.jobs where task = 'send_receipt'"
        ).fetchone()

    again = Up(onceward_database, tmp_path)
    try:
        wait_for(
            onceward_database, "select count(*) from onceward.jobs where task = 'send_receipt'", before[0]
        )
        wait_for(onceward_database, dead, 3)
        # The first link was used; this start has brought another.
        assert again.http.post("/sign-in", data={"link": up.link}).status_code == 403
        assert again.http.post("/sign-in", data={"link": again.link}).status_code == 303
    finally:
        assert again.stop() == 0


def test_a_closed_terminal_ends_it_and_its_worker_in_order(onceward_database, tmp_path):
    up = Up(onceward_database, tmp_path)
    live = "select count(*) from onceward.workers where state = 'live'"
    try:
        wait_for(onceward_database, f"select ({live}) > 0", True)
        # Nobody reads any more what it says.
        up.process.stdout.close()
        up.process.send_signal(signal.SIGHUP)
        assert up.process.wait(60) == 0
        with psycopg.connect(onceward_database) as connection:
            assert connection.execute(live).fetchone() == (0,)
    finally:
        up.http.close()
        up.process.kill()
        up.process.wait()


def test_a_port_that_is_taken_is_told_before_anything_starts(onceward_database, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        done = subprocess.run(
            [sys.executable, "-m", "onceward.cli", "up", "--port", str(taken.getsockname()[1])],
            check=False, capture_output=True, text=True, timeout=60,
            env={**environment, "ONCEWARD_DSN": onceward_database, "ONCEWARD_HOME": str(tmp_path)},
        )  # fmt: skip
    assert done.returncode == 1
    assert "could not listen on" in done.stderr


PAIR = """
from pathlib import Path

from starlette.responses import PlainTextResponse
from starlette.routing import Route

from onceward import Onceward
from onceward.deliveries import Deliveries
from onceward.web import Section


def made(name):
    app = Onceward(name=name)
    Deliveries(app, lane=name + "-deliveries")

    @app.task(name=name + "_work", lane=name)
    async def work():
        return name

    async def fill(web):
        client = app.async_client()
        async with web.database.serving() as db:
            await client.enqueue(work, {}, key="sample", key_window="forever", connection=db.connection)

    app.sections.append(Section(
        name=name, title=name.title(), public=[Route("/" + name + "-open", lambda request: PlainTextResponse(name))],
        prepare=lambda dsn: Path("prepared-" + name).write_text(dsn), samples=fill,
    ))
    return app


red, blue = made("red"), made("blue")
"""


def test_several_applications_share_one_database_each_with_its_own_worker(onceward_database, tmp_path):
    tmp_path.joinpath("pair.py").write_text(PAIR)
    up = Up(onceward_database, tmp_path, "pair:red", "pair:blue")
    try:
        assert [up.http.get(path).text for path in ("/red-open", "/blue-open")] == ["red", "blue"]
        assert {file.name: file.read_text() for file in tmp_path.glob("prepared-*")} == {
            "prepared-red": onceward_database,
            "prepared-blue": onceward_database,
        }
        wait_for(
            onceward_database,
            "select count(*) from onceward.jobs where state = 'done' and task like '%_work'",
            2,
        )
        # The third sends what is in the common lane, alerts among it.
        wait_for(onceward_database, "select count(*) from onceward.workers where state = 'live'", 3)
    finally:
        assert up.stop() == 0
