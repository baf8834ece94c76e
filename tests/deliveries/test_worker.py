"""Deliveries through a real worker: what arrives, what waits, and what a person gets to see."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from onceward import Onceward
from onceward.deliveries import Deliveries, NotSent, Outbox, Resend, Sent, Slack, Webhooks
from onceward.deliveries.handler import LANE, TASK
from onceward.errors import InvalidArgument, WrongState
from onceward.worker import Worker
from tests.deliveries.conftest import MAIL, SHORT
from tests.deliveries.test_webhook import SECRET

pytestmark = pytest.mark.slow


class Post:
    """One application with its providers, and the ledger as a client sees it."""

    def __init__(self, kit, **settings) -> None:
        self.kit = kit
        self.app = Onceward()
        Deliveries(self.app, environ={}, **settings)
        self.client = kit.client(self.app)
        self.ledger = self.client.deliveries

    def mail(self, to="jane@example.com", key="welcome:42", **more):
        return self.ledger.email(to=to, subject="Welcome", text="Hello Jane", key=key, **more)

    def work(self) -> int:
        return self.kit.drain(self.app)

    def row(self, delivery):
        return self.ledger.get(delivery)

    def state(self, delivery) -> str:
        return self.row(delivery).state

    def crash(self) -> None:
        """As if the worker had died in the middle of sending."""
        with self.kit.connect() as conn:
            worker = conn.execute(
                "select onceward.register_worker('doomed', array['deliveries'], p_lease => '1 second')"
            ).fetchone()
            job = conn.execute(
                "select job_id, epoch from onceward.claim(%s, array['deliveries'])", worker
            ).fetchone()
            provider = next(iter(self.app.deliveries.providers.values())).name
            conn.execute("select onceward.begin_delivery(%s, %s, %s)", [*job, provider])
        self.kit.clock.advance("1 minute")


@pytest.fixture
def post(onceward_kit, smtp):
    return Post(onceward_kit, email=smtp)


def test_a_mail_of_a_committed_transaction_arrives_once(post, mail_sink):
    with post.kit.connect(autocommit=False) as conn:
        kept = post.mail(key="kept", connection=conn)
        again = post.mail(key="kept", connection=conn)
        conn.commit()
        post.mail(key="dropped", connection=conn)
        conn.rollback()

    assert (kept.created, again.created, kept.id) == (True, False, again.id)
    assert post.work() == 1
    assert [mail.to for mail in mail_sink.kept] == ["jane@example.com"]
    row = post.row(kept)
    assert (row.state, row.tries, row.provider) == ("sent", 1, "smtp")
    assert row.provider_ref == f"<{kept.id}@example.com>"
    assert post.work() == 0


def test_a_mail_arrives_once_the_server_is_back_after_five_hours(post, mail_sink):
    """As in an outage of the provider: waits of 5, 15, 60 and 240 minutes, and the fifth try gets through."""
    delivery = post.mail(to="jane+rcpt_450@example.com")
    tried = []
    for wait in (5, 15, 60, 240):
        post.work()
        row = post.row(delivery)
        tried.append((row.state, row.tries))
        assert timedelta(minutes=wait - 1) < row.next_try_at - row.sending_at < timedelta(minutes=wait + 1)
        if wait == 240:
            mail_sink.healed = True
        post.kit.clock.advance(f"{wait} minutes")
    post.work()

    assert tried == [("pending", 1), ("pending", 2), ("pending", 3), ("pending", 4)]
    assert (post.state(delivery), len(mail_sink.kept)) == ("sent", 1)


def test_a_refused_mail_is_abandoned_at_once_and_told_to_somebody_else(onceward_kit, smtp, http_sink):
    post = Post(onceward_kit, email=smtp, slack=Slack({"default": http_sink.url}), alerts_to="slack:")
    delivery = post.mail(to="jane+rcpt_550@example.com")

    post.work()

    assert post.state(delivery) == "abandoned"
    (alert,) = http_sink.kept
    assert "abandoned" in alert.json["text"]
    assert str(delivery.id) in alert.json["text"]
    assert "jane" not in alert.json["text"]


def test_no_reply_to_the_final_dot_is_uncertain_and_a_person_decides(post, mail_sink):
    delivery = post.mail(to="jane+drop_after_dot__1@example.com")
    post.work()
    post.kit.clock.advance("1 day")

    assert (post.work(), post.state(delivery), len(mail_sink.kept)) == (0, "uncertain", 1)
    with pytest.raises(WrongState, match="cannot requeue delivery"):
        post.client.requeue(delivery.id)
    assert post.ledger.decide(delivery, "send_again", note="not in her inbox") == "pending"
    post.work()
    assert (post.state(delivery), len(mail_sink.kept)) == ("sent", 2)
    first, second = (mail.message["Message-ID"] for mail in mail_sink.kept)
    assert first == second


def test_a_worker_that_died_while_sending_leaves_an_uncertain_mail_and_no_second_one(post, mail_sink):
    delivery = post.mail()
    post.crash()

    post.work()

    assert (post.state(delivery), mail_sink.kept) == ("uncertain", [])
    assert "may have arrived" in post.row(delivery).message


def test_a_provider_with_an_idempotency_key_is_asked_again_after_a_crash(onceward_kit, http_sink):
    post = Post(onceward_kit, email=Resend("key", "s@example.com", http_sink.url))
    delivery = post.mail()
    post.crash()

    post.work()

    assert (post.state(delivery), len(http_sink.kept)) == ("sent", 1)
    assert http_sink.hits[0].headers["idempotency-key"] == f"onceward/{delivery.id}"


def test_once_the_provider_has_forgotten_the_key_a_person_decides(onceward_kit, http_sink):
    post = Post(onceward_kit, email=Resend("key", "s@example.com", http_sink.url))
    delivery = post.mail()
    post.crash()
    post.kit.clock.advance("23 hours")

    post.work()

    assert (post.state(delivery), http_sink.hits) == ("uncertain", [])


def test_what_one_provider_may_have_sent_is_not_sent_by_another(onceward_kit, http_sink, smtp):
    first = Post(onceward_kit, email=smtp)
    delivery = first.mail()
    first.crash()

    second = Post(onceward_kit, email=Resend("key", "s@example.com", http_sink.url))
    second.work()

    assert (second.state(delivery), http_sink.hits) == ("uncertain", [])


def test_an_unclear_answer_of_an_idempotent_provider_is_tried_again_until_it_is_clear(
    onceward_kit, http_sink
):
    post = Post(onceward_kit, email=Resend("key", "s@example.com", http_sink.url))
    delivery = post.ledger.email(to="jane@example.com", subject="#drop_after__2", text="x", key="k")
    states = []
    for _ in range(3):
        post.work()
        states.append(post.state(delivery))
        post.kit.clock.advance("1 hour")

    assert states == ["sending", "sending", "sent"]
    assert (len(http_sink.hits), len(http_sink.kept)) == (3, 1)


@pytest.mark.parametrize(
    ("verdict", "state", "arrived"),
    [("sent", "sent", 1), ("not_sent", "sent", 2), ("unknown", "uncertain", 1)],
)
def test_the_reconcile_hook_knows_what_became_of_it(onceward_kit, smtp, mail_sink, verdict, state, arrived):
    asked = []

    async def reconcile(delivery):
        asked.append((delivery.kind, delivery.key, delivery.content["to"]))
        return verdict

    post = Post(onceward_kit, email=smtp, reconcile=reconcile)
    delivery = post.mail(to="jane+drop_after_dot__1@example.com")
    post.work()
    assert post.state(delivery) == "sending"
    post.kit.clock.advance("5 minutes")
    post.work()

    assert asked == [("email", "welcome:42", "jane+drop_after_dot__1@example.com")]
    assert (post.state(delivery), len(mail_sink.kept)) == (state, arrived)


def test_a_reconcile_hook_that_fails_is_asked_again(onceward_kit, smtp, mail_sink):
    asked = []

    def reconcile(delivery):
        asked.append(1)
        if len(asked) < 3:
            raise ConnectionError("canary")
        return "sent"

    post = Post(onceward_kit, email=smtp, reconcile=reconcile)
    delivery = post.mail(to="jane+drop_after_dot__1@example.com")
    for _ in range(4):
        post.work()
        post.kit.clock.advance("5 hours")

    assert (post.state(delivery), len(mail_sink.kept), len(asked)) == ("sent", 1, 3)


def test_retry_after_is_waited_for(onceward_kit, http_sink):
    post = Post(onceward_kit, email=Outbox("unused"), slack=Slack({"default": http_sink.url}))
    delivery = post.ledger.slack(text="#s429__1", key="k")
    post.work()
    row = post.row(delivery)

    assert timedelta(seconds=115) < row.next_try_at - row.sending_at < timedelta(seconds=125)
    post.kit.clock.advance("2 minutes")
    post.work()
    assert post.state(delivery) == "sent"


def test_a_kind_without_a_provider_waits_for_a_worker_that_has_one(onceward_kit, smtp, http_sink):
    poor = Post(onceward_kit, email=smtp)
    delivery = poor.ledger.slack(text="hi", key="k")
    poor.work()
    assert (poor.state(delivery), poor.row(delivery).tries) == ("pending", 0)

    rich = Post(onceward_kit, email=smtp, slack=Slack({"default": http_sink.url}))
    onceward_kit.clock.advance("5 minutes")
    rich.work()

    assert rich.state(delivery) == "sent"


def test_a_worker_without_deliveries_leaves_the_lane_alone(onceward_kit, smtp):
    Post(onceward_kit, email=smtp).mail()

    plain = Onceward()

    assert plain.lanes == ["default"]
    assert onceward_kit.drain(plain) == 0


def test_applications_of_one_database_send_through_their_own_providers(onceward_kit, tmp_path):
    red = Post(onceward_kit, lane="red", email=Outbox(tmp_path / "red", sender="red@example.com"))
    blue = Post(onceward_kit, lane="blue", email=Outbox(tmp_path / "blue", sender="blue@example.com"))
    to_red, to_blue = red.mail(key="red"), blue.mail(key="blue")

    assert red.work() == 1
    assert (red.state(to_red), blue.state(to_blue)) == ("sent", "pending")
    assert blue.work() == 1
    assert [len(list((tmp_path / name).glob("*.eml"))) for name in ("red", "blue")] == [1, 1]


def test_an_alert_about_a_delivery_takes_the_same_lane(onceward_kit, smtp, http_sink):
    slack = Slack({"default": http_sink.url})
    post = Post(onceward_kit, lane="red", email=smtp, slack=slack, alerts_to="slack:")
    post.mail(to="jane+rcpt_550@example.com")

    assert post.work() == 2
    assert len(http_sink.kept) == 1


def test_the_sender_serves_the_common_lane(onceward_kit):
    from onceward.deliveries.sender import app

    post = Post(onceward_kit)
    sent = post.mail()

    assert onceward_kit.drain(app) == 1
    assert post.state(sent) == "sent"


def test_waits_can_be_chosen_per_kind_and_per_delivery(onceward_kit, smtp):
    post = Post(onceward_kit, email=smtp, waits={"email": [timedelta(seconds=1), timedelta(seconds=2)]})
    by_kind, own = post.mail(key="a"), post.mail(key="b", waits=[timedelta(hours=1)])

    assert post.client.job(by_kind.id).max_attempts == 3
    assert (post.client.job(own.id).max_attempts, post.client.job(own.id).retry) == (2, {"waits": [3600]})


def test_a_provider_that_raises_leaves_an_unclear_outcome_and_no_text(onceward_kit):
    class Broken:
        name, idempotent_for = "broken", None

        async def send(self, outgoing):
            raise ValueError(f"canary {outgoing.content}")

    post = Post(onceward_kit, email=Broken())
    delivery = post.mail()
    post.work()

    row = post.row(delivery)
    assert (row.state, row.message) == ("uncertain", "the provider raised ValueError")


class Slow:
    """Sends when it is allowed to."""

    name, idempotent_for = "slow", None

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    async def send(self, outgoing):
        self.begun.set()
        await asyncio.to_thread(self.go.wait, 60)
        return Sent("slow")


@pytest.mark.parametrize("ends", ["sent", "refused"])
def test_cancelling_while_it_is_being_sent_waits_for_the_outcome(onceward_kit, ends):
    slow = Slow()
    if ends == "refused":
        original = slow.send

        async def refuse(outgoing):
            await original(outgoing)
            return NotSent("refused", "no")

        slow.send = refuse
    post = Post(onceward_kit, email=slow)
    delivery = post.mail()

    async def work():
        worker = Worker(post.app, dsn=onceward_kit.dsn)
        task = asyncio.create_task(worker.drain())
        await asyncio.to_thread(slow.begun.wait, 60)
        assert await asyncio.to_thread(post.ledger.cancel, delivery) == "cancelling"
        # The worker hears of it with a heartbeat.
        while not (held := worker._hand.find(delivery.id)) or not held.cancelled:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        slow.go.set()
        await task

    asyncio.run(work())

    assert post.state(delivery) == ("sent" if ends == "sent" else "cancelled")


def test_webhooks_arrive_signed(onceward_kit, http_sink):
    post = Post(
        onceward_kit, email=Outbox("unused"), webhook=Webhooks({"default": SECRET}, allow_private=True)
    )
    delivery = post.ledger.webhook(url=f"{http_sink.url}/in?do=s503__1", payload={"n": 1}, key="k")
    post.work()
    post.kit.clock.advance("5 seconds")
    post.work()

    assert post.state(delivery) == "sent"
    first, second = http_sink.hits
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(delivery.id)


def test_setting_up_twice_is_refused(onceward_kit, smtp):
    post = Post(onceward_kit, email=smtp)

    with pytest.raises(InvalidArgument, match="set up twice"):
        Deliveries(post.app, email=smtp, environ={})
    assert post.app.lanes == [LANE]
    assert TASK in post.app.tasks


def test_a_hanging_server_does_not_hang_the_worker(onceward_kit, smtp):
    post = Post(onceward_kit, email=replace(smtp, timeout=SHORT))
    delivery = post.mail(to="jane+hang_rcpt__1@example.com")

    post.work()

    assert (post.state(delivery), post.row(delivery).category) == ("pending", "connection")
    assert MAIL["subject"] not in str(post.row(delivery))
