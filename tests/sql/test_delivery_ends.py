"""How deliveries end without their worker's doing: by their job, by a person; who is told, and who may."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.engine import refused
from tests.support.ledger import MAIL, OPS, Ledger


@pytest.fixture
def ledger(db):
    return Ledger(db)


# ---------------------------------------------------------------- the job goes its own way


def test_cancelling_the_job_cancels_the_delivery(db, ledger):
    made = ledger.deliver()

    db.cancel(made.delivery_id)

    assert ledger.state(made.delivery_id) == "cancelled"


def test_cancelling_while_it_is_sent_ends_as_what_the_worker_reports(db, ledger):
    sent, not_sent = ledger.begun(key="a"), ledger.begun(key="b")
    for claim in (sent, not_sent):
        assert db.cancel(claim.job_id) == "cancelling"

    assert ledger.settle(sent, "sent").state == "sent"
    assert ledger.settle(not_sent, "retry", message="refused").state == "cancelled"


def test_a_cancelled_job_whose_worker_died_while_sending_is_uncertain(db, ledger):
    claim = ledger.begun(worker="a", alerts_to=OPS)
    db.cancel(claim.job_id)

    db.lose("a")

    assert db.state(claim.job_id) == "cancelled"
    assert ledger.state(claim.job_id) == "uncertain"
    assert len(ledger.alerts()) == 1
    assert ledger.decide(claim.job_id, "send_again") == "pending"
    assert db.state(claim.job_id) == "ready"


def test_a_crash_during_the_last_attempt_is_uncertain_and_told(db, ledger):
    claim = ledger.begun(worker="a", max_attempts=1, alerts_to=OPS)

    db.lose("a")

    assert (db.state(claim.job_id), ledger.state(claim.job_id)) == ("dead_letter", "uncertain")
    assert len(ledger.alerts()) == 1


def test_the_death_of_a_worker_costs_a_delivery_neither_a_try_nor_its_wait(db, ledger):
    claim = ledger.begun(worker="a", kind="webhook", content={"url": "https://example.com", "payload": {}})
    db.lose("a")

    assert (db.job(claim.job_id).state, db.job(claim.job_id).attempt) == ("ready", 0)
    again = ledger.claim(worker="b")
    ledger.begin(again)
    ledger.settle(again, "retry", message="503")
    # The first of its waits, five seconds: the receiver has refused once.
    assert db.job(claim.job_id).run_at - db.clock.now() == timedelta(seconds=5)


def test_a_delivery_that_had_not_begun_is_not_abandoned_for_a_dead_worker(db, ledger):
    made = ledger.deliver(max_attempts=1)
    ledger.claim(worker="a")

    db.lose("a")

    assert (db.state(made.delivery_id), ledger.state(made.delivery_id)) == ("ready", "pending")


def test_a_delivery_that_kills_every_worker_ends(db, ledger):
    made = ledger.deliver(max_attempts=2)
    for number in range(12):
        ledger.claim(worker=f"w{number}")
        db.lose(f"w{number}")

    assert (db.state(made.delivery_id), ledger.state(made.delivery_id)) == ("dead_letter", "abandoned")


def test_a_job_that_fails_without_the_ledger_is_abandoned_when_it_had_not_begun(db, ledger):
    ledger.deliver(alerts_to=OPS)
    claim = ledger.claim()

    db.fail(claim, permanent=True)

    assert ledger.state(claim.job_id) == "abandoned"
    assert len(ledger.alerts()) == 1


@pytest.mark.parametrize("end", ["abandoned", "cancelled"])
def test_requeueing_the_job_sends_again_what_was_not_sent(db, ledger, end):
    if end == "abandoned":
        claim = ledger.begun()
        ledger.settle(claim, "abandoned")
        delivery = claim.job_id
    else:
        delivery = ledger.deliver().delivery_id
        db.cancel(delivery)
    assert ledger.state(delivery) == end

    db.requeue(delivery)

    assert ledger.state(delivery) == "pending"
    again = ledger.claim()
    assert ledger.begin(again).unclear_since is None
    assert ledger.settle(again, "sent").state == "sent"


def test_an_uncertain_delivery_is_neither_requeued_nor_resolved_without_a_decision(db, ledger):
    delivery = ledger.uncertain()

    with db.refused("OW007", "may have arrived", "decide_delivery"):
        db.requeue(delivery)
    with db.refused("OW007", "decide_delivery"):
        db.resolve(delivery)


def test_a_requeue_cannot_change_what_is_sent(db, ledger):
    claim = ledger.begun()
    ledger.settle(claim, "abandoned")

    with db.refused("OW008", "payload of a delivery cannot be changed"):
        db.requeue(claim.job_id, payload={"kind": "slack"})


def test_resolving_an_abandoned_one_leaves_it_abandoned(db, ledger):
    claim = ledger.begun()
    ledger.settle(claim, "abandoned")

    db.resolve(claim.job_id)

    assert (db.state(claim.job_id), ledger.state(claim.job_id)) == ("resolved", "abandoned")


# ---------------------------------------------------------------- decisions


def test_a_person_decides_that_it_arrived(db, ledger):
    delivery = ledger.uncertain()

    assert ledger.decide(delivery, "sent", "she answered") == "sent"

    row = ledger.row(delivery)
    assert (row.state, row.note, row.unclear_since) == ("sent", "she answered", None)
    assert row.decided_by == db.value("select session_user")
    assert db.state(delivery) == "resolved"
    with db.refused("OW007", "another key"):
        db.requeue(delivery)


def test_a_person_decides_to_send_again(db, ledger):
    delivery = ledger.uncertain()

    assert ledger.decide(delivery, "send_again") == "pending"

    claim = ledger.claim()
    assert (claim.job_id, claim.attempt) == (delivery, 1)
    assert ledger.begin(claim).unclear_since is None


def test_a_person_decides_to_give_up(db, ledger):
    delivery = ledger.uncertain()

    assert ledger.decide(delivery, "abandon") == "abandoned"

    assert db.state(delivery) == "resolved"
    assert db.requeue(delivery) == "ready"


@pytest.mark.parametrize(("decision", "note"), [("maybe", "x"), (None, "x"), ("sent", None), ("sent", " ")])
def test_a_decision_needs_a_known_word_and_a_note(db, ledger, decision, note):
    delivery = ledger.uncertain()

    with db.refused("OW008"):
        ledger.decide(delivery, decision, note)


@pytest.fixture
def abandoned(ledger):
    claim = ledger.begun()
    ledger.settle(claim, "abandoned")
    return claim.job_id


def test_one_that_was_given_up_is_sent_again_with_a_note(db, ledger, abandoned):
    assert ledger.decide(abandoned, "send_again", "the address is mended") == "pending"

    row = ledger.row(abandoned)
    assert (row.state, row.note, row.ended_at) == ("pending", "the address is mended", None)
    entry = db.one("select * from onceward.audit_log where kind = 'delivery.decided'")
    assert (entry.before, entry.after, entry.message) == (
        {"state": "abandoned"}, {"state": "pending"}, "the address is mended",
    )  # fmt: skip
    again = ledger.claim()
    ledger.begin(again)
    assert ledger.settle(again, "sent").state == "sent"


def test_one_that_was_given_up_is_left_and_its_job_resolved(db, ledger, abandoned):
    ended = ledger.row(abandoned).ended_at
    db.clock.advance("1 hour")
    assert ledger.decide(abandoned, "abandon", "she has moved") == "abandoned"

    assert (db.state(abandoned), ledger.row(abandoned).ended_at) == ("resolved", ended)
    # Decided once; whoever comes later requeues it knowingly.
    for decision in ("send_again", "abandon"):
        with db.refused("OW007", 'in state "abandoned"', "requeue the job"):
            ledger.decide(abandoned, decision)


def test_one_that_was_given_up_did_not_arrive(db, ledger, abandoned):
    with db.refused("OW007", "It did not arrive"):
        ledger.decide(abandoned, "sent")


def test_only_what_waits_for_a_person_is_decided(db, ledger):
    claim = ledger.begun()

    with db.refused("OW007", 'in state "sending"'):
        ledger.decide(claim.job_id, "sent")
    ledger.settle(claim, "sent")
    with db.refused("OW007", 'in state "sent"'):
        ledger.decide(claim.job_id, "send_again")
    plain_job = db.enqueue()
    with db.refused("OW006"):
        ledger.decide(plain_job, "sent")


# ---------------------------------------------------------------- alerts


@pytest.mark.parametrize("outcome", ["uncertain", "abandoned"])
def test_a_bad_end_is_told_once_in_the_same_transaction(db, ledger, outcome):
    claim = ledger.begun(alerts_to=OPS, tenant="acme")

    ledger.settle(claim, outcome, message="HTTP 500")

    (alert,) = ledger.alerts()
    assert (alert.key, alert.kind, alert.tenant) == (f"alert:{claim.job_id}", "slack", "acme")
    text = db.value(
        "select content ->> 'text' from onceward.delivery_content_private where id = %s", alert.id
    )
    assert outcome in text
    assert "HTTP 500" in text
    assert "jane" not in text


def test_a_second_bad_end_is_not_told_again(db, ledger):
    claim = ledger.begun(alerts_to=OPS)
    ledger.settle(claim, "abandoned", message="first")
    db.requeue(claim.job_id)
    again = next(c for c in db.claims(5, lanes=["deliveries"]) if c.job_id == claim.job_id)
    ledger.begin(again)

    ledger.settle(again, "abandoned", message="second")

    assert len(ledger.alerts()) == 1


def test_an_alert_that_fails_makes_no_alert(db, ledger):
    claim = ledger.begun(alerts_to=OPS)
    ledger.settle(claim, "abandoned")
    alert = ledger.claim()
    ledger.begin(alert)

    ledger.settle(alert, "abandoned")

    assert len(ledger.alerts()) == 1


def test_a_retry_that_will_come_is_not_told(ledger):
    claim = ledger.begun(alerts_to=OPS)

    ledger.settle(claim, "retry")

    assert ledger.alerts() == []


def test_an_alert_is_made_whatever_the_session_of_the_worker_says(db, ledger):
    claim = ledger.begun(alerts_to=OPS, tenant="acme")
    worker = Ledger(db.on(db.connect(role="onceward_worker", tenant="globex")))

    assert worker.settle(claim, "abandoned").state == "abandoned"

    assert [alert.tenant for alert in ledger.alerts()] == ["acme"]
    assert worker.db.value("select onceward.current_tenant()") == "globex"


# ---------------------------------------------------------------- rights


def test_the_content_is_for_operators_and_workers_of_its_tenant(db, ledger):
    delivery = ledger.deliver(tenant="acme").delivery_id

    for role in ("operator", "worker"):
        own = db.on(db.connect(role=f"onceward_{role}", tenant="acme"))
        assert own.answer("delivery_content", delivery_id=delivery) == MAIL
        for tenant in ("globex", None):
            other = db.on(db.connect(role=f"onceward_{role}", tenant=tenant))
            with refused("OW011"):
                other.answer("delivery_content", delivery_id=delivery)
    for role in ("producer", "auditor"):
        with refused("42501"):
            db.on(db.connect(role=f"onceward_{role}", tenant="acme")).answer(
                "delivery_content", delivery_id=delivery
            )


def test_nobody_decides_about_the_delivery_of_another_tenant(db, ledger):
    delivery = ledger.uncertain(tenant="acme")
    before = db.contents()

    with refused("OW011"):
        Ledger(db.on(db.connect(role="onceward_operator", tenant="globex"))).decide(delivery, "sent")
    assert db.contents() == before
    assert (
        Ledger(db.on(db.connect(role="onceward_operator", tenant="acme"))).decide(delivery, "sent") == "sent"
    )


def test_a_producer_delivers_for_its_tenant(db):
    producer = Ledger(db.on(db.connect(role="onceward_producer", tenant="acme")))

    made = producer.deliver()

    assert producer.row(made.delivery_id).tenant == "acme"
    with refused("OW011"):
        producer.deliver(key="other", tenant="globex")
