"""Reading single values: nothing is guessed, nothing is lost."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward_apps.alerts.sync import values
from onceward_apps.alerts.sync.values import Unfit


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("0.1", "0.1"), (0.1, "0.1"), (" 7 ", "7"), ("1e3", "1000"), (-0.0, "0"), ("-0", "0"), (".5", "0.5"), ("+7.", "7"),
        (10**37, str(10**37)), (Decimal("99999999999999999999.99"), "99999999999999999999.99"), ("1E-18", "0.000000000000000001"),
        ("12345678901234567890123456789.012345678", "12345678901234567890123456789.012345678"),
    ],
)  # fmt: skip
def test_numbers_keep_their_digits(given, read):
    assert f"{values.number(given):f}" == read


@pytest.mark.parametrize(
    "given",
    [
        "NaN", "Infinity", "-inf", math.nan, math.inf, "1,234.50", "12,50", "1_000", "0x10", "٣", "twelve", "", "1e999999", "1e-999999",
        10**40, "9" * 39, True, None, [], {}, date(2026, 1, 1), Decimal("NaN"), "1e", "--1", "1 2",
    ],
)  # fmt: skip
def test_what_is_no_number_is_refused(given):
    with pytest.raises(Unfit, match="must"):
        values.number(given)


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**20), max_value=10**20))
def test_a_number_and_its_text_are_the_same_number(number):
    assert values.number(str(number)) == values.number(number) == number


@given(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30).filter(
        lambda x: x == 0 or abs(x) > 1e-18
    )
)
def test_a_measure_is_the_float_that_was_written(number):
    assert values.measure(number) == values.measure(repr(number)) == number


@pytest.mark.parametrize(
    ("given", "read"),
    [(42, "42"), (42.0, "42"), (Decimal("4.2e1"), "42"), ("00042", "00042"), (2**63, str(2**63)), ("é", "é"),
     (UUID(int=7), "00000000-0000-0000-0000-000000000007"), (date(2026, 2, 6), "2026-02-06")],
)  # fmt: skip
def test_an_id_is_the_same_as_number_and_as_text(given, read):
    assert values.text(given) == read


@pytest.mark.parametrize(
    "given",
    [
        True,
        None,
        1.5,
        Decimal("1.5"),
        [],
        {},
        "a\x00b",
        "\ud800",
        "x" * 10_001,
        b"x",
        math.inf,
        Decimal("1e99"),
    ],
)
def test_what_is_no_text_is_refused(given):
    with pytest.raises(Unfit):
        values.text(given)


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("2026-02-06T12:00:00Z", datetime(2026, 2, 6, 12, tzinfo=UTC)),
        ("2026-02-06 12:00:00 UTC", datetime(2026, 2, 6, 12, tzinfo=UTC)),
        ("2026-02-06T12:00:00+05:30", datetime(2026, 2, 6, 6, 30, tzinfo=UTC)),
        ("2026-02-06", datetime(2026, 2, 6, tzinfo=UTC)),
        (date(2026, 2, 6), datetime(2026, 2, 6, tzinfo=UTC)),
        (datetime(2026, 2, 6, 12), datetime(2026, 2, 6, 12, tzinfo=UTC)),  # noqa: DTZ001 - what has no zone is UTC
        (datetime(2026, 2, 6, 1, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 2, 5, 23, tzinfo=UTC)),
    ],
)
def test_times_are_utc(given, read):
    assert values.timestamp(given) == read


@pytest.mark.parametrize(
    "given",
    ["yesterday", "", "06.02.2026", "2026-02-30", 1770379200, True, None, "0001-01-01T00:00:00+23:59"],
)
def test_what_is_no_time_is_refused(given):
    with pytest.raises(Unfit, match="must be a time"):
        values.timestamp(given)


@pytest.mark.parametrize(("given", "gone"), [
    (True, True), (False, False), (None, False), ("", False), ("false", False), ("0", False), ("No", False),
    ("true", True), ("2026-02-06T12:00:00Z", True), (datetime(2026, 2, 6, tzinfo=UTC), True), (0, False), (1, True),
])  # fmt: skip
def test_a_column_says_that_a_row_is_gone(given, gone):
    assert values.truth(given) is gone
