"""The ledger of outside effects, in SQL: one row per key, fenced, and never silent about an unclear outcome."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.support.engine import refused
from tests.support.ledger import MAIL, OPS, Ledger

PHOTO = {"filename": "a.png", "type": "image/png", "content": "aGk="}


@pytest.fixture
def ledger(db):
    return Ledger(db)


# ---------------------------------------------------------------- entering


def test_a_delivery_is_a_job_with_the_same_id_and_key(db, ledger):
    made = ledger.deliver()

    assert (made.created, made.state) == (True, "pending")
    job = db.job(made.delivery_id)
    assert (job.task, job.lane, job.key, job.state) == (
        "onceward.deliver",
        "deliveries",
        "welcome:42",
        "ready",
    )
    assert ledger.state(made.delivery_id) == "pending"


def test_neither_address_nor_content_is_in_the_job_or_in_any_view(db, ledger):
    made = ledger.deliver(
        content={"to": "canary@example.com", "subject": "canary", "text": "canary"},
        alerts_to={"kind": "telegram", "content": {"chat_id": "@canary"}},
    )

    for view in ("jobs", "deliveries", "attempts", "dead_letters", "job_private", "delivery_private"):
        rows = db.run(f"select v::text as line from onceward.{view} as v")
        assert not any("canary" in row.line for row in rows)
    assert set(db.job(made.delivery_id).payload) == {"kind", "content_sha256"}


def test_the_same_key_gives_the_same_delivery(db, ledger):
    first = ledger.deliver()
    again = ledger.deliver(content=dict(reversed(MAIL.items())))

    assert (again.delivery_id, again.created, again.state) == (first.delivery_id, False, "pending")
    assert db.value("select count(*) from onceward.deliveries") == 1


def test_a_key_stays_taken_after_the_delivery_was_sent(ledger):
    claim = ledger.begun()
    ledger.settle(claim, "sent")

    again = ledger.deliver()
    assert (again.created, again.state) == (False, "sent")


def test_other_content_under_the_same_key_is_refused(db, ledger):
    ledger.deliver()

    with db.refused("OW005", "welcome:42"):
        ledger.deliver(content={**MAIL, "text": "Hello John"})


def test_tenants_have_keys_of_their_own(ledger):
    red, blue = ledger.deliver(tenant="red"), ledger.deliver(tenant="blue")

    assert red.created
    assert blue.created


def test_a_rollback_leaves_neither_delivery_nor_job(db, ledger):
    other = Ledger(db.on(db.connect(autocommit=False)))
    ledger.deliver(key="other")
    before = db.contents()

    other.deliver()
    other.db.conn.rollback()

    assert db.contents() == before


def test_a_delivery_can_wait_and_expire(db, ledger):
    later = db.now() + timedelta(hours=1)
    made = ledger.deliver(run_at=later, expires_at=later + timedelta(hours=1))

    assert ledger.row(made.delivery_id).next_try_at == later
    db.clock.advance("3 hours")
    db.promote()
    assert ledger.state(made.delivery_id) == "cancelled"


@pytest.mark.parametrize(
    ("kind", "content", "fragment"),
    [
        ("fax", MAIL, "kind must be email, slack, telegram or webhook"),
        ("email", {**MAIL, "to": "a@example.com, canary@example.com"}, "to of the content must be one address"),
        ("email", {**MAIL, "to": "canary"}, "to of the content must be one address"),
        ("email", {**MAIL, "subject": "a\r\nBcc: canary@example.com"}, "subject of the content must not contain control"),
        ("email", {**MAIL, "to_name": "a\u2028canary"}, "to_name of the content must not contain control"),
        ("email", {"to": "canary@example.com", "subject": "s"}, "text of the content is missing"),
        ("email", {**MAIL, "bcc": "canary@example.com"}, "bcc of the content is not known"),
        ("email", {**MAIL, "attachments": [{"filename": "../canary", "content": ""}]}, "must not contain a slash"),
        ("email", {**MAIL, "attachments": [{"filename": "a", "content": "canary!"}]}, "must be base64"),
        (
            "email",
            {**MAIL, "attachments": [{"filename": "a", "content": "", "content_id": "canary>"}]},
            "must be letters, digits, dots, dashes or underscores",
        ),
        ("email", {**MAIL, "text": ["canary"]}, "text of the content must be a text of 1 to"),
        ("slack", {"text": ""}, "text of the content must be a text"),
        ("telegram", {"chat_id": "canary", "text": "x"}, "chat_id of the content must be a number"),
        ("telegram", {"chat_id": 1, "text": "canary" * 200, "photo": PHOTO}, "text of the content must be a text of 1 to 1024"),
        ("telegram", {"chat_id": 1, "text": "x", "photo": "canary"}, "photo of the content must have filename, type and content"),
        ("telegram", {"chat_id": 1, "text": "x", "photo": {**PHOTO, "content": "canary!"}}, "content of the content must be base64"),
        ("webhook", {"url": "ftp://canary.example", "payload": {}}, "url of the content must be an https URL"),
        ("webhook", {"url": "https://canary:canary@example.com/", "payload": {}}, "without user name"),
        ("webhook", {"url": "https://canary.example"}, "payload of the content is missing"),
    ],
)  # fmt: skip
def test_bad_content_is_refused_by_the_name_of_the_field_and_not_by_its_value(
    db, ledger, kind, content, fragment
):
    ledger.deliver(key="other")
    before = db.contents()

    with pytest.raises(Exception, match=r".") as raised:
        ledger.deliver(kind=kind, content=content)

    assert fragment in str(raised.value)
    assert "canary" not in str(raised.value)
    assert db.contents() == before


def test_content_has_a_cap(db, ledger):
    with db.refused("OW003", "content must be at most 8388608 bytes"):
        ledger.deliver(kind="webhook", content={"url": "https://a.example", "payload": "x" * 8388608})


@pytest.mark.parametrize(
    "alerts_to", ["x", {"kind": "fax", "content": {}}, {"kind": "telegram", "content": {}}]
)
def test_a_bad_target_of_alerts_is_refused_when_the_delivery_is_made(db, ledger, alerts_to):
    with db.refused("OW008"):
        ledger.deliver(alerts_to=Jsonb(alerts_to))


# ---------------------------------------------------------------- sending


def test_begin_commits_that_it_is_sending_before_anything_is_sent(db, ledger):
    made = ledger.deliver()
    claim = ledger.claim()

    begun = ledger.begin(claim)

    assert (begun.content, begun.kind, begun.key, begun.tries) == (MAIL, "email", "welcome:42", 1)
    assert (begun.first_try_at, begun.unclear_since) == (db.now(), None)
    row = ledger.row(made.delivery_id)
    assert (row.state, row.provider, row.tries, row.sending_at) == ("sending", "smtp", 1, db.now())


def test_sent_ends_delivery_and_job_together(db, ledger):
    claim = ledger.begun()

    assert ledger.settle(claim, "sent", provider_ref="<1@example.com>").state == "sent"

    row = ledger.row(claim.job_id)
    assert (row.state, row.provider_ref, row.ended_at) == ("sent", "<1@example.com>", db.now())
    assert db.state(claim.job_id) == "done"
    assert ledger.alerts() == []


def test_email_is_tried_six_times_with_the_documented_waits_and_then_abandoned(db, ledger):
    made = ledger.deliver()
    waits = []
    for _ in range(6):
        claim = ledger.claim()
        ledger.begin(claim)
        began = db.now()
        answer = ledger.settle(claim, "retry", message="connection refused")
        if answer.next_try_at is None:
            break
        assert answer.state == "pending"
        waits.append((answer.next_try_at - began) / timedelta(minutes=1))
        db.clock.advance(answer.next_try_at - began)
        db.promote()

    assert waits == [5, 15, 60, 240, 240]
    assert ledger.state(made.delivery_id) == "abandoned"
    assert db.state(made.delivery_id) == "dead_letter"
    assert ledger.row(made.delivery_id).tries == 6


def test_waits_and_attempts_can_be_given(db, ledger):
    ledger.deliver(retry={"waits": [1, 2]})

    claim = ledger.claim()
    assert claim.max_attempts == 3


def test_retry_after_is_honoured_up_to_a_day(db, ledger):
    first, second = ledger.begun(key="a"), ledger.begun(key="b")

    soon = ledger.settle(first, "retry", retry_after="90 seconds")
    late = ledger.settle(second, "retry", retry_after="1 year")

    assert soon.next_try_at == db.now() + timedelta(seconds=90)
    assert late.next_try_at == db.now() + timedelta(days=1)


def test_a_refusal_is_abandoned_at_once(db, ledger):
    claim = ledger.begun()

    assert ledger.settle(claim, "abandoned", error_type="SmtpRefused", message="550", category="refused") == (
        "abandoned",
        None,
    )
    assert (ledger.row(claim.job_id).error_type, ledger.row(claim.job_id).message) == ("SmtpRefused", "550")
    assert db.job(claim.job_id).last_error["category"] == "refused"


def test_an_unclear_outcome_becomes_uncertain_and_waits_for_a_person(db, ledger):
    delivery = ledger.uncertain()

    assert db.one("select id, category from onceward.dead_letters") == (delivery, "uncertain")
    row = ledger.row(delivery)
    assert (row.state, row.category, row.unclear_since) == ("uncertain", "uncertain", db.now())


# ---------------------------------------------------------------- crashes and fencing


def test_after_a_crash_the_next_attempt_hears_that_the_outcome_is_unclear(db, ledger):
    claim = ledger.begun(worker="a")
    since = db.now()
    db.lose("a")

    begun = ledger.begin(ledger.claim("b"), provider="resend")

    assert (begun.unclear_since, begun.unclear_provider, begun.tries) == (since, "smtp", 2)
    assert ledger.row(claim.job_id).state == "sending"


def test_a_crash_before_begin_leaves_nothing_unclear(db, ledger):
    ledger.deliver()
    ledger.claim("a")
    db.lose("a")

    assert ledger.begin(ledger.claim("b")).unclear_since is None


def test_what_may_have_arrived_stays_unclear_until_it_is_cleared(db, ledger):
    claim = ledger.begun()
    first = ledger.settle(claim, "retry", message="no answer", unclear=True)
    assert first.state == "sending"
    db.clock.advance("5 min")
    db.promote()
    second = ledger.claim()
    assert ledger.begin(second).unclear_since is not None

    # This try certainly did not arrive, the one before still may have.
    assert ledger.settle(second, "retry", message="refused").state == "sending"
    db.clock.advance("15 min")
    db.promote()
    third = ledger.claim()
    assert ledger.begin(third).unclear_since == ledger.row(claim.job_id).unclear_since

    assert ledger.settle(third, "retry", message="refused", cleared=True).state == "pending"


def test_what_may_have_arrived_is_never_abandoned_but_uncertain(ledger):
    claim = ledger.begun(retry={"waits": [0]})
    ledger.settle(claim, "retry", unclear=True)
    ledger.db.promote()
    again = ledger.claim()
    ledger.begin(again)

    assert ledger.settle(again, "abandoned", message="422").state == "uncertain"


def test_a_worker_that_lost_its_lease_can_neither_begin_nor_settle(db, ledger):
    late = ledger.begun(worker="a")
    db.lose("a")
    other = ledger.claim("b")
    before = db.contents()

    with refused("OW001"):
        ledger.begin(late)
    for outcome in ("sent", "retry", "uncertain", "abandoned"):
        with refused("OW001"):
            ledger.settle(late, outcome)
    assert db.contents() == before
    ledger.begin(other)
    with refused("OW001"):
        ledger.settle(late, "sent")


def test_begin_may_be_repeated_when_its_reply_was_lost(db, ledger):
    claim = ledger.begun(worker="a")
    db.lose("a")
    claim = ledger.claim("b")

    first = ledger.begin(claim)
    db.clock.advance("1 min")
    assert ledger.begin(claim) == first
    assert ledger.row(claim.job_id).tries == 2


@pytest.mark.parametrize("outcome", ["sent", "retry", "uncertain", "abandoned"])
def test_settle_may_be_repeated_when_its_reply_was_lost(db, ledger, outcome):
    claim = ledger.begun(alerts_to=OPS)

    first = ledger.settle(claim, outcome, message="why")
    before = db.contents()

    assert ledger.settle(claim, outcome, message="why") == first
    assert db.contents() == before


def test_a_late_repetition_does_not_touch_the_attempt_that_follows(db, ledger):
    first = ledger.begun(retry={"waits": [0, 0]})
    ledger.settle(first, "retry")
    db.promote()
    second = ledger.claim()
    ledger.begin(second)

    ledger.settle(first, "retry")

    assert ledger.state(first.job_id) == "sending"
    assert ledger.settle(second, "sent").state == "sent"


def test_settle_without_begin_is_refused(db, ledger):
    ledger.deliver()
    claim = ledger.claim()

    with db.refused("OW007", 'in state "pending"', "begin_delivery"):
        ledger.settle(claim, "sent")
