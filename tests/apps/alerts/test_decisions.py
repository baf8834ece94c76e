"""From alert to outcome: one card per alert, one outcome per card, one email per alert and recipient."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, at_once

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def alerted(place):
    """Three alerts, and the chain that made them."""
    for shop in ("berlin", "lisbon", "oslo"):
        place.values("revenue", [(EVENING - n * DAY - HOUR, 50.0) for n in range(10)], of=shop)
    place.rule()
    place.begin("detect-alerts")
    place.work()
    return place


def cards(place) -> list:
    return place.rows("select id, status from alerts.decision_cards order by created_at, id")


def move(place, card, status: str, decision: str | None = None, tenant: str = NORTH) -> str:
    with place.acting(tenant) as conn:
        return conn.execute("select alerts.move_card(%s, %s, %s)", [card, status, decision]).fetchone()[0]


def test_detection_cards_and_notifications_are_one_workflow(alerted):
    flow = alerted.rows(
        "select j.task, j.state, cardinality(j.after) from onceward.jobs as j where j.workflow_id = "
        "(select workflow_id from alerts.job_runs where function_name = 'detect-alerts') order by j.id"
    )
    assert flow == [
        ("detect-alerts", "done", None),
        ("generate-decision-cards", "done", 1),
        ("process-alert-notifications", "done", 1),
    ]
    assert [status for _, status in cards(alerted)] == ["OPEN"] * 3
    assert len(list(alerted.outbox.rglob("*.eml"))) == 3
    assert alerted.rows("select distinct state, tries from alerts.notification_status") == [("sent", 1)]


def test_when_detection_gives_up_what_follows_waits_for_its_next_try(place):
    place.values("revenue", [(EVENING - HOUR, 50.0)])
    place.rule()
    _, job, *_ = place.begin("detect-alerts")
    with place.broken():
        for wait in (1, 5, 25):
            place.work()
            place.clock.advance(timedelta(seconds=wait))
        place.work()
    place.work()
    assert [row[1] for row in place.runs("generate-decision-cards")] == ["cancelled"]

    with place.acting(NORTH) as conn:
        conn.execute("select alerts.retry_run(%s)", [job])
    place.work()

    assert [row[1] for row in place.runs("detect-alerts")] == ["completed"]
    assert [row[1] for row in place.runs("generate-decision-cards")] == ["completed"]
    assert [row[1] for row in place.runs("process-alert-notifications")] == ["completed"]
    assert len(cards(place)) == 1


def test_further_windows_tell_nobody_twice(alerted):
    for minutes in range(5, 25, 5):
        alerted.clock.pin(EVENING + timedelta(minutes=minutes))
        for name in ("detect-alerts", "generate-decision-cards", "process-alert-notifications"):
            alerted.begin(name)
        alerted.work()
    assert len(alerted.alerts()) == 3
    assert len(cards(alerted)) == 3
    assert len(list(alerted.outbox.rglob("*.eml"))) == 3


def test_one_alert_can_be_told_by_itself_and_is_not_told_again(alerted):
    alert = alerted.value("select id::text from alerts.alert_instances limit 1")
    alerted.conn.execute("update alerts.tenants set notify = notify || array['new@example.com']")
    assert alerted.begin("process-alert-notifications", entity=f'{{"alert_id": "{alert}"}}')[0] == "started"
    alerted.work()
    assert len(list(alerted.outbox.rglob("*.eml"))) == 4


def test_a_card_goes_its_way_and_no_other(alerted):
    (card, _), *_ = cards(alerted)

    assert move(alerted, card, "IN_PROGRESS") == "IN_PROGRESS"
    assert move(alerted, card, "IN_PROGRESS") == "IN_PROGRESS"
    for wrong in ("MEASURED", "CLOSED"):
        with pytest.raises(psycopg.errors.DatabaseError, match="cannot go from IN_PROGRESS"):
            move(alerted, card, wrong)
    with pytest.raises(psycopg.errors.DatabaseError, match="decision must be the code"):
        move(alerted, card, "DECIDED", "magic")
    assert move(alerted, card, "DECIDED", "act") == "DECIDED"
    with pytest.raises(psycopg.errors.DatabaseError, match="cannot go from DECIDED"):
        move(alerted, card, "OPEN")
    kinds = [
        kind
        for (kind,) in alerted.rows(
            "select kind from onceward.audit_log where entity_id = %s order by seq", str(card)
        )
    ]
    assert kinds == ["decision.in_progress", "decision.decided"]


def test_two_who_decide_differently_at_once_are_one_decision(alerted):
    (card, _), *_ = cards(alerted)

    def decide(code: str) -> str:
        try:
            return move(alerted, card, "DECIDED", code)
        except psycopg.errors.DatabaseError as error:
            return error.sqlstate

    assert sorted(at_once([lambda: decide("act"), lambda: decide("wait")])) == ["AL003", "DECIDED"]


def test_an_outcome_is_measured_once_when_the_week_is_over(alerted):
    (up, _), (down, _), (silent, _) = cards(alerted)
    for card in (up, down, silent):
        move(alerted, card, "DECIDED", "act")
    for card, after in ((up, 80.0), (down, 20.0)):
        shop = alerted.value(
            "select a.external_object_id from alerts.alert_instances as a join alerts.decision_cards as k "
            "on k.alert_instance_id = a.id where k.id = %s", card,
        )  # fmt: skip
        alerted.values("revenue", [(EVENING + n * DAY + HOUR, after) for n in range(7)], of=shop)

    for day, expected in ((6, 0), (7, 3), (8, 3)):
        alerted.clock.pin(EVENING + day * DAY)
        alerted.begin("auto-measure-outcomes")
        alerted.work()
        assert alerted.value("select count(*) from alerts.outcomes") == expected

    assert alerted.rows("select verdict, round(baseline), round(change_percent) from alerts.outcomes order by verdict") == [
        ("improved", 50, 60), ("no_data", 50, None), ("worsened", 50, -60),
    ]  # fmt: skip
    assert [status for _, status in cards(alerted)] == ["MEASURED"] * 3
    # Measured again where less is better, it would be the other way round.
    alerted.conn.execute("update alerts.metric_definitions set better = 'down'; delete from alerts.outcomes; "
                         "update alerts.decision_cards set status = 'DECIDED'")  # fmt: skip
    with alerted.acting(NORTH) as conn:
        assert conn.execute("select * from alerts.measure_outcomes('2026-03-01')").fetchone() == (
            3,
            1,
            0,
            1,
            1,
        )
    assert alerted.rows(
        "select verdict, round(change_percent) from alerts.outcomes where change_percent < 0"
    ) == [("improved", -60)]


def test_an_alert_is_acknowledged_and_resolved_once(alerted):
    alert = alerted.value("select id from alerts.alert_instances limit 1")
    with alerted.acting(NORTH) as conn:
        for status in ("acknowledged", "acknowledged", "resolved", "resolved", "acknowledged"):
            conn.execute("select alerts.settle_alert(%s, %s)", [alert, status])
    assert alerted.value("select status from alerts.alert_instances where id = %s", alert) == "resolved"
    assert alerted.value("select count(*) from onceward.audit_log where entity_id = %s", str(alert)) == 2


def test_schedules_of_every_tenant_in_its_zone(place):
    place.clock.pin(EVENING)
    place.work()
    place.clock.advance(timedelta(minutes=1))
    place.work()
    found = place.rows(
        "select tenant, name, spec, zone from onceward.schedules where task = 'alerts.call' order by tenant, name"
    )
    assert ("kiwi", "detect-alerts", "*/5 * * * *", "Pacific/Auckland") in found
    assert ("northwind", "auto-measure-outcomes", "10 4 * * *", "America/Los_Angeles") in found
    assert {name for _, name, *_ in found} == {name for name, one in place.functions.items() if one.every}

    # A tick runs the function; a caller who was faster makes it skip.
    place.clock.pin(EVENING + timedelta(minutes=4))
    place.begin("detect-alerts", NORTH)
    place.work()
    place.begin("detect-alerts", NORTH, at=EVENING + timedelta(minutes=4))
    place.clock.pin(EVENING + timedelta(minutes=8, seconds=1))
    place.work()
    ticks = place.rows(
        "select result->>'outcome', (result->>'skipped')::boolean from onceward.jobs where task = 'alerts.call' "
        "and payload->>'function' = 'detect-alerts' and tenant = 'northwind' order by id"
    )
    assert ticks[-1] == ("started", False)
