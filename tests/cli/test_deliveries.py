"""`onceward delivery`: reading the ledger, and deciding."""

from __future__ import annotations

from uuid import UUID

import pytest

CANARY = "canary7391"


@pytest.fixture
def made(db):
    """A delivery in some state, by its key."""

    def make(state: str = "pending", key: str = "welcome:42", **options) -> UUID:
        content = {"to": f"{CANARY}@example.com", "subject": CANARY, "text": CANARY}
        (row,) = db.call("deliver", kind="email", key=key, content=content, **options)
        if state != "pending":
            claim = db.claim(lanes=["deliveries"])
            db.call("begin_delivery", job_id=claim.job_id, epoch=claim.epoch, provider="smtp")
            db.call(
                "settle_delivery", job_id=claim.job_id, epoch=claim.epoch, outcome=state, message="no reply", category="no_reply"
            )  # fmt: skip
        return row.delivery_id

    return make


def test_list_has_the_columns_of_the_view_and_filters(cli, db, made):
    sent, uncertain = made("sent", "a"), made("uncertain", "b")

    listed = cli.json("delivery", "list")

    columns = {row.attname for row in db.run("select attname from pg_attribute where attrelid = 'onceward.deliveries'::regclass and attnum > 0")}  # fmt: skip
    assert set(listed[0]) == columns
    assert [row["id"] for row in listed] == [str(uncertain), str(sent)]
    assert [row["key"] for row in cli.json("delivery", "list", "--state", "uncertain,abandoned")] == ["b"]
    assert cli.json("delivery", "list", "--kind", "slack") == []
    assert [row["key"] for row in cli.json("delivery", "list", "--limit", 1, "--before", uncertain)] == ["a"]
    out = cli.ok("delivery", "list").out
    assert "uncertain" in out
    assert "no reply" in out
    assert "no deliveries" in cli.ok("delivery", "list", "--key", "none").err


def test_show_tells_what_to_do_next(cli, made):
    uncertain = made("uncertain")

    out = cli.ok("delivery", "show", uncertain).out

    assert "May have arrived, and nobody knows" in out
    assert f"onceward delivery decide {uncertain}" in out
    assert "no reply" in out


def test_show_tells_that_the_worker_has_no_provider_or_that_there_is_none(cli, db, made):
    delivery = made()
    assert 'No live worker serves lane "deliveries"' in cli.ok("delivery", "show", delivery).out

    claim = db.claim(lanes=["deliveries"])
    db.snooze(claim, "5 min", reason="this worker has no provider for email; set X", counted=False)
    assert (
        "The worker that took it has no provider for email; set X."
        in cli.ok("delivery", "show", delivery).out
    )


def test_one_that_was_given_up_is_decided_once(cli, db, made):
    delivery = made("abandoned")
    assert f"onceward delivery decide {delivery} send-again" in cli.ok("delivery", "show", delivery).out

    cli.ok("delivery", "decide", delivery, "abandon", "--note", "she has moved")
    out = cli.ok("delivery", "show", delivery).out
    assert "left at that by" in out
    assert f"onceward job requeue {delivery}" in out


@pytest.mark.parametrize("state", ["pending", "sent", "retry", "abandoned", "uncertain"])
def test_show_of_every_state(cli, made, state):
    delivery = made(state)

    assert str(delivery) in cli.ok("delivery", "show", delivery).out


def test_addresses_and_texts_are_shown_only_when_they_are_asked_for(cli, made):
    delivery = made("abandoned")

    for command in (["list"], ["show", delivery], ["list", "--json"], ["show", delivery, "--json"]):
        assert CANARY not in cli.ok("delivery", *command).out
    assert cli.json("delivery", "show", delivery, "--content")["content"]["to"] == f"{CANARY}@example.com"
    assert CANARY in cli.ok("delivery", "show", delivery, "--content").out


@pytest.mark.parametrize(
    ("word", "state"), [("sent", "sent"), ("send-again", "pending"), ("abandon", "abandoned")]
)
def test_decide(cli, db, made, word, state):
    delivery = made("uncertain")

    assert cli.ok("delivery", "decide", delivery, word, "--note", "she called").out == f"{delivery} {state}\n"

    assert db.one("select state, note from onceward.deliveries") == (state, "she called")


def test_a_decision_needs_a_known_word_a_note_and_an_uncertain_delivery(cli, made):
    uncertain, sent = made("uncertain", "a"), made("sent", "b")

    assert "decision must be one of sent, send-again, abandon" in cli.refused(
        2, "delivery", "decide", uncertain, "resend", "--note", "x"
    )
    assert "--note" in cli.refused(2, "delivery", "decide", uncertain, "sent")
    assert 'in state "sent"' in cli.refused(1, "delivery", "decide", sent, "sent", "--note", "x")


def test_cancel(cli, db, made):
    delivery = made()

    assert cli.ok("delivery", "cancel", delivery, "--reason", "not needed").out == f"{delivery} cancelled\n"

    assert db.value("select state from onceward.deliveries") == "cancelled"


def test_a_delivery_that_is_not_there_or_not_ours(cli, made):
    delivery = made(tenant="red")

    assert "does not exist" in cli.refused(1, "delivery", "show", UUID(int=1))
    assert "does not exist" in cli.refused(1, "delivery", "show", delivery, "--tenant", "blue")
    assert "must be a UUID" in cli.refused(2, "delivery", "show", "welcome:42")
    assert "--kind must be one of" in cli.refused(2, "delivery", "list", "--kind", "fax")


def test_doctor_counts_what_waits_for_a_person(cli, made):
    def finding():
        return next(item for item in cli("doctor", "--json").json if item["name"] == "deliveries")

    made("abandoned", "a")
    assert (finding()["status"], finding()["value"]) == ("warn", "0 uncertain, 1 abandoned")
    made("uncertain", "b")
    assert (finding()["status"], finding()["value"]) == ("warn", "1 uncertain, 1 abandoned")
