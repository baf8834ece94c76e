"""Lock keys and windows: the tenant's day and hour, both changes of the clock, and what is the same entity."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, SOUTH

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def window(place, tenant: str, span: str, at: datetime, entity: object = None):
    with place.conn.transaction():
        place.conn.execute("select set_config('onceward.tenant', %s, true)", [tenant])
        return place.conn.execute(
            "select lock_key, starts_at, ends_at, grain_date from alerts.window_at('f', %s, %s, %s)",
            [span, None if entity is None else Jsonb(entity), at],
        ).fetchone()


def test_two_tenants_are_on_different_days_at_the_same_instant(place):
    north, south = window(place, NORTH, "day", EVENING), window(place, SOUTH, "day", EVENING)

    assert (north[0], north[3]) == ("f:northwind:2026-02-06", date(2026, 2, 6))
    assert (south[0], south[3]) == ("f:kiwi:2026-02-07", date(2026, 2, 7))
    assert north[1:3] == (datetime(2026, 2, 6, 8, tzinfo=UTC), datetime(2026, 2, 7, 8, tzinfo=UTC))


def test_a_day_begins_at_midnight_of_the_tenant(place):
    midnight = datetime(2026, 2, 7, 8, tzinfo=UTC)

    assert window(place, NORTH, "day", midnight - timedelta(microseconds=1))[3] == date(2026, 2, 6)
    assert window(place, NORTH, "day", midnight)[3] == date(2026, 2, 7)


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 8), 23), (date(2026, 11, 1), 25)])
def test_days_on_which_the_clock_changes_are_one_window_each(place, day, hours):
    noon = datetime(day.year, day.month, day.day, 20, tzinfo=UTC)
    key, starts, ends, grain = window(place, NORTH, "day", noon)

    assert (ends - starts, grain) == (timedelta(hours=hours), day)
    # Every hour of it, and none of the neighbours.
    every = [window(place, NORTH, "hour", starts + n * HOUR + 30 * MINUTE) for n in range(hours)]
    assert len({found[0] for found in every}) == hours
    assert {found[3] for found in every} == {day}
    assert [found[1] for found in every] == [starts + n * HOUR for n in range(hours)]
    assert {window(place, NORTH, "day", starts + n * HOUR)[0] for n in range(hours)} == {key}


def test_short_windows_follow_each_other_without_gaps_also_when_the_clock_changes(place):
    at = datetime(2026, 11, 1, 8, 0, tzinfo=UTC)
    found = [window(place, NORTH, "5m", at + n * MINUTE) for n in range(130)]

    assert len({key for key, *_ in found}) == 26
    for (_, starts, ends, _), n in zip(found, range(130), strict=True):
        assert starts <= at + n * MINUTE < ends
        assert ends - starts == 5 * MINUTE


def test_a_window_that_is_none_is_refused(place):
    for wrong in ("7m", "0m", "week", "1d"):
        with pytest.raises(Exception, match="window must be day, hour, or minutes"):
            window(place, NORTH, wrong, EVENING)


@pytest.mark.parametrize("away", [timedelta(days=1), timedelta(days=-3660)])
def test_a_window_of_the_future_or_of_long_ago_cannot_be_run(place, away):
    with pytest.raises(Exception, match="at must be a moment of the last ten years"):
        place.begin("detect-alerts", at=EVENING + away)
    assert place.rows("select * from alerts.runs") == []


# ------------------------------------------------------------ entities

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
entities = st.dictionaries(texts, values, min_size=1, max_size=4)


def in_other_words(value: object) -> object:
    """The same, with keys in another order and letters in another form."""
    match value:
        case dict():
            return {unicodedata.normalize("NFD", key): in_other_words(value[key]) for key in reversed(value)}
        case list():
            return [in_other_words(item) for item in value]
        case str():
            return unicodedata.normalize("NFD", value)
        case _:
            return value


def composed(value: object) -> str:
    """What an entity is: its letters composed, its keys in order."""
    match value:
        case dict():
            plain = {unicodedata.normalize("NFC", key): composed(item) for key, item in value.items()}
            return json.dumps(sorted(plain.items()))
        case list():
            return json.dumps([composed(item) for item in value])
        case str():
            return json.dumps(["text", unicodedata.normalize("NFC", value)])
        case _:
            return json.dumps(value)


def has_clash(value: object) -> bool:
    """Whether two keys are the same letters in different forms: then nobody can say which one is meant."""
    match value:
        case dict():
            return len({unicodedata.normalize("NFC", key) for key in value}) < len(value) or any(
                map(has_clash, value.values())
            )
        case list():
            return any(map(has_clash, value))
        case _:
            return False


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=entities, other=entities)
def test_the_same_entity_has_the_same_hash_and_another_has_another(place, one, other):
    if has_clash(one) or has_clash(other):
        return

    def key(entity: object) -> str:
        return window(place, NORTH, "day", EVENING, entity)[0]

    assert key(one) == key(in_other_words(one))
    assert (key(one) == key(other)) == (composed(one) == composed(other))


def test_the_hash_of_a_flat_entity_is_that_of_the_standard(place):
    # sha256 of [["rule_id","r123"],["sku","SKU001"]], twelve digits.
    key = window(place, NORTH, "day", EVENING, {"sku": "SKU001", "rule_id": "r123"})[0]
    assert key == "f:northwind:2026-02-06:971121298e66"
