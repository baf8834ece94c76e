"""Two connections at one delivery: one effect, one decision, whoever is first."""

from __future__ import annotations

import pytest

from tests.support.ledger import OPS, Ledger
from tests.support.races import Rival, deadlocks, together, transaction

pytestmark = pytest.mark.race


@pytest.fixture
def ledger(db):
    return Ledger(db)


@pytest.mark.parametrize("commits", [True, False], ids=["the winner commits", "the winner rolls back"])
def test_a_race_for_a_key_makes_one_delivery_and_never_none(db, ledger, commits):
    ledger.deliver(key="the lane exists")
    with transaction(db) as winner:
        won = Ledger(winner).deliver()
        loser = Rival(db, lambda rival: Ledger(rival).deliver()).blocked()
        winner.conn.commit() if commits else winner.conn.rollback()

    lost = loser.answer()
    assert lost.created is not commits
    assert (lost.delivery_id == won.delivery_id) is commits
    rows = db.run("select id from onceward.deliveries where key = 'welcome:42'")
    assert [row.id for row in rows] == [lost.delivery_id]
    assert db.value("select count(*) from onceward.delivery_content_private") == 2


def test_the_first_deliveries_of_all_do_not_get_into_each_others_way(db):
    made = together(db, [lambda rival, n=n: Ledger(rival).deliver(key=f"k{n}") for n in range(8)])

    assert all(row.created for row in made)


@pytest.mark.parametrize(
    "decisions", [("sent", "send_again"), ("send_again", "send_again"), ("abandon", "sent")]
)
def test_two_people_with_one_delivery_do_not_both_hear_success(db, ledger, decisions):
    delivery = ledger.uncertain()
    first, second = decisions
    with transaction(db) as winner:
        Ledger(winner).decide(delivery, first)
        loser = Rival(db, lambda rival: Ledger(rival).decide(delivery, second)).blocked()
        winner.conn.commit()

    assert loser.sqlstate == "OW007"
    assert ledger.state(delivery) == {"sent": "sent", "send_again": "pending", "abandon": "abandoned"}[first]


def test_settling_cancelling_deciding_and_rescuing_at_once_do_not_deadlock(db, ledger):
    """Whoever wins: each delivery has ended, and delivery and job agree."""
    for number in range(12):
        claim = ledger.begun(worker=f"w{number}", key=f"k{number}", alerts_to=OPS)
        db.run(
            "update onceward.worker_private set expires_at = onceward.now() where id = %s",
            db.worker(f"w{number}"),
        )
        together(
            db,
            [
                lambda rival, claim=claim: Ledger(rival).settle(claim, "uncertain", message="no reply"),
                lambda rival, claim=claim: rival.cancel(claim.job_id),
                lambda rival, claim=claim: Ledger(rival).decide(claim.job_id, "sent"),
                lambda rival: rival.rescue(),
            ],
        )
        states = (db.state(claim.job_id), ledger.state(claim.job_id))
        # Uncertain and dead, or cancelled on the way; decided; or rescued, and sent by the next worker.
        assert states in {
            ("dead_letter", "uncertain"), ("cancelled", "uncertain"), ("resolved", "sent"), ("cancelled", "sent"),
            ("ready", "sending"),
        }, states  # fmt: skip
        if states[0] == "ready":
            db.cancel(claim.job_id)
    assert deadlocks(db) == 0
