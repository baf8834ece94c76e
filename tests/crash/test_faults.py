"""The ledger stays clean whatever breaks.  The same with other counts: `python -m tests.crash.chaos --help`."""

from __future__ import annotations

import pytest

from tests.crash.faults import FAULTS, run

pytestmark = [pytest.mark.crash, pytest.mark.slow]


@pytest.mark.parametrize("name", FAULTS)
def test_the_ledger_is_clean_after(name, crash_server, seed, capsys):
    verdict = run(crash_server, name, seed, FAULTS[name].small)

    with capsys.disabled():
        print(f"\n{verdict.to_json()}")
    assert verdict.clean, verdict.problems
