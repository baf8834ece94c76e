"""POST /functions/v1/{name}: the documented answers, and whose tenant it is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, SOUTH

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
    assert place.rows("select status, result->>'created', called_by from alerts.job_runs where id = %s", body["job_id"]) == [
        ("completed", "1", "token cron")
    ]
    assert len(place.alerts()) == 1
