from __future__ import annotations

import contextlib
import io
import json
import secrets
import sys
from dataclasses import dataclass
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from onceward.cli.main import run


@dataclass
class Answer:
    """What one command line did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """The real command line in this process, with streams that are no terminal."""

    def __init__(self, dsn: str | None) -> None:
        self.dsn = dsn

    def __call__(self, *arguments: object, stdin: str | bytes = "", dsn: str | None = None) -> Answer:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        named = dsn or self.dsn
        before = ["--dsn", named] if named else []
        previous, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(raw), "utf-8")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = run([*before, *map(str, arguments)])
        finally:
            sys.stdin = previous
        return Answer(status, _text(out), _text(err))

    def ok(self, *arguments: object, **settings: Any) -> Answer:
        answer = self(*arguments, **settings)
        assert answer.status == 0, answer.err
        return answer

    def json(self, *arguments: object) -> Any:
        return self.ok(*arguments, "--json").json

    def refused(self, status: int, *arguments: object, **settings: Any) -> str:
        """The error text; nothing may be on standard output, and no traceback anywhere."""
        answer = self(*arguments, **settings)
        assert answer.status == status, answer
        assert answer.out == ""
        assert answer.err.startswith("error: ")
        assert "Traceback" not in answer.err
        return answer.err


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()


@pytest.fixture(autouse=True)
def no_server_is_named(monkeypatch):
    for name in (
        "ONCEWARD_DSN",
        "PGHOST",
        "PGHOSTADDR",
        "PGSERVICE",
        "PGDATABASE",
        "PGUSER",
        "PGPASSWORD",
        "PGPORT",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(db):
    return Cli(db.dsn)


@pytest.fixture
def cli_alone():
    """Without a database."""
    return Cli(None)


@pytest.fixture
def login(db):
    """Make a role that may log in and is a member of these; its DSN."""
    made = []

    def make(*roles: str, password: str | None = None) -> str:
        name = f"test_{secrets.token_hex(4)}"
        db.run(f"create role {name} login" + (f" password '{password}'" if password else ""))
        made.append(name)
        for role in roles:
            db.run(f"grant {role} to {name}")
        return make_conninfo(db.dsn, user=name, password=password)

    yield make
    for name in made:
        db.run(f"drop owned by {name}")
        db.run(f"drop role {name}")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A module `shop_jobs` with an application, found in the current directory."""
    (tmp_path / "shop_jobs.py").write_text(
        "from onceward.app import Onceward\n"
        "app = Onceward()\n"
        "@app.task(name='mail.send', lane='mail', max_attempts=3)\n"
        "def send(to: str, copies: int = 1) -> str:\n"
        "    return to\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "shop_jobs:app"
    sys.modules.pop("shop_jobs", None)
