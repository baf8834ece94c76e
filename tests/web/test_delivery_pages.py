"""Pages of deliveries: one that was given up, what leads to it, and the mail as its receiver sees it."""

from __future__ import annotations

import base64
import re

import pytest

from onceward.web import references
from tests.support.ledger import MAIL, OPS, Ledger
from tests.support.watch import Watch

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


@pytest.fixture
def ledger(db):
    return Ledger(db)


@pytest.fixture
def abandoned(ledger):
    claim = ledger.begun(alerts_to=OPS)
    ledger.settle(claim, "abandoned", message="no such mailbox")
    return claim.job_id


def test_an_alert_about_a_delivery_leads_to_it_and_it_is_sent_again(ana, db, abandoned):
    watch = Watch(db)
    watch.run("delivery_trouble")
    (alert,) = watch.alerts("delivery_trouble")
    page = re.search(rf'href="(/deliveries/{abandoned})"', ana.get(f"/alerts/{alert.id}"))[1]

    text = ana.get(page)
    assert "did not arrive" in text
    assert 'value="sent"' not in text
    ana.post(f"{page}/decide", 400, decision="send_again")
    ana.post(f"{page}/decide", decision="send_again", note="the mailbox is back")
    row = db.one("select * from onceward.deliveries where id = %s", abandoned)
    assert (row.state, row.decided_by, row.note) == ("pending", "ana", "the mailbox is back")
    assert "/decide" not in ana.get(page)
    watch.run("delivery_trouble")
    assert watch.alerts("delivery_trouble") == []


def test_one_that_was_given_up_is_left_and_nothing_is_offered_any_more(ana, db, abandoned):
    assert "1 delivery was given up." in ana.get("/deliveries")
    ana.post(f"/deliveries/{abandoned}/decide", decision="abandon", note="she has moved")

    assert db.state(abandoned) == "resolved"
    assert "/decide" not in ana.get(f"/deliveries/{abandoned}")
    assert "given up." not in ana.get("/deliveries")


def test_the_doctor_warns_of_what_was_given_up_until_somebody_decides(ana, abandoned):
    text = ana.get("/doctor")
    assert "0 uncertain, 1 abandoned" in text
    assert "Abandoned ones did not arrive, and nobody has decided about them." in text

    ana.post(f"/deliveries/{abandoned}/decide", decision="abandon", note="she has moved")
    assert "No delivery waits for a decision." in ana.get("/doctor")


def test_a_message_about_a_delivery_or_an_alert_leads_to_it(ana, db, ledger, abandoned):
    (about,) = ledger.alerts()
    assert f'<dt>Tells of</dt><dd><a href="/deliveries/{abandoned}">' in ana.get(f"/deliveries/{about.id}")

    watch = Watch(db)
    watch.channel()
    watch.run("delivery_trouble")
    (alert,) = watch.alerts("delivery_trouble")
    told = db.value("select id from onceward.deliveries where key like 'alert:%%:opened:ops'")
    assert f'<dt>Tells of</dt><dd><a href="/alerts/{alert.id}">' in ana.get(f"/deliveries/{told}")


def test_pictures_that_are_part_of_a_mail_are_shown_in_it(ana, ledger):
    parts = [
        {"filename": "code.png", "type": "image/png", "content": PIXEL, "content_id": "code"},
        {"filename": "page.html", "type": "text/html", "content": PIXEL, "content_id": "page"},
    ]
    html = '<img src="cid:code"><img src="cid:page"><img src="cid:other"><p>cid:code</p>'
    made = ledger.deliver(content={**MAIL, "html": html, "attachments": parts})
    answer = ana.http.get(f"/deliveries/{made.delivery_id}/preview")

    assert answer.text == (
        f'<img src="data:image/png;base64,{PIXEL}"><img src="cid:page"><img src="cid:other"><p>cid:code</p>'
    )
    assert answer.headers["content-security-policy"] == (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
    )


def test_the_envelope_names_the_receiver_of_every_kind(ana, ledger):
    chat = ledger.deliver("a", {"chat_id": "4711", "text": "x"}, "telegram").delivery_id
    slack = ledger.deliver("b", {"to": "night-shift", "text": "x"}, "slack").delivery_id

    assert "<dt>Chat</dt><dd>4711</dd>" in ana.get(f"/deliveries/{chat}")
    assert "<dt>To</dt><dd>night-shift</dd>" in ana.get(f"/deliveries/{slack}")


def test_only_ids_that_say_whose_they_are_become_links():
    one = "0190f7c1-0000-7000-8000-000000000001"

    assert references.linked(f"job {one} <b>") == f'job <a href="/jobs/{one}">{one}</a> &lt;b&gt;'
    assert references.linked(f"Delivery {one}.") == f'Delivery <a href="/deliveries/{one}">{one}</a>.'
    assert references.linked(f"order {one}") == f"order {one}"
    assert references.page_of("jobs", one) == f"/jobs/{one}"
    assert references.page_of("delivery_id", one) == f"/deliveries/{one}"
    assert references.page_of("order", one) is None
    assert references.page_of("job", '"><script>') is None
