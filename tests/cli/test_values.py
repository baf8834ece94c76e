"""What a person may type, and what is printed back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from onceward.cli import output, values
from onceward.cli.output import Column
from onceward.cli.values import UsageProblem

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), ("1w", 604800), ("1h30m", 5400), ("1.5H", 5400), ("0s", 0)],
)  # fmt: skip
def test_durations(typed, seconds):
    assert values.duration("--x", typed) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "typed", ["", "30", "-5s", "5 s", "s", "5y", "1e3s", "5s5", "٣s", "inf", "9" * 400 + "d"]
)
def test_what_is_no_duration_is_refused_by_the_name_of_the_option(typed):
    with pytest.raises(UsageProblem, match="--x must"):
        values.duration("--x", typed)


def test_a_past_moment_is_a_time_or_counts_back():
    assert values.past_moment("--since", "2h", NOW) == NOW - timedelta(hours=2)
    assert values.past_moment("--since", "2030-01-01T10:00", NOW) == NOW - timedelta(hours=2)
    assert values.past_moment("--since", None, NOW) is None


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mail", {"mail": None}),
        ("mail,ocr=5", {"mail": None, "ocr": 5}),
        (" a , b = 2 ", {"a": None, "b": 2}),
    ],
)
def test_lanes_with_limits(typed, meant):
    assert values.lanes("--lanes", typed) == meant
    assert list(values.lanes("--lanes", typed) or {}) == list(meant)


@pytest.mark.parametrize("typed", ["", "a,,b", "a,a", "a=0", "a=x", "a=", "=5", "a=99999"])
def test_lanes_that_make_no_sense(typed):
    with pytest.raises(UsageProblem, match="--lanes"):
        values.lanes("--lanes", typed)


@pytest.mark.parametrize(
    ("typed", "count"), [("1", 1), ("4096", 4096), ("512KiB", 524288), ("1 MiB", 1048576), ("1.5k", 1536)]
)
def test_sizes(typed, count):
    assert values.size("--max-payload", typed) == count


@pytest.mark.parametrize(
    ("name", "known", "answer"),
    [
        ("mial", ["mail", "ocr"], 'Did you mean "mail"?'),
        ("MAIL", ["mail"], 'Did you mean "mail"?'),
        ("mail-a", ["mail-b", "mail-c", "zzz"], 'Did you mean "mail-c" or "mail-b"?'),
        ("xyz", ["mail"], None),
        ("nope", ["openai", "anthropic"], None),
        ("x", [], None),
    ],
)
def test_near_names(name, known, answer):
    assert values.did_you_mean(name, known) == answer


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.34, "340ms"),
        (1, "1s"),
        (9.5, "9.5s"),
        (12, "12s"),
        (119, "119s"),
        (300, "5m"),
        (7300, "2h"),
        (200_000, "2d"),
    ],
)
def test_spans_have_two_figures(seconds, shown):
    assert output.short(timedelta(seconds=seconds)) == shown


def test_times_are_told_from_now():
    assert output.ago(NOW - timedelta(minutes=5), NOW) == "5m ago"
    assert output.ago(NOW + timedelta(minutes=5), NOW) == "in 5m"
    assert output.ago(NOW, NOW) == "just now"
    assert output.ago(None, NOW) == "-"


def table(capsys, monkeypatch, width: int) -> list[str]:
    monkeypatch.setattr(output, "UNLIMITED_WIDTH", width)
    output.print_table(
        [
            Column("ID"),
            Column("TASK", flexible=6),
            Column("LANE", optional=True),
            Column("ERROR", flexible=8),
        ],
        [("0123456789", "mail.send", "letters", "it broke for a long reason"), ("1", Text("x"), "y", "z")],
    )
    return capsys.readouterr().out.splitlines()


def test_a_wide_table_shows_everything_and_ends_without_blanks(capsys, monkeypatch):
    assert table(capsys, monkeypatch, 100) == [
        "ID          TASK       LANE     ERROR",
        "0123456789  mail.send  letters  it broke for a long reason",
        "1           x          y        z",
    ]


def test_a_narrow_table_drops_what_is_optional_and_cuts_what_is_flexible(capsys, monkeypatch):
    assert table(capsys, monkeypatch, 40) == [
        "ID          TASK       LANE     ERROR",
        "0123456789  mail.send  letters  it brok…",
        "1           x          y        z",
    ]
    assert table(capsys, monkeypatch, 30) == [
        "ID          TASK      ERROR",
        "0123456789  mail.se…  it brok…",
        "1           x         z",
    ]
