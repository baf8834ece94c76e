"""Rules made and changed by somebody who writes no code: saved, refused, switched off, tried on the past, written down."""

from __future__ import annotations

import csv
import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from onceward.web import secrets
from tests.apps.alerts.place import NORTH, SOUTH

pytestmark = pytest.mark.slow
LOW = {
    "title": "Revenue is low",
    "kind": "threshold",
    "comparison": "below",
    "threshold": 50.0,
    "aggregate": "avg",
}


@pytest.fixture
def month(place):
    """A month of one value an hour in two shops; in Lisbon, three days of it were bad."""
    now = place.clock.now()
    for shop in ("berlin", "lisbon"):
        place.values(
            "revenue",
            [
                (now - timedelta(hours=n), 20.0 if shop == "lisbon" and 240 <= n < 312 else 100.0 + n % 5)
                for n in range(1, 24 * 40)
            ],
            of=shop,
        )
    return place


def rule_of(place, tenant: str = NORTH, **given) -> str:
    return json.dumps({"tenant_id": str(place.tenants[tenant]), "metric_code": "revenue", **LOW, **given})


def call(place, statement: str, *params, tenant: str = NORTH, role: str = "onceward_operator"):
    with place.acting(tenant, role) as conn:
        return conn.execute(statement, params).fetchall()


def refused(place, statement: str, *params, **acting) -> str:
    with pytest.raises(psycopg.DatabaseError) as caught:
        call(place, statement, *params, **acting)
    return caught.value.sqlstate


def entries(place) -> list[tuple]:
    return place.rows(
        "select kind, actor, tenant, before, after from onceward.audit_log where kind like 'rule.%' order by seq"
    )


# ------------------------------------------------------------ the functions


def test_a_rule_is_saved_changed_and_switched_off_and_each_is_written_down(month):
    with month.acting(NORTH, "onceward_operator") as conn:
        conn.execute("select set_config('onceward.actor', 'maria', true)")
        ((rule,),) = conn.execute("select alerts.save_rule(%s)", [rule_of(month)]).fetchall()
        conn.execute("select alerts.save_rule(%s, %s)", [rule_of(month, threshold=40), rule])
        # Once more the same: nothing to write down.
        conn.execute("select alerts.save_rule(%s, %s)", [rule_of(month, threshold=40), rule])
        conn.execute("select alerts.enable_rule(%s, false), alerts.enable_rule(%s, false)", [rule, rule])

    assert month.rows("select threshold, enabled, updated_by, period from alerts.alert_configs") == [
        (40.0, False, "maria", timedelta(days=1))
    ]
    found = entries(month)
    assert [row[:3] for row in found] == [
        (kind, "maria", NORTH) for kind in ("rule.created", "rule.changed", "rule.disabled")
    ]
    assert (found[1][3]["threshold"], found[1][4]["threshold"]) == (50, 40)


def test_a_rule_that_makes_no_sense_is_refused(month):
    for wrong in (
        {"title": " "}, {"kind": "guess"}, {"threshold": None}, {"threshold": "many"}, {"threshold": "NaN"}, {"period": "0"},
        {"period": "1 year"}, {"periods": 3}, {"kind": "trend"}, {"kind": "missing"}, {"severity": "loud"}, {"aggregate": "median"},
        {"comparison": "beside"}, {"id": str(uuid4())}, {"kind": "change", "threshold": -5},
    ):  # fmt: skip
        assert refused(month, "select alerts.save_rule(%s)", rule_of(month, **wrong)) == "OW008", wrong
        assert refused(month, "select * from alerts.preview_rule(%s)", rule_of(month, **wrong)) == "OW008", (
            wrong
        )
    assert refused(month, "select alerts.save_rule(%s)", "[]") == "OW008"
    assert refused(month, "select alerts.save_rule(%s)", rule_of(month, metric_code="nothing")) == "AL002"
    assert refused(month, "select alerts.save_rule(%s, %s)", rule_of(month), uuid4()) == "AL002"
    assert month.value("select count(*) from alerts.alert_configs") == 0


def test_a_rule_keeps_its_metric_and_its_kind_and_notices_another_who_changed_it(month):
    month.metric("orders")
    ((rule,),) = call(month, "select alerts.save_rule(%s)", rule_of(month))
    ((seen,),) = call(month, "select updated_at from alerts.alert_configs")
    for other in ({"metric_code": "orders"}, {"kind": "change"}):
        assert refused(month, "select alerts.save_rule(%s, %s)", rule_of(month, **other), rule) == "AL003"
    month.clock.advance(timedelta(seconds=1))
    call(month, "select alerts.save_rule(%s, %s, %s)", rule_of(month, threshold=40), rule, seen)
    assert (
        refused(month, "select alerts.save_rule(%s, %s, %s)", rule_of(month, threshold=30), rule, seen)
        == "AL003"
    )
    assert month.value("select threshold from alerts.alert_configs") == 40


def test_a_rule_with_the_condition_of_another_is_refused_by_its_name(month):
    def save(rule=None, **given):
        return call(month, "select alerts.save_rule(%s, %s)", rule_of(month, **given), rule)[0][0]

    first = save()
    for same in ({}, {"title": "Another name"}, {"severity": "critical"}, {"period": "24 hours"}):
        with pytest.raises(psycopg.DatabaseError, match='rule "Revenue is low" has the same condition'):
            save(**same)
    other = save(external_object_id="lisbon")
    with pytest.raises(psycopg.DatabaseError, match="the same condition"):
        save(other)
    # A new name is no new condition; and a condition is free again when its rule has another.
    save(first, title="Low revenue")
    save(first, threshold=40)
    save(other)
    save(kind="missing", threshold=None)
    with pytest.raises(psycopg.DatabaseError, match="the same condition"):
        save(kind="missing", threshold=None, aggregate="max", comparison="above")
    assert month.value("select count(*) from alerts.alert_configs") == 3


@pytest.mark.race
def test_of_two_who_make_the_same_rule_at_once_one_does(month):
    with month.acting(NORTH, "onceward_operator") as first:
        first.execute("select alerts.save_rule(%s)", [rule_of(month)])
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(refused, month, "select alerts.save_rule(%s)", rule_of(month))
            waits = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
            while not month.value(waits):
                assert not second.done(), "did not wait"
            first.commit()
            assert second.result(30) == "AL003"


def test_rules_are_a_tenants_own_and_only_functions_write_them(month):
    month.metric(tenant=SOUTH)
    theirs = month.rule(tenant=SOUTH)
    assert refused(month, "select alerts.save_rule(%s)", rule_of(month, SOUTH)) == "OW011"
    assert refused(month, "select alerts.save_rule(%s, %s)", rule_of(month), theirs) == "OW011"
    assert refused(month, "select alerts.enable_rule(%s, false)", theirs) == "OW011"
    assert refused(month, "select * from alerts.preview_rule(%s)", rule_of(month, SOUTH)) == "OW011"
    assert refused(month, "update alerts.alert_configs set enabled = false") == "42501"
    for role in ("onceward_producer", "onceward_worker", "onceward_auditor"):
        assert refused(month, "select alerts.save_rule(%s)", rule_of(month), role=role) == "42501"
        assert refused(month, "select alerts.enable_rule(%s, false)", theirs, role=role) == "42501"


# ------------------------------------------------------------ the preview


@pytest.mark.parametrize(
    "given",
    [
        {}, {"aggregate": "last"}, {"aggregate": "min", "period": "6 hours"}, {"kind": "change", "threshold": 40, "aggregate": "sum"},
        {"kind": "trend", "periods": 4, "threshold": 5}, {"kind": "missing", "threshold": None, "period": "12 hours"},
        {"comparison": "above", "threshold": 103.5, "aggregate": "max", "external_object_id": "berlin"},
    ],
)  # fmt: skip
def test_a_preview_finds_what_the_rule_would_have_found(month, given):
    """The same moments, one after the other, with the rule in the table."""
    month.values(
        "revenue", [(month.clock.now() - timedelta(hours=n), 7.0) for n in range(300, 400)], of="porto"
    )
    now, rule = month.clock.now(), rule_of(month, **given)
    previewed = call(month, "select alert_date, external_object_id, found_at, metric_value, message from alerts.preview_rule(%s, 14)", rule,
                     role="onceward_auditor")  # fmt: skip
    assert month.alerts() == []

    call(month, "select alerts.save_rule(%s)", rule)
    step = (
        timedelta(hours=1)
        if given.get("kind") not in ("change", "trend")
        else timedelta(hours=2 if given["kind"] == "change" else 4)
    )
    with month.acting(NORTH, "onceward_worker") as conn:
        for n in range(int(timedelta(days=14) / step), -1, -1):
            conn.execute(
                "select alerts.detect(%(at)s, (%(at)s at time zone 'America/Los_Angeles')::date)", {"at": now - n * step}
            )  # fmt: skip
    assert previewed
    assert sorted(previewed, key=str) == sorted(month.rows(
        "select alert_date, external_object_id, triggered_at, metric_value, message from alerts.alert_instances"
    ), key=str)  # fmt: skip


# ------------------------------------------------------------ the pages


class Person:
    """Somebody who has signed in."""

    def __init__(self, place, http, name: str, role: str, tenant: str | None) -> None:
        secret = secrets.new(secrets.LINK)
        place.conn.execute("select onceward.add_operator(%s, %s, %s)", [name, role, tenant])
        place.conn.execute("select onceward.create_link(%s, %s)", [name, secrets.digest(secret)])
        self.http = http
        http.cookies.clear()
        answer = http.post("/sign-in", data={"link": secret})
        assert answer.status_code == 303, answer.text
        self._csrf = re.search(r'name="csrf" value="(\w+)"', http.get("/_components").text)[1]

    def post(self, path: str, *, csrf: bool = True, **fields: str):
        return self.http.post(path, data={**fields, **({"csrf": self._csrf} if csrf else {})})


FORM = {
    "tenant": NORTH, "metric": "revenue", "title": "Lisbon is low", "kind": "threshold", "external_object_id": "lisbon",
    "aggregate": "avg", "comparison": "below", "threshold": "50", "length": "1", "unit": "days", "periods": "7", "severity": "critical",
}  # fmt: skip


def test_an_operator_tries_makes_changes_and_switches_off_a_rule(month):
    with month.served(workers=False) as calls:
        maria = Person(month, calls.http, "maria", "operator", NORTH)
        tried = maria.post("/alerting/rules/new", **FORM, do="preview")
        assert tried.status_code == 200
        assert "It would have raised" in tried.text
        assert month.value("select count(*) from alerts.alert_configs") == 0

        wrong = maria.post(
            "/alerting/rules/new", **{**FORM, "threshold": "lots", "title": "", "length": "1000"}, do="save"
        )
        assert wrong.status_code == 422
        assert wrong.text.count('class="field-error"') == 3
        assert 'value="lots"' in wrong.text
        for do in ("preview", "save"):
            long = maria.post("/alerting/rules/new", **{**FORM, "title": "x" * 201}, do=do)
            assert (long.status_code, long.text.count('class="field-error"')) == (422, 1)

        made = maria.post("/alerting/rules/new", **FORM, do="save")
        assert (made.status_code, made.headers["location"]) == (303, "/alerting/rules")
        ((rule, severity, of),) = month.rows(
            "select id, severity, external_object_id from alerts.alert_configs"
        )
        assert (severity, of) == ("critical", "lisbon")
        assert "mean of 1 day below $50" in calls.http.get("/alerting/rules").text

        seen = re.search(r'name="seen" value="([^"]+)"', calls.http.get(f"/alerting/rules/{rule}").text)[1]
        month.clock.advance(timedelta(seconds=1))
        changed = {**FORM, "threshold": "60", "length": "36", "unit": "hours"}
        assert maria.post(f"/alerting/rules/{rule}", **changed, seen=seen, do="save").status_code == 303
        assert month.rows("select threshold, period from alerts.alert_configs") == [
            (60.0, timedelta(hours=36))
        ]
        # A form that was opened before that.
        late = maria.post(f"/alerting/rules/{rule}", **FORM, seen=seen, do="save")
        assert late.status_code == 409
        assert "rule was changed by maria" in late.text
        assert month.value("select threshold from alerts.alert_configs") == 60

        assert maria.post(f"/alerting/rules/{rule}/switch", enabled="0").status_code == 303
        assert month.value("select enabled from alerts.alert_configs") is False
    assert [row[:2] for row in entries(month)] == [
        (kind, "maria") for kind in ("rule.created", "rule.changed", "rule.disabled")
    ]


def test_the_preview_counts_what_is_watched_and_draws_whom_somebody_chose(month):
    always = {**FORM, "threshold": "500", "aggregate": "last"}
    with month.served(workers=False) as calls:
        maria = Person(month, calls.http, "maria", "operator", NORTH)
        one = maria.post("/alerting/rules/new", **always, do="preview").text
        assert "31 alerts, on 31 of the 31 dates that the last 30 days touch." in one
        assert 'name="drawn"' not in one
        every = {**FORM, "external_object_id": ""}
        page = maria.post("/alerting/rules/new", **every, do="preview").text
        assert "dates that the last 30 days touch, for 1 of 2 objects." in page
        assert "revenue of lisbon, last 30 days" in page.lower()
        chosen = maria.post("/alerting/rules/new", **every, drawn="berlin", do="preview").text
        assert "revenue of berlin, last 30 days" in chosen.lower()
        assert re.search(r"<option selected>berlin</option>", chosen)
        # What was typed stays; an object that is not watched is not drawn.
        assert 'value="Lisbon is low"' in chosen
        strange = maria.post("/alerting/rules/new", **every, drawn="porto", do="preview").text
        assert "revenue of lisbon, last 30 days" in strange.lower()
        assert month.value("select count(*) from alerts.alert_configs") == 0

        assert maria.post("/alerting/rules/new", **every, do="save").status_code == 303
        again = maria.post("/alerting/rules/new", **{**every, "title": "Once more"}, do="save")
        assert again.status_code == 409
        assert "rule &#34;Lisbon is low&#34; has the same condition. Change that one instead." in again.text
        assert 'value="Once more"' in again.text
        assert month.value("select count(*) from alerts.alert_configs") == 1

        rule = month.value("select id from alerts.alert_configs")
        vera = Person(month, calls.http, "vera", "viewer", NORTH)
        seen = vera.http.get(f"/alerting/rules/{rule}", params={"drawn": "berlin"}).text
        assert "revenue of berlin, last 30 days" in seen.lower()
        # The list on a phone, and as a table to take away.
        listed = vera.http.get("/alerting/rules?state=on").text
        assert '<span class="rule-narrow muted">mean of 1 day below $50</span>' in listed
        taken = vera.http.get(re.search(r'href="(/alerting/rules\.csv[^"]*)"', listed)[1])
        assert taken.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(taken.text.splitlines()))
        assert [(row["title"], row["fires_when"], row["alerts_in_30_days"]) for row in rows] == [
            ("Lisbon is low", "mean of 1 day below $50", "0")
        ]
        assert vera.http.get("/alerting/rules.csv?state=off").text.count("\n") == 1


def test_who_may_not_write_rules_does_not(month):
    theirs = month.rule(tenant=SOUTH)
    mine = month.rule()
    with month.served(workers=False) as calls:
        maria = Person(month, calls.http, "maria", "operator", NORTH)
        assert str(theirs) not in calls.http.get("/alerting/rules").text
        assert calls.http.get(f"/alerting/rules/{theirs}").status_code == 404
        assert calls.http.get(f"/alerting/rules/new?tenant={SOUTH}&metric=revenue").status_code == 404
        assert maria.post("/alerting/rules/new", **{**FORM, "tenant": SOUTH}, do="save").status_code == 404
        assert maria.post(f"/alerting/rules/{theirs}", **FORM, do="save").status_code == 404
        assert maria.post(f"/alerting/rules/{theirs}/switch", enabled="0").status_code in {403, 404}
        assert maria.post("/alerting/rules/new", csrf=False, **FORM, do="save").status_code == 403
        assert maria.post(f"/alerting/rules/{mine}/switch", csrf=False, enabled="0").status_code == 403

        vera = Person(month, calls.http, "vera", "viewer", NORTH)
        page = calls.http.get(f"/alerting/rules/{mine}")
        assert page.status_code == 200
        assert 'name="title"' not in page.text
        assert vera.post("/alerting/rules/new", **FORM, do="save").status_code == 403
        assert vera.post(f"/alerting/rules/{mine}/switch", enabled="0").status_code == 403
    assert month.value("select count(*) from alerts.alert_configs where enabled") == 2
    assert entries(month) == []
