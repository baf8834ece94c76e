"""Rules: what each kind finds, one alert per condition and day, and a past day that is run again."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, SOUTH

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def detect(place, tenant: str = NORTH, at=None) -> dict[str, int]:
    """Evaluate as of a moment, on the tenant's day."""
    with place.acting(tenant) as conn:
        found = conn.execute(
            "select d.* from alerts.acting_tenant() as t, "
            "alerts.detect(%(at)s, (%(at)s at time zone t.time_zone)::date) as d",
            {"at": at or place.clock.now()},
        ).fetchone()
    return dict(zip(("rules", "evaluated", "firing", "created"), found, strict=True))


def messages(place) -> list[str]:
    return [text for (text,) in place.rows("select message from alerts.alert_instances order by message")]


def days(*values: float) -> list:
    """One value a day, the last one an hour ago."""
    return [(EVENING - HOUR - (len(values) - 1 - n) * DAY, value) for n, value in enumerate(values)]


def fires(place, **rule) -> bool:
    """Whether this rule alone finds something."""
    place.conn.execute("delete from alerts.alert_configs")
    place.rule(**rule)
    return detect(place)["created"] == 1


def test_a_threshold(place):
    place.values("revenue", [(EVENING - 3 * HOUR, 100.0), (EVENING - 2 * HOUR, 20.0), (EVENING - HOUR, 40.0)])
    # Of the day before, and of the future: neither is the period.
    place.values("revenue", [(EVENING - 25 * HOUR, 1000.0), (EVENING, -1000.0)])
    for aggregate, comparison, threshold, expected in [
        ("last", "below", 41, True), ("last", "below", 40, False), ("last", "above", 39, True),
        ("max", "above", 99, True), ("min", "below", 20, False), ("min", "below", 21, True),
        ("avg", "above", 53, True), ("avg", "above", 54, False), ("sum", "above", 159, True),
    ]:  # fmt: skip
        found = fires(place, aggregate=aggregate, comparison=comparison, threshold=threshold)
        assert found == expected, (aggregate, comparison, threshold)


def test_a_change_against_the_period_before(place):
    for before, now, comparison, expected in [
        (100, 79, "below", True), (100, 80, "below", False), (100, 121, "above", True), (100, 79, "above", False),
        (-100, -121, "below", True), (0, 50, "above", False),
    ]:  # fmt: skip
        place.values("revenue", [(EVENING - 30 * HOUR, before), (EVENING - HOUR, now)])
        assert fires(place, kind="change", comparison=comparison, threshold=20) == expected, (
            before,
            now,
            comparison,
        )


def test_missing_data_is_that_of_objects_that_had_some(place):
    place.values("revenue", days(1, 1, 1), of="open")
    place.values("revenue", [(EVENING - 3 * DAY, 1.0)], of="silent")
    # New within the period, with a gap before it: nothing is missing.
    place.values("revenue", [(EVENING - HOUR, 1.0)], of="new")
    place.rule(kind="missing", threshold=None, title="No data")

    assert detect(place)["created"] == 1
    assert messages(place) == ["Revenue, silent: no value for 1 d."]


def test_a_trend_over_several_periods(place):
    for values, comparison, expected in [
        ((100, 95, 90, 85, 80), "below", True), ((100, 99, 100, 99, 100), "below", False),
        ((80, 85, 90, 95, 100), "above", True), ((80, 85, 90, 95, 100), "below", False),
    ]:  # fmt: skip
        place.values("revenue", days(*values))
        assert fires(place, kind="trend", comparison=comparison, threshold=3, periods=5) == expected, (
            values,
            comparison,
        )


def test_two_points_are_no_trend(place):
    place.values("revenue", days(100, 10))
    place.rule(kind="trend", comparison="below", threshold=1, periods=5)
    assert detect(place)["created"] == 0


def test_a_rule_is_evaluated_for_every_object_or_for_the_one_it_names(place):
    for shop in ("berlin", "lisbon", "oslo"):
        place.values("revenue", [(EVENING - HOUR, 50.0)], of=shop)
    place.rule()
    place.rule(external_object_id="oslo", severity="critical")

    assert detect(place) == {"rules": 2, "evaluated": 4, "firing": 4, "created": 4}
    # Two of one object are found in one statement, in no order.
    assert sorted((of, severity) for of, _, severity, _ in place.alerts()) == [
        ("berlin", "warning"), ("lisbon", "warning"), ("oslo", "critical"), ("oslo", "warning"),
    ]  # fmt: skip


def test_a_condition_makes_one_alert_a_day_also_when_it_was_resolved(place):
    place.values("revenue", [(EVENING - HOUR, 50.0)])
    place.rule()

    assert detect(place)["created"] == 1
    assert detect(place) == {"rules": 1, "evaluated": 1, "firing": 1, "created": 0}
    place.conn.execute("update alerts.alert_instances set status = 'resolved', resolved_at = onceward.now()")
    assert detect(place)["created"] == 0
    # Midnight of the tenant, not of UTC: the next day is another alert.
    assert detect(place, at=EVENING + 6 * HOUR)["created"] == 0
    assert detect(place, at=EVENING + 7 * HOUR)["created"] == 1
    assert [day for _, day, *_ in place.alerts()] == [date(2026, 2, 6), date(2026, 2, 7)]


def test_a_past_day_that_is_run_again_changes_nothing(place):
    for number in range(6):
        place.values("revenue", days(90, 120, 40, 110, 30), of=f"shop {number}")
    place.rule(comparison="below", threshold=100)
    place.rule(kind="change", comparison="below", threshold=50)
    place.rule(kind="missing", threshold=None, title="No data", period=timedelta(hours=20))
    ends = [EVENING.replace(hour=7, minute=59) - n * DAY for n in range(4)]
    for at in reversed(ends):
        detect(place, at=at)
    before = place.effects()

    assert [detect(place, at=at)["created"] for at in ends] == [0, 0, 0, 0]
    assert place.effects() == before
    assert before["alert_instances"][0] > 6


def test_another_tenants_values_and_rules_do_not_count(place):
    place.values("revenue", [(EVENING - HOUR, 50.0)], tenant=SOUTH)
    place.rule(tenant=NORTH)
    place.values("revenue", [(EVENING - HOUR, 5000.0)], tenant=NORTH)
    place.rule(tenant=SOUTH, threshold=10.0)

    assert detect(place, NORTH)["created"] == 0
    assert detect(place, SOUTH)["created"] == 0
    assert detect(place, SOUTH)["rules"] == 1


def test_rules_that_cannot_be_are_refused(place):
    for wrong in (
        {"kind": "missing"}, {"threshold": None}, {"kind": "magic"}, {"periods": 3}, {"comparison": "near"},
        {"period": timedelta(seconds=5)}, {"severity": "loud"}, {"title": ""},
    ):  # fmt: skip
        with pytest.raises(Exception, match=r"alert_configs_|not-null"):
            place.rule(**wrong)


def test_the_words_of_alerts(place):
    place.values("revenue", [(EVENING - 30 * HOUR, 100.0), (EVENING - HOUR, 1234.6)], of="berlin")
    place.rule(comparison="above", threshold=1000)
    place.rule(kind="change", comparison="above", threshold=20)
    detect(place)
    assert messages(place) == [
        "Revenue, berlin: $1,235, above $1,000.",
        "Revenue, berlin: $1,235, up by 1,135 % against the period before (limit 20 %).",
    ]
