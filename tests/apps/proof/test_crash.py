"""A worker killed in the middle of the pipeline: the next one goes on, and nothing is there twice."""

from __future__ import annotations

import json
import random

import pytest

from tests.apps.proof.points import exhaust

pytestmark = [pytest.mark.crash, pytest.mark.slow]


def test_crash_points_of_the_pipeline(sql, tmp_path):
    """The vital points and some others; `python -m tests.apps.proof.points` tries all of them."""
    sql.clock.unpin()

    verdict = exhaust(sql.dsn, tmp_path / "bucket", most=6, seed=random.randrange(10**6))

    print(json.dumps(verdict))
    assert verdict["problems"] == []
    assert verdict["deaths"] >= 10
