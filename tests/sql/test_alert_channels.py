"""Alerts that nobody could be told of: they say so, and a channel that comes later is told."""

from __future__ import annotations

import pytest

from tests.support.ledger import Ledger
from tests.support.watch import Watch

DISK = {"key": "disk"}


@pytest.fixture
def watch(db):
    return Watch(db)


def test_an_alert_that_nobody_could_be_told_of_says_so_and_is_told_once_a_channel_is_there(db, watch):
    watch.probe()
    watch.look(DISK)
    watch.look(DISK)
    (alert,) = watch.alerts()
    assert (alert.notified, alert.has_channel, watch.told()) == (False, False, [])

    watch.channel()
    (alert,) = watch.alerts()
    assert (alert.notified, alert.has_channel) == (False, True)
    watch.look(DISK)
    watch.look(DISK)
    (alert,) = watch.alerts()
    assert (alert.notified, watch.told()) == (True, [("opened", "ops")])

    # Somebody knows of it: the next channel hears what comes.
    watch.channel("late")
    watch.look(DISK)
    assert watch.told() == [("opened", "ops")]
    watch.look()
    assert sorted(watch.told()[1:]) == [("closed", "late"), ("closed", "ops")]


def test_a_channel_that_comes_to_cover_an_alert_is_told_of_it(db, watch):
    watch.channel(severity="critical")
    watch.probe()
    watch.look(DISK)
    assert [alert.has_channel for alert in watch.alerts()] == [False]

    watch.channel(severity="warning")
    watch.look(DISK)
    assert watch.told() == [("opened", "ops")]


def test_what_got_worse_is_told_first_when_nobody_knew_of_it(watch):
    watch.channel(severity="critical")
    watch.probe()
    for severity in ("warning", "critical", "warning", "critical"):
        watch.look({**DISK, "severity": severity})

    assert watch.told() == [("opened", "ops")]


def test_what_is_acknowledged_or_silenced_is_not_told_to_a_new_channel(db, watch):
    watch.probe()
    watch.look(DISK, {"key": "quiet"})
    disk, quiet = sorted(watch.alerts(), key=lambda alert: alert.key)
    db.answer("ack_alert", alert_id=disk.id, note="on it")
    db.run("select onceward.silence_alerts(onceward.now() + interval '1 hour', 'noise', %s)", quiet.id)
    watch.channel()
    watch.look(DISK, {"key": "quiet"})
    assert watch.told() == []

    # Worse than what was acknowledged is told; the silence ends.
    watch.look({**DISK, "severity": "critical"}, {"key": "quiet"})
    assert watch.told() == [("raised to critical", "ops")]
    db.clock.advance("1 hour")
    watch.look({**DISK, "severity": "critical"}, {"key": "quiet"})
    assert watch.told()[1:] == [("opened", "ops")]


def test_a_reminder_that_nobody_hears_does_not_count(db, watch):
    watch.channel()
    watch.probe(remind_every="1 hour")
    watch.look(DISK)
    db.call("drop_channel", name="ops")
    for _ in range(3):
        db.clock.advance("1 hour")
        watch.look(DISK)
    assert [alert.reminders for alert in watch.alerts()] == [0]

    watch.channel("new")
    watch.look(DISK)
    watch.look(DISK)
    assert [alert.reminders for alert in watch.alerts()] == [1]
    assert watch.told() == [("opened", "ops"), ("reminder 1", "new")]


def test_a_rise_that_nobody_could_be_told_of_is_known_to_whoever_acknowledges_it(db, watch):
    watch.channel()
    watch.probe()
    watch.look(DISK)
    db.call("drop_channel", name="ops")
    watch.look({**DISK, "severity": "critical"})
    (alert,) = watch.alerts()
    db.answer("ack_alert", alert_id=alert.id)
    watch.channel("new")
    watch.look({**DISK, "severity": "critical"})

    assert watch.told() == [("opened", "ops")]


def test_who_sees_an_alert_sees_whether_there_is_a_channel_for_it_and_nobody_else(db, watch):
    watch.channel("everybody")
    watch.probe()
    watch.look({**DISK, "tenant": "acme"}, {**DISK, "tenant": "globex"})
    ids = {alert.tenant: alert.id for alert in watch.alerts()}

    acme = db.on(db.connect(role="onceward_operator", tenant="acme"))
    assert [row.has_channel for row in acme.run("select has_channel from onceward.alerts")] == [True]
    assert acme.value("select onceward.has_channel(%s)", ids["globex"]) is None


# ---------------------------------------------------------------- kinds that no worker can send


def test_kinds_that_were_put_off_for_want_of_a_provider_are_told_with_the_last_one(db):
    ledger = Ledger(db)
    made = [ledger.deliver(f"k{n}", {"text": "x"}, "slack", tenant="acme").delivery_id for n in range(3)]
    mail = ledger.deliver("mail").delivery_id
    why = {mail: "the line is busy"} | dict.fromkeys(made, "this worker has no provider for slack; set X")
    for _ in range(4):
        claim = ledger.claim()
        db.snooze(claim, "5 min", reason=why[claim.job_id], counted=False)

    assert [tuple(row) for row in db.call("unsent_kinds")] == [
        ("slack", "the worker that took it has no provider for slack; set X", 3, made[-1])
    ]
    for tenant, count in (("acme", 1), ("globex", 0), ("*", 1)):
        seen = db.on(db.connect(role="onceward_operator", tenant=tenant))
        assert len(seen.call("unsent_kinds")) == count
    # A worker that has one has taken it.
    db.clock.advance("5 min")
    db.call("promote")
    for _ in range(4):
        claim = ledger.claim()
        ledger.begin(claim)
        ledger.settle(claim, "sent")
    assert db.call("unsent_kinds") == []
