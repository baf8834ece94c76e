"""What customers read, and what a table of batches says: without a database."""

from __future__ import annotations

from datetime import date

import pytest

from onceward_apps.proof import bulk, evidence

TODAY = date(2026, 4, 1)


@pytest.mark.parametrize(
    ("result", "limit", "share", "meaning"),
    [
        ("Not detected", "Absent in 25 g", 0.0, "None was found."),
        ("< 10 cfu/g", "5000 cfu/g", 0.002, "Less than 1 % of what is allowed."),
        ("120 cfu/g", "5,000 cfu/g", 0.024, "About 2 % of what is allowed."),
        ("< 100 CFU / g", "500 cfu/g", 0.2, "Less than 20 % of what is allowed."),
        ("120 cfu/g", "5000 mpn/g", None, "The lab says that it has passed."),
        ("clear", "clear", None, "The lab says that it has passed."),
        ("5 cfu/g", "0 cfu/g", None, "The lab says that it has passed."),
    ],
)
def test_a_result_is_held_against_its_limit(result, limit, share, meaning):
    row = {"parameter": "x", "plain_language": "y", "method": "z", "result": result, "limit_value": limit}
    read = evidence.read_result({**row, "passed": True})
    assert (read.share, read.meaning) == (share, meaning)
    assert evidence.read_result({**row, "passed": False}).meaning == "Above what is allowed."


def test_ingredients_are_split_at_commas_outside_of_parentheses():
    assert evidence.split_ingredients("Beef (42 %, lean), kale (1.5 %), egg.") == [
        "Beef (42 %, lean)",
        "kale (1.5 %)",
        "egg",
    ]


def test_a_table_is_read_row_by_row():
    rows = bulk.read(
        "\ufeffkg_produced;production_date\n512.5;2026-03-20\n\n0;2026-02-30\nx;20/03/2026\n1\n", today=TODAY
    )
    assert [(row.line, list(row.errors)) for row in rows] == [
        (2, []),
        (4, ["production_date must be a date as 2026-03-20", "kg_produced must be more than 0 and less than 1000000"]),
        (5, ["production_date must be a date as 2026-03-20", "kg_produced must be a number as 512.5"]),
        (6, ["has 1 value instead of 2"]),
    ]  # fmt: skip
    assert rows[0].to_json() == {"production_date": "2026-03-20", "kg_produced": "512.5"}


def test_a_row_that_stands_twice_is_pointed_out():
    rows = bulk.read("production_date,kg_produced\n2026-03-20,1\n2026-03-20,1\n2026-03-20,2", today=TODAY)
    assert [row.warning for row in rows] == ["", "same as line 2", ""]


@pytest.mark.parametrize("number", ["NaN", "inf", "-1", "1e9", "1e99999"])
def test_what_is_no_weight_is_refused(number):
    (row,) = bulk.read(f"production_date,kg_produced\n2026-03-20,{number}", today=TODAY)
    assert row.errors


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("a,b\n1,2", "must name the columns"),
        ("production_date,kg_produced\n", "no rows"),
        ("production_date,kg_produced\n" + "2026-03-20,1\n" * 501, "500 rows"),
        ('production_date,kg_produced\n2026-03-20,1\n"2026', "Line 3 cannot be read: a quotation mark"),
        ("production_date,kg_produced\n" + " " * bulk.MOST_BYTES + "\n2026-03-20,1", "64 KiB"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(text, problem):
    with pytest.raises(bulk.UnreadableTable, match=problem):
        bulk.read(text, today=TODAY)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("production_date,kg_produced\n2026-03-20,1".encode("utf-16"), "CSV UTF-8"),
        ("production_date,kg_produced\n2026-03-20,1".encode("utf-16-le"), "CSV UTF-8"),
        (b"\xff\xfe\xfd", "CSV UTF-8"),
        (b"x" * 4_000_000, "64 KiB"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_to_do(content, problem):
    with pytest.raises(bulk.UnreadableTable, match=problem):
        bulk.decode(content)


def test_what_is_probably_a_slip_is_pointed_out():
    rows = bulk.read(
        "production_date,kg_produced\n2026-04-02,1\n2026-04-01,100001\n2026-04-01,100000", today=TODAY
    )
    assert [row.warning for row in rows] == [
        "2026-04-02 lies in the future",
        "100,001 kg is more than 100,000 kg",
        "",
    ]
    assert not any(row.errors for row in rows)
