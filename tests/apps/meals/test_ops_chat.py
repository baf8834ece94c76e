"""The chat of ops: it hears of alerts through a channel of the engine, which the settings declare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onceward import Onceward
from onceward.deliveries import Deliveries, Telegram
from tests.apps.meals.place import SETTINGS, Place

pytestmark = pytest.mark.slow
CHANNELS = "select name, kind, tenant, severity from onceward.channels"


@pytest.fixture
def sender(place):
    """What serves the lane of alerts: `onceward.deliveries.sender`, with the local Telegram."""
    app = Onceward(place.kit.dsn, name="sender")
    Deliveries(app, telegram=Telegram("1:bot", place.chat_sink.url), environ={})
    return app


def told(place) -> list[tuple[str, str]]:
    return [(hit.json["chat_id"], hit.json["text"].partition("\n")[0]) for hit in place.chat_sink.kept]


def monitor(place, name: str) -> str:
    return place.value("select status from onceward.run_monitor(%s)", name)


def test_alerts_of_meals_reach_the_chat_and_so_does_their_end(place, sender):
    assert place.rows(CHANNELS) == [("meals-ops", "telegram", "meals", "warning")]
    place.customer()
    monitor(place, "meals_service")
    place.clock.advance("30 minutes")
    assert monitor(place, "meals_service") == "firing"
    monitor(place, "meals_service")
    place.kit.drain(sender)
    what = "customers who eat today and have no QR code:"
    assert told(place) == [("-100", f"[critical] meals_service: {what} 1")]

    place.cron("issue-qr")
    assert monitor(place, "meals_service") == "ok"
    place.kit.drain(sender)
    assert told(place)[1:] == [("-100", f"[closed] meals_service: {what} 1")]


def test_an_abandoned_email_is_told_at_once_and_is_an_alert_until_somebody_decides(place, sender):
    place.customer("Joe", email="joe+rcpt_550@example.com")
    place.cron("issue-qr")
    place.work()
    assert [text.rpartition(" ")[0] for _, text in told(place)] == ["Delivery abandoned: email"]

    for name in ("delivery_trouble", "meals_emails"):
        assert monitor(place, name) == "firing"
    place.kit.drain(sender)
    assert sorted(text for _, text in told(place)[1:]) == [
        "[warning] delivery_trouble: 1 delivery (email) given up",
        "[warning] meals_emails: Abandoned rate of the email retries is 100.00 %, threshold 1 %",
        "[warning] meals_emails: Retry success rate of the email retries is 0.00 %, threshold 95 %",
    ]
    assert {chat for chat, _ in told(place)} == {"-100"}
    assert "joe" not in str([hit.json for hit in place.chat_sink.kept])


def test_alerts_of_others_do_not_reach_the_chat(place, sender):
    place.rows("select onceward.enqueue('charge', '{}', p_tenant => 'shop', p_max_attempts => 1)")
    place.rows("select onceward.register_worker('w')")
    place.rows(
        "select onceward.fail(c.job_id, c.epoch, 'ValueError', 'refused')"
        " from onceward.workers as w, onceward.claim(w.id) as c where w.name = 'w'"
    )
    assert monitor(place, "dead_letters") == "firing"
    place.kit.drain(sender)
    assert told(place) == []


def test_another_chat_moves_the_channel_and_what_people_have_set_stays(place, onceward_kit):
    place.rows(
        "select onceward.add_channel('meals-ops', 'telegram', '{\"chat_id\": \"-100\"}', 'critical', 'meals')"
    )

    def start(chat: str | None) -> None:
        with Place(onceward_kit, place.mail_sink, place.chat_sink, settings=replace(SETTINGS, ops_chat=chat)):
            pass

    start("-200")
    start("-200")
    start(None)
    assert place.rows(CHANNELS) == [("meals-ops", "telegram", "meals", "critical")]
    targets = "select target ->> 'chat_id' from onceward.channel_target_private"
    assert place.rows(targets) == [("-200",)]
    # Moved once, and never silently.
    changes = "select after ->> 'target' from onceward.audit_log where kind = 'channel.changed' order by seq"
    assert place.rows(changes)[-1:] == [("another",)]
    assert len(place.rows(changes)) == 2

    # Another kind, or for all tenants: then it is no longer ours.
    for kind, target, tenant in (
        ("email", '{"to": "ops@example.com"}', "meals"),
        ("telegram", '{"chat_id": "1"}', None),
    ):
        place.rows("select onceward.drop_channel('meals-ops')")
        place.rows(
            "select onceward.add_channel('meals-ops', %s, %s::jsonb, 'info', %s)", kind, target, tenant
        )
        start("-200")
        assert place.rows(CHANNELS) == [("meals-ops", kind, tenant, "info")]


def test_without_the_setting_there_is_no_channel(onceward_kit, mail_sink, chat_sink):
    with Place(onceward_kit, mail_sink, chat_sink, settings=replace(SETTINGS, ops_chat=None)) as place:
        assert place.rows(CHANNELS) == []
