"""Pages of channels: addresses in the words of the form, and channels that nobody can send through."""

from __future__ import annotations

import html

import pytest

from onceward.deliveries.handler import LANE, TASK, no_provider
from tests.support.ledger import Ledger
from tests.support.watch import Watch


@pytest.mark.parametrize(
    ("kind", "address", "said"),
    [
        ("email", "nobody", "The address must be one address such as name@example.com"),
        ("email", "", "The address is missing"),
        ("telegram", "the office", "The address must be a number, or the @name of a channel"),
        ("webhook", "ftp://x", "The address must be an https URL without user name and fragment"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_in_the_words_of_the_form(ana, kind, address, said):
    text = ana.post("/channels", 400, name="ops", kind=kind, address=address, severity="warning").text

    assert f'id="e-address">{said}<' in text
    assert "of the content" not in text


def sender(db):
    """A worker that sends, without a provider for slack."""
    db.call("declare_lanes", names=[LANE])
    return db.worker("sender", lanes=[LANE], tasks=[TASK])


def put_off(db):
    """The worker takes what is there, and has no provider."""
    claim = Ledger(db).claim("sender")
    db.snooze(claim, "5 minutes", reason=no_provider("slack"), counted=False)
    return claim.job_id


def test_a_channel_that_no_worker_can_send_through_says_so_and_what_to_set(ana, db):
    sender(db)
    Watch(db).channel("chat", "slack")
    place = ana.post("/channels/chat/test").headers["location"]
    assert "no provider" not in ana.get(place)
    assert "no provider" not in ana.get("/channels")

    waiting = put_off(db)
    assert place.endswith(str(waiting))
    text = html.unescape(ana.get(place))
    assert 'why-first">The worker that took it has no provider for slack; set ONCEWARD_SLACK_WEBHOOK' in text
    text = html.unescape(ana.get("/channels"))
    assert (
        "No message of kind slack gets through: the worker that took it has no provider for slack; set ONCEWARD_SLACK"
        in text
    )
    assert f'href="/deliveries/{waiting}"' in text
    # And whoever tries again, or adds another one, hears it at once.
    place = ana.post("/channels/chat/test").headers["location"]
    assert "The message waits: the worker that took it has no provider for slack" in ana.get(place)
    ana.post("/channels", name="second", kind="slack", address="", severity="warning")
    assert "is added, and nobody can send: the worker that took it has no provider" in ana.get("/channels")
    ana.post("/channels", name="mail", kind="email", address="ops@example.com", severity="warning")
    assert "try it with Test" in ana.get("/channels")


def test_channels_say_that_no_worker_sends(ana, db):
    assert "No live worker sends" not in ana.get("/channels")
    Watch(db).channel()
    assert "No live worker sends what goes through channels" in ana.get("/channels")
    place = ana.post("/channels/ops/test").headers["location"]
    assert "No live worker serves lane" in ana.get(place)

    sender(db)
    assert "No live worker sends" not in ana.get("/channels")


def test_what_waits_of_another_tenant_is_not_told(site, db):
    sender(db)
    Ledger(db).deliver("x", {"text": "hello"}, "slack", tenant="bolt")
    put_off(db)

    assert "no provider" not in site.signed_in("otto", "operator", "acme").get("/channels")
    assert "no provider" in site.signed_in("bea", "operator", "bolt").get("/channels")
