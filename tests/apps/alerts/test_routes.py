"""POST /functions/v1/{name}: the documented answers, and whose tenant it is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onceward.errors import PermanentFailure
from onceward_apps.alerts.functions import Context, Function, Functions, Result, Tenant, Window
from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, SOUTH, Place

HOUR = timedelta(hours=1)


@pytest.fixture
def calls(place):
    place.values("revenue", [(EVENING - HOUR, 50.0)])
    place.rule()
    with place.served() as calls:
        yield calls


def test_a_call_runs_the_function_and_answers_with_its_result(place, calls):
    answer = calls.post("detect-alerts", place.token())

    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["success"] is True
    assert body["result"] == {"rules": 1, "evaluated": 1, "firing": 1, "created": 1}
    assert place.rows(
        "select status, result->>'created', called_by from alerts.job_runs where id = %s", body["job_id"]
    ) == [("completed", "1", "token cron")]
    assert len(place.alerts()) == 1


def test_a_second_call_hears_who_has_it(place, calls):
    token = place.token()
    first = calls.post("detect-alerts", token).json()

    answer = calls.post("detect-alerts", token)

    assert answer.status_code == 409
    body = answer.json()
    assert (body["success"], body["reason"], body["existing_job_id"]) == (
        False,
        "Job already completed",
        first["job_id"],
    )
    assert answer.headers["access-control-allow-origin"] == "*"


def test_who_is_not_let_in(place, calls):
    revoked = place.token()
    place.conn.execute("select onceward.revoke_token(id) from onceward.tokens()")
    for token, status in (
        (None, 401), ("owt_wrong", 401), (revoked, 401), (place.token(NORTH, "read"), 403), (place.token(None), 403),
        (place.token("stranger"), 403),
    ):  # fmt: skip
        answer = calls.post("detect-alerts", token)
        assert (answer.status_code, answer.json()["success"]) == (status, False), answer.text
    assert calls.post("detect-alerts", place.token(None)).json()["hint"] == "Create one with --only-tenant."
    assert place.rows("select * from alerts.runs") == []


def test_what_cannot_be_understood_is_said_clearly(place, calls):
    token = place.token()
    for name, body, status, said in (
        ("detect-alert", None, 404, "does not exist"),
        ("detect-alerts", {"tennant": 1}, 400, "Field 'tennant' is not known"),
        ("detect-alerts", [1], 400, "must be a JSON object"),
        ("detect-alerts", {"date": "yesterday"}, 400, "date must be like 2026-02-06, got 'yesterday'"),
        ("detect-alerts", {"date": 7}, 400, "date must be like 2026-02-06, got 7"),
        ("detect-alerts", {"at": "noon"}, 400, "at must be like 2026-02-06T09:30:00Z, got 'noon'"),
        ("detect-alerts", {"at": "2026-02-06T10:00"}, 400, "must have an offset"),
        ("detect-alerts", {"date": "2026-02-06", "at": "2026-02-06T10:00Z"}, 400, "not both"),
        ("detect-alerts", {"date": "2026-03-01"}, 400, "date must be a past day of the last ten years, got '2026-03-01'"),
        ("detect-alerts", {"date": "0001-01-01"}, 400, "date must be a past day of the last ten years, got '0001-01-01'"),
        ("detect-alerts", {"date": "9999-12-31"}, 400, "date must be a past day of the last ten years, got '9999-12-31'"),
        ("detect-alerts", {"at": "2027-01-01T00:00Z"}, 400, "at must be a moment of the last ten years, got '2027-01-01T00:00Z'"),
        ("detect-alerts", {"at": "0001-01-01T00:00Z"}, 400, "at must be a moment of the last ten years, got '0001-01-01T00:00Z'"),
        ("process-alert-notifications", {"alert_id": "x"}, 400, "alert_id must be a UUID, got 'x'"),
        ("process-alert-notifications", {"alert_id": "x" * 20_000}, 413, "16 KiB"),
    ):  # fmt: skip
        answer = calls.post(name, token, body)
        assert answer.status_code == status, answer.text
        assert said in answer.json()["error"]
    assert calls.post("detect-alert", token).json()["hint"] == 'Did you mean "detect-alerts"?'
    assert calls.http.get("/functions/v1/detect-alerts").status_code == 405
    assert place.rows("select * from alerts.runs") == []


def test_a_past_day_can_be_run(place, calls):
    answer = calls.post("detect-alerts", place.token(), {"date": "2026-02-04"})
    assert (answer.status_code, answer.json()["result"]["created"]) == (200, 0)
    assert place.rows("select grain_date::text from alerts.runs where function_name = 'detect-alerts'") == [
        ("2026-02-04",)
    ]


def test_a_call_for_an_alert_that_does_not_exist_writes_nothing(place, calls):
    ghost = "00000000-0000-4000-8000-000000000000"
    answer = calls.post("process-alert-notifications", place.token(), {"alert_id": ghost})
    assert (answer.status_code, answer.json()["error"]) == (404, f"Alert {ghost} does not exist")
    assert place.rows("select * from alerts.runs") == []
    assert place.rows("select * from alerts.sync_errors") == []


async def _give_up(_context: Context, _tenant: Tenant, _window: Window) -> Result:
    raise PermanentFailure("the supplier is unknown")


def test_a_run_that_fails_for_good_is_an_error(onceward_kit, tmp_path):
    onceward_kit.clock.pin(EVENING)
    hopeless = Functions.of(Function("order-more", None, "5m", None, (), _give_up))
    with Place(onceward_kit, tmp_path, functions=hopeless) as place, place.served() as calls:
        answer = calls.post("order-more", place.token())
    assert answer.status_code == 500
    body = answer.json()
    assert (body["success"], body["error"]) == (False, "the supplier is unknown")
    assert place.rows("select status from alerts.job_runs where id = %s", body["job_id"]) == [("failed",)]


def test_an_alert_of_another_tenant_cannot_be_told(place, calls):
    calls.post("detect-alerts", place.token())
    alert = place.value("select id::text from alerts.alert_instances")
    before = place.value("select count(*) from alerts.runs")
    answer = calls.post("process-alert-notifications", place.token(SOUTH), {"alert_id": alert})
    assert (answer.status_code, "does not exist" in answer.json()["error"]) == (404, True)
    assert place.value("select count(*) from alerts.runs") == before
    assert calls.post("process-alert-notifications", place.token(), {"alert_id": alert}).status_code == 200


def test_a_run_that_takes_longer_than_a_caller_waits_has_begun(place):
    with place.served(patience=0.2, workers=False) as calls:
        answer = calls.post("auto-measure-outcomes", place.token())
        assert (answer.status_code, answer.json()["status"]) == (202, "running")
        assert (
            calls.post("auto-measure-outcomes", place.token()).json()["existing_job_id"]
            == answer.json()["job_id"]
        )


def test_pages_elsewhere_may_ask_beforehand(calls):
    answer = calls.http.options("/functions/v1/detect-alerts")
    assert answer.status_code == 204
    assert "authorization" in answer.headers["access-control-allow-headers"]
