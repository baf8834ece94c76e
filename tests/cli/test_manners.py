"""What is said when a value or a place is wrong: in the words of the command line, in one line, without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from onceward.connecting import connect_error

FULL = Path("/dev/full")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["delivery", "show", "nope"], 2, "delivery id must be a UUID, got 'nope'\nhint: Ids are listed by \"onceward delivery list\""),
        (["delivery", "cancel", "nope"], 2, "delivery id must be a UUID, got 'nope'"),
        (["lane", "add", "mail", "--max-payload", "1"], 2, "--max-payload must be between 1 KiB and 256 MiB, got 1"),
        (["lane", "add", "mail", "--max-result", "1"], 2, "--max-result must be between 1 KiB and 256 MiB, got 1"),
        (["retention", "set", "archive", "-5d"], 2, "a duration cannot be negative, got '-5d'"),
        (["audit", "verify", "--checkpoint", "nofile"], 1, "checkpoint nofile cannot be read: No such file or directory\n"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_as_it_was_typed(cli, arguments, status, words):
    answer = cli(*arguments)

    assert answer.status == status
    assert f"error: {words}" in answer.err


@pytest.mark.slow
@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "arguments", [["lane", "list"], ["lane", "list", "--json"], ["db", "status"], ["job", "list", "--help"]]
)
def test_output_that_finds_no_room_is_one_error(db, arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    with FULL.open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "onceward.cli", *arguments],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env={**environment, "ONCEWARD_DSN": db.dsn},
        )

    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "detail", "hint"]
    assert "the output could not be written: No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("password", "said", "shown"),
    [
        ("x", 'role "nouser" does not exist', 'role "nouser" does not exist'),
        ("exist", 'role "nouser" does not exist', 'role "nouser" does not exist'),
        ("x", "in host=h password=x user=a", "in host=h password=*** user=a"),
        ("x", "in host=h password='x'", "in host=h password=***"),
        ("x", "in postgresql://ada:x@h/x", "in postgresql://ada:***@h/x"),
        ("it's", "in host=h password='it\\'s' user=a", "in host=h password=*** user=a"),
        (
            "x",
            "in postgresql://h/d?user=a&password=x&sslmode=require is",
            "user=a&password=***&sslmode=require is",
        ),
        ("a/b", "in postgresql://ada:a%2Fb@h/x", "in postgresql://ada:***@h/x"),
        ("opensesame", 'host "opensesame@h" is not known', 'host "***@h" is not known'),
        ("open sesame", "invalid: open sesame", "invalid: ***"),
        ("opensesame", "opensesames", "opensesames"),
    ],
)
def test_a_password_is_hidden_where_it_stands_and_no_word_is_spoilt(password, said, shown):
    dsn = psycopg.conninfo.make_conninfo(host="h", user="ada", password=password)

    error = connect_error(dsn, psycopg.OperationalError(said))

    assert shown in str(error)
    assert "***" not in shown or said not in str(error)
