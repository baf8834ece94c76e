"""The load test, small: python -m tests.apps.intake.load runs it with a thousand."""

from __future__ import annotations

import pytest

from tests.apps.intake import load


@pytest.mark.slow
@pytest.mark.crash
def test_every_acknowledged_file_is_processed_once_with_clients_cut_and_a_worker_killed(
    intake_database, tmp_path
):
    outcome = load.run(intake_database.dsn, tmp_path / "bucket", 40, workers=1, kills=1)
    assert len(outcome.acknowledged) == 38
    assert outcome.cut == 2
    assert outcome.kills == 1
