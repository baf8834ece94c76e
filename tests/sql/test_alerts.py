"""Alerts: opened once, updated, told once, reminded, acknowledged, silenced, closed by themselves."""

from __future__ import annotations

import pytest

from tests.support.engine import refused
from tests.support.ledger import Ledger
from tests.support.races import Rival
from tests.support.watch import Watch

DISK = {"key": "disk"}


@pytest.fixture
def watch(db):
    return Watch(db)


# ---------------------------------------------------------------- a condition and its alert


def test_a_thousand_equal_failures_are_one_alert_and_one_message_per_channel(db, watch):
    watch.channel("ops")
    watch.channel("mail", "email", {"to": "ops@example.com"})
    db.enqueue_many(payloads=[{"n": n} for n in range(1000)], max_attempts=1)
    for claim in db.claims(1000):
        db.fail(claim, f"order {claim.job_id} is wrong")

    for _ in range(3):
        assert watch.run("dead_letters") == "firing"
        db.clock.advance("1 minute")

    (alert,) = watch.alerts("dead_letters")
    assert (alert.value, alert.seen, alert.severity, alert.state) == (1000, 3, "critical", "open")
    assert watch.told() == [("opened", "mail"), ("opened", "ops")]


def test_an_alert_is_updated_while_it_lasts_and_closed_when_it_is_over(db, watch):
    watch.channel()
    watch.probe()
    assert watch.look({**DISK, "value": 1}) == "firing"
    db.clock.advance("1 minute")
    assert watch.look({**DISK, "value": 2, "summary": "fuller"}) == "firing"
    (alert,) = watch.alerts()
    assert (alert.value, alert.summary, alert.seen) == (2, "fuller", 2)
    assert (alert.last_seen_at - alert.first_seen_at).total_seconds() == 60

    assert watch.look() == "ok"

    assert watch.alerts() == []
    (alert,) = watch.alerts(closed=True)
    assert (alert.state, alert.closed_by, alert.close_note) == ("closed", "onceward", "the check passes")
    assert watch.told() == [("opened", "ops"), ("closed", "ops")]


def test_a_condition_that_comes_back_is_a_new_episode(watch):
    watch.channel()
    watch.probe()
    for finding in ([DISK], [], [DISK], []):
        watch.look(*finding)

    assert len({alert.id for alert in watch.alerts(closed=True)}) == 2
    assert watch.told() == [("opened", "ops"), ("closed", "ops")] * 2


def test_conditions_of_tenants_are_told_apart(watch):
    watch.probe()
    watch.look({**DISK, "tenant": "acme"}, {**DISK, "tenant": "globex"}, DISK, {"key": "other"})

    assert {(a.tenant, a.key) for a in watch.alerts()} == {
        ("acme", "disk"), ("globex", "disk"), (None, "disk"), (None, "other"),
    }  # fmt: skip


def test_the_same_condition_twice_in_a_run_is_one_alert_with_the_worse_severity(watch):
    watch.probe()
    watch.look(DISK, {**DISK, "severity": "critical"}, {**DISK, "severity": "info"})

    assert [alert.severity for alert in watch.alerts()] == ["critical"]


def test_what_was_only_measured_is_in_the_run_and_no_alert(db, watch):
    watch.probe()

    assert watch.look({**DISK, "severity": None, "value": 7}) == "ok"
    assert watch.alerts() == []
    assert (
        db.value("select result -> 0 ->> 'value' from onceward.monitor_runs where monitor = 'probe'") == "7"
    )


# ---------------------------------------------------------------- flapping


def test_a_condition_has_to_last_before_it_is_an_alert(db, watch):
    watch.channel()
    watch.probe(hold_for="5 minutes")
    watch.look(DISK)
    db.clock.advance("4 minutes")
    watch.look(DISK)
    assert watch.alerts() == []

    db.clock.advance("1 minute")
    watch.look(DISK)
    (alert,) = watch.alerts()
    assert (alert.opened_at - alert.first_seen_at).total_seconds() == 300
    assert watch.told() == [("opened", "ops")]


def test_what_did_not_last_leaves_no_alert(db, watch):
    watch.probe(hold_for="5 minutes")
    watch.look(DISK)
    db.clock.advance("4 minutes")
    watch.look()
    db.clock.advance("2 minutes")
    watch.look(DISK)

    assert watch.alerts(closed=True) == []


def test_an_alert_is_closed_when_the_check_has_passed_for_long_enough(db, watch):
    watch.channel()
    watch.probe(clear_after="5 minutes")
    watch.look(DISK)
    for finding in ([], [DISK], []):
        db.clock.advance("3 minutes")
        watch.look(*finding)
    assert [alert.state for alert in watch.alerts()] == ["open"]

    db.clock.advance("5 minutes")
    watch.look()

    assert watch.alerts() == []
    assert watch.told() == [("opened", "ops"), ("closed", "ops")]


# ---------------------------------------------------------------- telling


def test_a_rising_severity_is_told_and_a_falling_one_is_not(watch):
    watch.channel()
    watch.probe()
    for severity in ("warning", "critical", "warning", "critical", "info"):
        watch.look({**DISK, "severity": severity})

    (alert,) = watch.alerts()
    assert (alert.severity, alert.worst) == ("info", "critical")
    assert watch.told() == [("opened", "ops"), ("raised to critical", "ops")]


def test_an_alert_that_lasts_is_reminded_of_until_somebody_looks_after_it(db, watch):
    watch.channel()
    watch.probe(remind_every="4 hours")
    watch.look(DISK)
    for _ in range(9):
        db.clock.advance("1 hour")
        watch.look(DISK)
    assert watch.told() == [("opened", "ops"), ("reminder 1", "ops"), ("reminder 2", "ops")]

    (alert,) = watch.alerts()
    assert db.answer("ack_alert", alert_id=alert.id, note="on it") is True
    assert db.answer("ack_alert", alert_id=alert.id, note="me too") is False
    db.clock.advance("1 day")
    watch.look(DISK)
    (alert,) = watch.alerts()
    assert (alert.state, alert.ack_note, alert.acked_by) == (
        "acknowledged",
        "on it",
        db.value("select session_user"),
    )
    assert len(watch.told()) == 3

    # Worse than what was acknowledged.
    watch.look({**DISK, "severity": "critical"})
    assert watch.told()[-1] == ("raised to critical", "ops")


def test_no_reminders_when_none_are_wanted(db, watch):
    watch.channel()
    watch.probe()
    watch.set("probe", remind_every="0")
    watch.look(DISK)
    db.clock.advance("100 days")
    watch.look(DISK)

    assert watch.told() == [("opened", "ops")]


def test_a_channel_hears_of_its_severity_and_its_tenant(watch):
    watch.channel("all", severity="info")
    watch.channel("grave", severity="critical")
    watch.channel("acme", tenant="acme")
    watch.probe()
    watch.look(
        {"key": "a", "severity": "info"},
        {"key": "b", "tenant": "acme"},
        {"key": "c", "tenant": "globex", "severity": "critical"},
    )

    assert sorted(channel for _, channel in watch.told()) == ["acme", "all", "all", "all", "grave"]


def test_a_monitor_may_name_its_channels(db, watch):
    watch.channel("one")
    watch.channel("two")
    watch.probe()
    watch.set("probe", channels=["two"])
    watch.look(DISK)
    assert watch.told() == [("opened", "two")]

    with db.refused("OW040", 'channel "tow" does not exist', "one, two"):
        watch.set("probe", channels=["tow"])
    db.call("drop_channel", name="two")
    assert db.value("select channels from onceward.monitors where name = 'probe'") is None


def test_nothing_private_is_told(db, watch):
    watch.channel("slack")
    watch.channel("mail", "email", {"to": "ops@example.com"})
    watch.channel("hook", "webhook", {"url": "https://example.com/hook", "secret": "s" * 24})
    watch.channel("telegram", "telegram", {"chat_id": "42"})
    db.dead_letter(message="card of jane@example.com was refused")
    watch.probe()
    watch.look({**DISK, "detail": {"secret": "jane@example.com"}})

    watch.run("dead_letters")

    assert len(watch.texts()) == 8
    assert not [content for content in watch.texts() if "jane" in str(content)]
    hook = next(content for content in watch.texts() if "payload" in content)
    assert hook["payload"]["type"] == "onceward.alert"
    assert (hook["payload"]["event"], hook["payload"]["severity"]) == ("opened", "warning")
    assert any("1 dead letter of task ocr: ValueError" in str(content) for content in watch.texts())


def test_an_alert_and_its_messages_are_one_transaction(db, watch):
    watch.channel()
    watch.probe()
    watch.say(DISK)
    other = db.connect(autocommit=False)
    Watch(db.on(other)).run("probe")
    other.rollback()

    assert (watch.alerts(), watch.told()) == ([], [])
    watch.run("probe")
    assert (len(watch.alerts()), watch.told()) == (1, [("opened", "ops")])


def test_a_broken_channel_is_an_alert_and_no_endless_story(db, watch):
    watch.channel()
    db.dead_letter()
    watch.run("dead_letters")
    ledger = Ledger(db)
    for _ in range(5):
        for claim in db.claims(10, lanes=["deliveries"]):
            ledger.begin(claim)
            ledger.settle(claim, "abandoned")
        watch.run("delivery_trouble")

    (alert,) = watch.alerts("delivery_trouble")
    assert (alert.key, alert.tenant, alert.value) == ("abandoned slack", "onceward", 2)
    assert len(watch.told()) == 2


# ---------------------------------------------------------------- silence


@pytest.mark.parametrize("match", [{}, {"monitor": "probe"}, {"tenant": "acme"}, {"key": "disk"}, "alert"])
def test_what_is_silenced_is_recorded_and_told_when_the_silence_is_over(db, watch, match):
    watch.channel()
    watch.probe()
    if match == "alert":
        watch.set("probe", hold_for="1 second")
        watch.look({**DISK, "tenant": "acme"})
        match = {"alert_id": db.value("select id from onceward.alert_private")}
        db.clock.advance("1 second")
    until = db.value("select onceward.now() + interval '2 hours'")
    db.answer("silence_alerts", until=until, reason="we move the disk", **match)

    watch.look({**DISK, "tenant": "acme"})
    (alert,) = watch.alerts()
    assert (alert.state, alert.notified, alert.silenced_until) == ("open", False, until)
    assert watch.told() == []

    db.clock.advance("2 hours")
    watch.look({**DISK, "tenant": "acme"})
    assert watch.told() == [("opened", "ops")]


@pytest.mark.parametrize("match", [{"monitor": "disk"}, {"tenant": "globex"}, {"key": "other"}])
def test_a_silence_that_does_not_fit_changes_nothing(db, watch, match):
    watch.channel()
    watch.probe()
    db.answer(
        "silence_alerts", until=db.value("select onceward.now() + interval '2 hours'"), reason="r", **match
    )

    watch.look({**DISK, "tenant": "acme"})

    assert watch.told() == [("opened", "ops")]


def test_a_silence_can_be_ended_early(db, watch):
    watch.channel()
    watch.probe()
    silence = db.answer(
        "silence_alerts", until=db.value("select onceward.now() + interval '2 hours'"), reason="r"
    )
    watch.look(DISK)

    assert db.answer("end_silence", silence_id=silence) is True
    assert db.answer("end_silence", silence_id=silence) is False
    watch.look(DISK)
    assert watch.told() == [("opened", "ops")]


# ---------------------------------------------------------------- people


def test_an_alert_closed_by_hand_comes_back_if_its_condition_does(db, watch):
    watch.probe()
    watch.look(DISK)
    (alert,) = watch.alerts()

    assert db.answer("close_alert", alert_id=alert.id, note="false alarm") is True
    assert db.answer("close_alert", alert_id=alert.id, note="again") is False
    assert watch.alerts() == []
    watch.look(DISK)
    (again,) = watch.alerts()
    assert again.id != alert.id


def test_bad_input_is_refused(db, watch):
    nobody = db.value("select gen_random_uuid()")
    soon = db.value("select onceward.now() + interval '1 hour'")
    watch.probe()
    watch.look(DISK)
    (alert,) = watch.alerts()

    for function in ("ack_alert", "close_alert"):
        with db.refused("OW039", f"alert {nobody} does not exist"):
            db.call(function, alert_id=nobody, note="x")
    with db.refused("OW008", "note must say why"):
        db.call("close_alert", alert_id=alert.id, note=" ")
    with db.refused("OW008", "reason must say why"):
        db.call("silence_alerts", until=soon, reason=" ")
    with db.refused("OW008", "until must lie within the next year"):
        db.call("silence_alerts", until=db.now(), reason="x")
    with db.refused("OW038", 'monitor "dsk" does not exist'):
        db.call("silence_alerts", until=soon, reason="x", monitor="dsk")
    with db.refused("OW008", "must be the id of a silence"):
        db.call("end_silence", silence_id=nobody)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"name": "a b"}, "name must be 1 to 100"),
        ({"kind": "pigeon"}, "kind must be email, slack, telegram or webhook"),
        ({"severity": "high"}, "severity must be info, warning or critical"),
        ({"kind": "email", "target": {"to": "nobody"}}, "must be one address"),
        ({"kind": "webhook", "target": {"url": "ftp://x"}}, "must be an https URL"),
        ({"kind": "telegram", "target": {}}, "chat_id"),
        ({"target": {"colour": "red"}}, "colour of the content is not known"),
    ],
)
def test_a_channel_is_checked_when_it_is_added(db, watch, options, fragment):
    with db.refused("OW008", fragment):
        db.call("add_channel", **{"name": "c", "kind": "slack", "target": {"to": "ops"}, **options})


def test_a_channel_is_tested_changed_and_dropped(db, watch):
    assert watch.channel("ops") is True
    assert watch.channel("ops", severity="critical") is False

    delivery = db.answer("test_channel", name="ops")

    assert db.value("select is_alert from onceward.deliveries where id = %s", delivery) is True
    assert "test of channel ops" in watch.texts()[0]["text"]
    db.call("drop_channel", name="ops")
    for function in ("drop_channel", "test_channel"):
        with db.refused("OW040", 'channel "ops" does not exist'):
            db.call(function, name="ops")


def test_somebody_of_a_tenant_acts_on_that_tenants_alerts_only(db, watch):
    watch.channel("global")
    watch.probe()
    watch.look({**DISK, "tenant": "acme"}, {**DISK, "tenant": "globex"}, DISK)
    ids = {alert.tenant: alert.id for alert in watch.alerts()}
    acme = db.on(db.connect(role="onceward_operator", tenant="acme"))

    assert [alert.tenant for alert in Watch(acme).alerts()] == ["acme"]
    assert acme.run("select * from onceward.monitor_runs") == []
    assert acme.run("select * from onceward.channels") == []
    assert acme.answer("ack_alert", alert_id=ids["acme"]) is True
    for tenant in ("globex", None):
        with refused("OW011"):
            acme.answer("ack_alert", alert_id=ids[tenant])
        with refused("OW011"):
            acme.answer("close_alert", alert_id=ids[tenant], note="x")
    for function in ("drop_channel", "test_channel"):
        with refused("OW011"):
            acme.call(function, name="global")
    with refused("OW011"):
        Watch(acme).channel("global")
    # What it adds and silences is its own.
    Watch(acme).channel("mine")
    acme.answer("silence_alerts", until=acme.value("select onceward.now() + interval '1 hour'"), reason="x")
    assert db.value("select tenant from onceward.channels where name = 'mine'") == "acme"
    assert db.value("select tenant from onceward.silences") == "acme"
    with refused("OW011"):
        acme.call(
            "silence_alerts",
            until=acme.value("select onceward.now() + interval '1 hour'"),
            reason="x",
            tenant="globex",
        )


# ---------------------------------------------------------------- deliveries have one notion of alert


def test_a_bad_end_of_a_delivery_is_an_alert_beside_the_message_about_it(db, watch):
    """`alerts_to` tells of that one delivery, at once; the alert is about the condition, and lasts."""
    ledger = Ledger(db)
    for n in range(3):
        claim = ledger.begun(
            key=f"k{n}", alerts_to={"kind": "slack", "content": {"to": "ops"}}, tenant="acme"
        )
        ledger.settle(claim, "uncertain")
        for notice in db.claims(1, lanes=["deliveries"]):
            ledger.begin(notice)
            ledger.settle(notice, "sent")

    watch.run("delivery_trouble")

    (alert,) = watch.alerts("delivery_trouble")
    assert (alert.tenant, alert.key, alert.value) == ("acme", "uncertain email", 3)


# ---------------------------------------------------------------- at once


@pytest.mark.race
def test_two_who_check_at_once_make_one_run(db, watch):
    db.worker("a")
    first, second = db.connect(autocommit=False), db.connect()
    begun = [run.monitor for run in db.on(first).call("begin_checks", limit=100)]

    assert len(begun) == 18
    assert db.on(second).call("begin_checks", limit=100) == []
    first.commit()
    assert db.on(second).call("begin_checks", limit=100) == []
    assert db.value("select count(*) from onceward.monitor_runs") == 18


@pytest.mark.race
def test_the_end_of_a_run_waits_for_whoever_changes_its_monitor(db, watch):
    watch.probe()
    watch.say(DISK)
    (run,) = [r for r in db.call("begin_checks", limit=100) if r.monitor == "probe"]
    person = db.connect(autocommit=False)
    Watch(db.on(person)).set("probe", hold_for="1 hour")
    ending = Rival(db, lambda checker: checker.answer("run_check", run_id=run.run_id)).blocked()
    person.commit()

    assert ending.answer() == "firing"
    assert watch.alerts() == []
