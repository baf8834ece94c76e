"""Manners of the whole program: help everywhere, exit statuses, near names, and no password ever."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from typer.main import get_command

from onceward.cli.help import page
from onceward.cli.main import app


def all_contexts(ctx=None):
    command = get_command(app) if ctx is None else ctx.command
    ctx = ctx or command.context_class(command, info_name="onceward")
    yield ctx
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else ():
        child = command.get_command(ctx, name)
        yield from all_contexts(child.context_class(child, info_name=name, parent=ctx))


CONTEXTS = {ctx.command_path: ctx for ctx in all_contexts()}


def test_the_commands_are_those_that_are_promised():
    assert set(CONTEXTS) == {
        f"onceward {path}".strip()
        for path in (
            "", "db", "db init", "db upgrade", "db status", "db sql", "db check", "db dsn", "db stop", "doctor", "worker", "workers", "metrics",
            "operator", "operator add", "operator list", "operator link", "operator disable",
            "token", "token create", "token list", "token revoke", "up", "web",
            "job", "job list", "job show", "job explain", "job enqueue", "job cancel", "job requeue", "job resolve", "job wait", "job run-now",
            "step", "step list", "step partial", "event", "event emit", "event list",
            "workflow", "workflow list", "workflow show", "workflow enqueue", "workflow cancel", "workflow requeue",
            "lane", "lane list", "lane explain", "lane add", "lane pause", "lane resume", "lane audit",
            "schedule", "schedule list", "schedule show", "schedule add", "schedule pause", "schedule resume", "schedule run",
            "schedule drop", "schedule preview", "schedule export", "run", "run list", "run show",
            "dead-letter", "dead-letter list", "dead-letter show", "dead-letter assign", "dead-letter comment", "dead-letter comments",
            "dead-letter requeue", "dead-letter resolve",
            "delivery", "delivery list", "delivery show", "delivery decide", "delivery cancel",
            "monitor", "monitor list", "monitor show", "monitor run", "monitor set", "monitor enable", "monitor disable",
            "monitor drop", "alert", "alert list", "alert show", "alert ack", "alert close", "alert silence", "alert silences",
            "alert unsilence", "channel", "channel list", "channel add", "channel test", "channel drop",
            "retention", "retention show", "retention set", "retention run", "legal-hold", "legal-hold list",
            "legal-hold add", "legal-hold release", "limit", "limit list", "limit show", "limit set", "limit pause", "limit resume", "limit drop",
            "lane set", "lane share", "lane bounds",
            "audit", "audit list", "audit show", "audit status", "audit seal", "audit verify", "audit checkpoint", "audit proof",
            "audit keygen", "audit drop",
            "new", "new function", "demo", "bench",
        )
    }  # fmt: skip


@pytest.mark.parametrize("path", CONTEXTS)
def test_every_command_and_every_option_has_help(path, cli_alone):
    described = page(CONTEXTS[path])

    assert described.text
    for name, text in (*described.arguments, *described.options):
        assert text, f"{name} of {path} has no help"
    answer = cli_alone.ok(*path.split()[1:], "--help")
    assert answer.out.startswith(described.text[:40])
    assert "Usage: " + path in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_every_read_has_json():
    reads = [
        "db status", "db check", "doctor", "workers", "job list", "job show", "job explain", "job wait",
        "lane list", "lane explain", "dead-letter list", "dead-letter show", "step list", "step partial", "event list", "workflow list",
        "workflow show",
        "schedule list", "schedule show", "schedule preview", "run list", "run show",
        "delivery list", "delivery show", "monitor list", "monitor show", "alert list", "alert show", "alert silences",
        "channel list", "retention show", "retention run", "legal-hold list", "limit list", "limit show", "lane bounds",
    ]  # fmt: skip

    for path in reads:
        assert "--json" in dict(page(CONTEXTS[f"onceward {path}"]).options)


def test_the_first_help_is_grouped_and_short(cli_alone):
    out = cli_alone.ok("--help").out

    assert [line for line in out.splitlines() if line in {"Set up", "Run", "Look and act", "Try", "Options"}] == [
        "Set up", "Run", "Look and act", "Try", "Options",
    ]  # fmt: skip
    assert len(out.splitlines()) <= 60


def test_no_arguments_show_the_help_as_a_usage_error(cli_alone):
    answer = cli_alone()

    assert answer.status == 2
    assert answer.out == ""
    assert "Usage: onceward COMMAND" in answer.err


def test_the_version(cli_alone):
    assert cli_alone.ok("--version").out.startswith("onceward ")


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["jbo", "list"], ['unknown command "onceward jbo"', 'Did you mean "job"?']),
        (["dead-leter"], ['Did you mean "dead-letter"?']),
        (["job", "enque", "x"], ['unknown command "onceward job enque"', 'Did you mean "enqueue"?']),
        (["zzz"], ['unknown command "onceward zzz"', '"onceward --help"']),
        (["--dns", "x", "job", "list"], ["unknown option --dns", 'Did you mean "--dsn"?']),
        (["job", "list", "--lnae", "x"], ["unknown option --lnae", 'Did you mean "--lane"?']),
        (["job", "list", "--limit"], ["--limit", "requires an argument"]),
        (["job", "list", "--dsn"], ["--dsn needs a value"]),
        (["--tenant", "", "job", "list"], ["--tenant is empty"]),
        (["job", "list", "--tenant="], ["--tenant is empty"]),
        (["--dsn", " ", "job", "list"], ["--dsn is empty"]),
        (["job", "show", "1", "2"], ["unexpected extra argument"]),
        (["worker", "list"], ["package.module:app", '"onceward workers"']),
    ],
)
def test_what_is_not_understood_is_named_with_the_nearest_that_would_be(cli_alone, arguments, fragments):
    error = cli_alone.refused(2, *arguments)

    for fragment in fragments:
        assert fragment in error


def test_the_global_options_may_follow_the_command(cli_alone, db):
    db.enqueue(tenant="red")
    db.enqueue(tenant="blue")

    before = cli_alone.ok("--dsn", db.dsn, "--tenant", "red", "job", "list", "--count")
    after = cli_alone.ok("job", "list", "--count", f"--dsn={db.dsn}", "--tenant", "red")

    assert before.out == after.out == "1\n"


def test_after_two_dashes_nothing_is_an_option(cli, db):
    job = cli.ok("job", "enqueue", "--unknown-task-ok", "--", "--dsn", "{}")

    # Not taken for the option, so it reached the database, which refuses no dashes in a name.
    assert db.value("select task from onceward.jobs where id = %s::uuid", job.out.strip()) == "--dsn"


# ---------------------------------------------------------------- connecting


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_server_that_is_not_there_is_named_without_the_password(cli_alone):
    port = unused_port()

    error = cli_alone.refused(1, "job", "list", dsn=f"postgresql://joe:hunter2@127.0.0.1:{port}/shop")

    assert f'could not connect to database "shop" on 127.0.0.1:{port} as "joe"' in error
    assert "Connection refused" in error
    assert "ONCEWARD_DSN" in error
    assert "hunter2" not in error


@pytest.mark.parametrize(
    "dsn",
    [
        "postgres//joe:hunter2@127.0.0.1/shop",
        "host=127.0.0.1 passwrod=hunter2",
        "host=127.0.0.1 password='hunter2",
    ],
)
def test_a_connection_string_that_cannot_be_read_is_not_repeated(cli_alone, dsn):
    for command in (["job", "list"], ["db", "init"], ["doctor"], ["db", "status"]):
        answer = cli_alone(*command, dsn=dsn)
        assert answer.status == 2
        assert "hunter2" not in answer.out + answer.err
        assert "postgresql://user@host:5432/database" in answer.err


def test_a_database_that_does_not_exist_is_named(cli_alone, onceward_server):
    dsn = onceward_server.admin_dsn.replace("/postgres?", "/nosuchdb?")

    for command in (["job", "list"], ["db", "init"]):
        error = cli_alone.refused(1, *command, dsn=dsn)
        assert 'database "nosuchdb"' in error
        assert "createdb" in error


def test_a_database_without_the_schema_says_how_to_install_it(cli_alone, onceward_server):
    database = onceward_server.create("bare")

    for command in (
        ["job", "list"],
        ["lane", "list"],
        ["workers"],
        ["job", "enqueue", "x"],
        ["dead-letter", "list"],
    ):
        error = cli_alone.refused(1, *command, dsn=database.dsn)
        assert "not installed" in error
        assert '"onceward db init"' in error


def test_a_port_that_is_none_is_named_without_the_password(cli_alone):
    error = cli_alone.refused(1, "job", "list", dsn="postgresql://joe:hunter2@127.0.0.1:port/shop")

    assert 'invalid integer value "port"' in error
    assert "hunter2" not in error


@pytest.mark.parametrize(
    "command",
    [["job", "list"], ["doctor"], ["db", "status"], ["db", "check"], ["db", "sql", "--roles"], ["workers"], ["db", "init"]],
    ids=" ".join,
)  # fmt: skip
def test_no_output_of_any_command_holds_the_password(cli_alone, login, command):
    answer = cli_alone(*command, dsn=login("onceward_operator", password="hunter2"))

    assert "hunter2" not in answer.out + answer.err


# ---------------------------------------------------------------- as a program


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onceward.cli", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_the_program_ends_with_the_status_and_keeps_the_streams_apart(db):
    listed = program("job", "list", ONCEWARD_DSN=db.dsn)
    unknown = program("job", "lits", ONCEWARD_DSN=db.dsn)
    failed = program("lane", "pause", "nosuch", ONCEWARD_DSN=db.dsn)

    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "no jobs\n")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "\x1b" not in unknown.stderr + failed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [("onceward jo", "job"), ("onceward job en", "enqueue"), ("onceward job list --st", "--state"), ("onceward job list --state dead", "dead_letter")],
)  # fmt: skip
def test_the_shell_completes(words, offered):
    answer = program(
        _ONCEWARD_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
    )  # fmt: skip

    assert offered in answer.stdout.split()


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_traceback(db):
    for _ in range(200):
        db.enqueue(payload={"x": "y" * 2000})
    command = f"{sys.executable} -m onceward.cli job list --limit 200 --json | head -1"

    answer = subprocess.run(
        command,
        shell=True,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "ONCEWARD_DSN": db.dsn},
    )

    assert answer.stdout == "[\n"
    assert answer.stderr == ""
