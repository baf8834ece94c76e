"""The load tests of chapter 8.3 in small form; `python -m tests.apps.meals.load` runs them in full."""

from __future__ import annotations

import pytest

from tests.apps.meals import load
from tests.support import dice

pytestmark = pytest.mark.slow


def test_8_3_1_concurrent_crons_over_many_customers(place):
    verdict = load.issue_all(place, customers=60, crons=10)

    assert load.is_right(verdict), verdict


def test_8_3_2_failed_emails_are_delivered_and_none_twice(place):
    verdict = load.retry_all(place, emails=40, failing=0.1, seed=dice.seed())

    assert verdict["queued"] == 40
    assert verdict["arrived_twice"] == 0
    # One in ten million fails six times in a row.
    assert (verdict["sent"], verdict["arrived"], verdict["abandoned"]) == (40, 40, 0), verdict


def test_nfr_006_handle_updates_succeed(place):
    verdict = load.update_all(place, handles=40, callers=8)

    assert load.is_right(verdict), verdict
