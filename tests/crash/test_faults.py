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
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert verdict.clean, verdict.problems


@pytest.mark.parametrize(
    ("name", "what", "instead", "said"),
    [
        (
            "disk",
            "tests.crash.faults_disk.shutil.which",
            lambda _: None,
            "filling a disk needs root and mount, to make a small one",
        ),
        (
            "pooler",
            "tests.support.pgbouncer.PROGRAM",
            None,
            "PgBouncer is not installed (Debian: apt-get install pgbouncer)",
        ),
    ],
    ids=["disk", "pooler"],
)
def test_a_fault_that_this_machine_does_not_allow_is_skipped_and_says_why(
    crash_server, seed, monkeypatch, name, what, instead, said
):
    monkeypatch.setattr(what, instead)

    verdict = run(crash_server, name, seed, FAULTS[name].small)

    assert verdict.skipped == said
    assert not verdict.clean
    assert '"clean": null' in verdict.to_json()
