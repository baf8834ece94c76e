"""`onceward monitor`, `alert`, `channel`, `retention` and `legal-hold`."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from tests.support.watch import Watch


@pytest.fixture
def alert(db):
    """An open alert about dead letters of a tenant."""
    db.dead_letter(tenant="acme")
    Watch(db).run("dead_letters")
    (found,) = Watch(db).alerts()
    return found


# ---------------------------------------------------------------- monitors


def test_list_shows_every_monitor_with_its_status(cli, db, alert):
    db.call("disable_monitor", name="bloat")

    lines = {line.split()[0]: line for line in cli.ok("monitor", "list").out.splitlines()}

    assert len(lines) == 19
    assert lines["dead_letters"].split()[1] == "firing"
    assert lines["bloat"].split()[1] == "disabled"
    assert {row["name"]: row["last_status"] for row in cli.json("monitor", "list")}[
        "dead_letters"
    ] == "firing"


def test_show_tells_thresholds_alerts_and_runs(cli, db, alert):
    out = cli.ok("monitor", "show", "dead_letters").out

    for fragment in (
        "warning_count",
        "critical_count",
        "1 dead letter of task ocr: ValueError",
        "firing",
        "4h",
    ):
        assert fragment in out
    shown = cli.json("monitor", "show", "dead_letters", "--runs", "1")
    assert {bound["name"]: bound["value"] for bound in shown["thresholds"]} == {
        "warning_count": 1,
        "critical_count": 100,
    }
    assert shown["runs"][0]["status"] == "firing"
    assert shown["alerts"][0]["id"] == str(alert.id)


def test_run_prints_the_status_and_what_fires(cli, db):
    assert cli.ok("monitor", "run", "dead_letters").out == "ok\n"
    db.dead_letter()

    answer = cli.ok("monitor", "run", "dead_letters")
    assert (answer.out, answer.err) == ("firing\n", "warning: 1 dead letter of task ocr: ValueError\n")
    assert cli.json("monitor", "run", "dead_letters")["findings"] == 1


def test_run_ends_with_1_when_the_check_itself_fails(cli, db):
    Watch(db).probe()
    db.run("drop function app.probe(jsonb)")

    answer = cli("monitor", "run", "probe")

    assert (answer.status, answer.out) == (1, "error\n")
    assert "42883" in answer.err


def test_run_of_a_python_monitor_asks_for_it(cli, db):
    db.run("""select onceward.declare_monitors('shop', '[{"name": "stock"}]')""")

    assert "a worker that knows it runs it soon" in cli.ok("monitor", "run", "stock").err


@pytest.mark.parametrize(
    ("monitor", "text", "value"),
    [
        ("ready_age", "warning_age=10m", 600),
        ("ready_age", "warning_age=90", 90),
        ("ready_age", "warning_age=off", None),
        ("dead_letters", "warning_count=5", 5),
        ("failure_rate", "warning_share=20%", 0.2),
        ("failure_rate", "warning_share=0.2", 0.2),
        ("disk", "bound=50GB", 50 * 10**9),
        ("disk", "bound=2GiB", 2 * 2**30),
    ],
)
def test_set_reads_thresholds_in_their_units(cli, db, monitor, text, value):
    name = text.partition("=")[0]

    cli.ok("monitor", "set", monitor, text)

    stored = db.value("select value from onceward.thresholds where monitor = %s and name = %s", monitor, name)
    assert (stored if stored is None else float(stored)) == value
    cli.ok("monitor", "set", monitor, f"{name}=default")
    assert (
        db.value(
            "select value is not distinct from default_value from onceward.thresholds where monitor = %s and name = %s",
            monitor,
            name,
        )
        is True
    )


def test_set_passes_every_setting_on(cli, db):
    cli.ok("channel", "add", "ops", "slack")
    cli.ok(
        "monitor", "set", "stuck", "--every", "5m", "--severity", "critical", "--hold-for", "1m", "--clear-after", "2m",
        "--remind-every", "1h", "--timeout", "10s", "--errors-allowed", "5", "--channels", "ops",
    )  # fmt: skip

    (row,) = [row for row in cli.json("monitor", "list") if row["name"] == "stuck"]
    assert [row[key] for key in ("every", "severity", "hold_for", "clear_after", "remind_every", "timeout")] == [
        300, "critical", 60, 120, 3600, 10,
    ]  # fmt: skip
    assert (row["errors_allowed"], row["channels"]) == (5, ["ops"])
    cli.ok("monitor", "set", "stuck", "--channels", "all", "--remind-every", "0s")
    (row,) = [row for row in cli.json("monitor", "list") if row["name"] == "stuck"]
    assert (row["channels"], row["remind_every"]) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["set", "ready_age"], 2, "nothing to set"),
        (["set", "ready_age", "warning_age"], 2, "threshold must be NAME=VALUE"),
        (["set", "ready_age", "warnin_age=1"], 2, 'Did you mean "warning_age"?'),
        (["set", "ready_age", "warning_age=soon"], 2, "warning_age must be a duration"),
        (["set", "dead_letters", "warning_count=5m"], 2, "warning_count must be a number of count"),
        (["set", "disk", "bound=5m"], 2, "bound must be a number of bytes"),
        (["set", "ready_age", "--severity", "warn"], 2, 'Did you mean "warning"?'),
        (["set", "ready_age", "--channels", "nobody"], 1, 'channel "nobody" does not exist'),
        (["set", "rady_age", "--every", "5m"], 1, 'Did you mean "ready_age"?'),
        (["show", "rady_age"], 1, 'Did you mean "ready_age"?'),
        (["run", "rady_age"], 1, 'monitor "rady_age" does not exist'),
        (["drop", "stuck"], 1, "must not be a built-in one"),
    ],
)
def test_bad_input_is_explained(cli, db, arguments, status, fragment):
    assert fragment in cli.refused(status, "monitor", *arguments)


def test_enable_disable_and_drop(cli, db):
    Watch(db).probe()
    for word, again in (("disable", "was disabled already"), ("enable", "was enabled already")):
        assert f"is {word}d" in cli.ok("monitor", word, "probe").err
        assert again in cli.ok("monitor", word, "probe").err
    assert "is gone" in cli.ok("monitor", "drop", "probe").err


# ---------------------------------------------------------------- alerts


def test_alerts_are_listed_shown_acknowledged_and_closed(cli, db, alert):
    line = cli.ok("alert", "list").out.splitlines()[1]
    assert line.split()[:4] == [str(alert.id), "open", "warning", "dead_letters"]
    shown = cli.ok("alert", "show", alert.id)
    assert "1 dead letter of task ocr: ValueError" in shown.out
    assert 'runbook.md under "dead_letters"' in shown.err

    assert cli.ok("alert", "ack", alert.id, "--note", "on it").out == f"{alert.id} acknowledged\n"
    assert "on it" in cli.ok("alert", "show", alert.id).out
    assert cli.ok("alert", "close", alert.id, "--note", "mended").out == f"{alert.id} closed\n"
    assert "no alerts" in cli.ok("alert", "list").err
    (closed,) = cli.json("alert", "list", "--all", "--monitor", "dead_letters")
    assert (closed["state"], closed["close_note"], closed["value"]) == ("closed", "mended", 1)


def test_an_alert_that_nobody_could_be_told_of_says_so(cli, db, alert):
    shown = cli.ok("alert", "show", alert.id)
    assert "no, there is no channel for it" in shown.out
    assert 'hint: Add a channel with "onceward channel add"' in shown.err
    assert cli.json("alert", "list")[0]["has_channel"] is False

    Watch(db).channel()
    Watch(db).run("dead_letters")
    assert "no channel" not in cli.ok("alert", "show", alert.id).out
    assert cli.json("alert", "list")[0]["notified"] is True


def test_alerts_of_one_tenant(cli, db, alert):
    assert len(cli.json("--tenant", "acme", "alert", "list")) == 1
    assert cli.json("--tenant", "globex", "alert", "list") == []
    assert "does not exist" in cli.refused(1, "alert", "show", uuid4())
    assert "alert id must be a UUID" in cli.refused(2, "alert", "show", "7")


def test_silences_are_made_listed_and_ended(cli, db, alert):
    silence = UUID(cli.ok("alert", "silence", alert.id, "--for", "2h", "--reason", "we know").out.strip())
    assert cli.json("alert", "list")[0]["silenced_until"] is not None
    assert f"alert {alert.id}" in cli.ok("alert", "silences").out
    assert "is over" in cli.ok("alert", "unsilence", silence).err
    assert "was over already" in cli.ok("alert", "unsilence", silence).err
    assert cli.json("alert", "silences") == []
    assert len(cli.json("alert", "silences", "--all")) == 1
    made = cli.json(
        "alert", "silence", "--monitor", "stuck", "--for", "1h", "--reason", "x", "--tenant", "acme"
    )
    assert set(made) == {"id", "until"}
    assert db.one("select monitor, tenant from onceward.silences where active") == ("stuck", "acme")
    assert "which alerts?" in cli.refused(2, "alert", "silence", "--for", "1h", "--reason", "x")
    cli.ok("alert", "silence", "--all", "--for", "1h", "--reason", "x")


# ---------------------------------------------------------------- channels


def test_channels_are_added_listed_tested_and_dropped(cli, db):
    assert "nobody is told" in cli.ok("channel", "list").err
    assert 'channel "mail" is added' in cli.ok("channel", "add", "mail", "email", "ops@example.com").err
    cli.ok("channel", "add", "chat", "telegram", "42", "--severity", "critical")
    cli.ok(
        "channel",
        "add",
        "hook",
        "webhook",
        "https://example.com/x",
        "--target",
        '{"secret": "0123456789abcdef"}',
    )
    assert "is changed" in cli.ok("channel", "add", "mail", "email", "other@example.com").err

    listed = cli.ok("channel", "list")
    assert "example.com" not in listed.out
    assert [row["name"] for row in cli.json("channel", "list")] == ["chat", "hook", "mail"]
    delivery = cli.ok("channel", "test", "mail").out.strip()
    assert db.value("select kind from onceward.deliveries where id = %s", delivery) == "email"
    assert "is gone" in cli.ok("channel", "drop", "mail").err
    assert 'channel "mail" does not exist' in cli.refused(1, "channel", "drop", "mail")


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["mail", "emial", "a@b"], 2, 'Did you mean "email"?'),
        (["mail", "email", "nobody"], 1, "error: ADDRESS must be one address"),
        (["mail", "email"], 1, "error: ADDRESS is missing"),
        (["mail", "slack", "--severity", "bad"], 2, "--severity must be one of"),
        (["mail", "slack", "--target", "[]"], 2, "--target must be a JSON object, not an array"),
    ],
)
def test_a_bad_channel_is_refused(cli, db, arguments, status, fragment):
    assert fragment in cli.refused(status, "channel", "add", *arguments)
    assert cli.json("channel", "list") == []


# ---------------------------------------------------------------- retention and holds


def test_retention_is_shown_set_and_run(cli, db):
    db.call("ensure_partitions", days_ahead=14)
    db.done()
    assert len(cli.json("retention", "show")) == 19
    assert "archive" in cli.ok("retention", "show").out
    assert "kept for 10d" in cli.ok("retention", "set", "archive", "10d").err
    db.clock.advance("30 days")

    assert "1 row would go" in cli.ok("retention", "run", "archive", "--dry-run").err
    assert "there is more" in cli.ok("retention", "run", "archive", "--dry-run").err
    assert db.value("select count(*) from onceward.jobs") == 1
    (removed,) = cli.json("retention", "run", "archive")
    # All of it, though one call takes a part.
    assert (removed["row_count"], len(removed["partitions"]), removed["more"]) == (1, 16, False)
    assert "0 rows removed" in cli.ok("retention", "run").err
    cli.ok("retention", "set", "archive", "forever")
    assert "for ever" in cli.ok("retention", "show").out


@pytest.mark.parametrize(
    ("arguments", "status", "fragment"),
    [
        (["set", "archve", "10d"], 2, 'Did you mean "archive"?'),
        (["set", "archive", "soon"], 2, "KEEP must be a duration"),
        (["set", "archive", "1h"], 1, "keep must be between 1 day"),
        (["run", "jobs"], 2, "KIND must be one of"),
    ],
)
def test_bad_retention_is_refused(cli, db, arguments, status, fragment):
    assert fragment in cli.refused(status, "retention", *arguments)


def test_holds_are_added_listed_and_released(cli, db):
    assert "no legal holds" in cli.ok("legal-hold", "list").err
    assert 'tenant "acme" is held' in cli.ok("legal-hold", "add", "acme", "--reason", "case 7").err
    assert "already, for this reason" in cli.ok("legal-hold", "add", "acme", "--reason", "case 7").err
    refused = cli.refused(1, "legal-hold", "add", "acme", "--reason", "case 8")
    assert 'tenant "acme" was held already; the reason was not recorded' in refused
    assert ": case 7" in refused
    assert "one hold" in refused
    assert "case 7" in cli.ok("legal-hold", "list").out
    assert "is released" in cli.ok("legal-hold", "release", "acme", "--reason", "over").err
    assert "was not held" in cli.ok("legal-hold", "release", "acme", "--reason", "over").err
    assert cli.json("legal-hold", "list") == []
    (hold,) = cli.json("legal-hold", "list", "--all")
    assert (hold["tenant"], hold["release_reason"]) == ("acme", "over")
