"""Rubbish into every argument and option of every command: it works, or there is an error for people and no traceback."""

from __future__ import annotations

from itertools import cycle

import pytest

from onceward.cli.main import _command

AN_ID = "01900000-0000-7000-8000-000000000000"
RUBBISH = ["", "-1", "99999999999999999999", "é☃", "x" * 3000, "NaN", "'; drop", "%s", '[{"a": 1}]']
# They serve, measure or stop servers.
NOT_HERE = {"worker", "web", "up", "bench", "demo", "db"}
pytestmark = pytest.mark.slow


def commands(command, path=()):
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from commands(below, (*path, name))
    elif path[0] not in NOT_HERE:
        yield path, command


def command_lines():
    more = cycle(RUBBISH)
    for path, command in commands(_command()):
        needed = [p for p in command.params if p.param_type_name == "argument" and p.required]
        options = [p for p in command.params if p.param_type_name == "option" and not p.is_flag]
        if needed:
            yield from ((*path, *[rubbish] * len(needed)) for rubbish in RUBBISH)
        # Each option gets some of it, and another some than its neighbour.
        for option in options:
            for _ in range(3):
                yield (*path, *[AN_ID] * len(needed), f"{option.opts[-1]}={next(more)}")


def test_no_command_ends_with_a_traceback(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = list(command_lines())
    odd = {}
    for line in lines:
        answer = cli(*line)
        if answer.status not in {0, 1, 2} or (answer.status and not answer.err.startswith("error: ")):
            odd.setdefault(line[:2], (line, answer.err[-400:]))

    assert len(lines) > 1000
    assert odd == {}


def test_bytes_that_are_no_text_are_shown_as_such(cli_alone):
    assert r"argument is not valid UTF-8: '\\xdc80'" in cli_alone.refused(2, "job", "show", "\udc80")


def test_a_number_that_no_column_holds_is_named(cli):
    assert "max_depth must be a whole number of 64 bits" in cli.refused(
        1, "lane", "set", "default", "--max-depth", 10**20
    )
