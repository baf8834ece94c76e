"""Pages of alerts, monitors and channels."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from tests.support.watch import Watch


@pytest.fixture
def watch(db):
    watch = Watch(db)
    watch.probe()
    return watch


def rows(text: str) -> int:
    return text.count("<tr data-line>")


def test_the_worst_open_alert_stands_first_and_history_after(ana, watch):
    watch.look({"key": "old"})
    watch.look({"key": "small"}, {"key": "big", "severity": "critical"})
    text = ana.get("/alerts")

    assert text.index("big is wrong") < text.index("small is wrong") < text.index("old is wrong")
    assert 'data-live="count">3<' in text
    assert rows(ana.get("/alerts?state=closed")) == 1
    assert rows(ana.get("/alerts?severity=critical&state=open")) == 1
    assert rows(ana.get("/alerts?monitor=other")) == 0
    assert '<span class="badge">2' in text
    overview = ana.get("/")
    assert overview.index("big is wrong.") < overview.index("small is wrong.")


def test_history_is_paged_without_gap_or_repetition(ana, watch):
    watch.look(*({"key": f"k{n:02}"} for n in range(60)))
    watch.look()
    seen, path = [], "/alerts?state=closed"
    while path:
        text = ana.get(path)
        seen += re.findall(r">(k\d\d) is wrong<", text)
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = following[1].replace("&amp;", "&") if following else None
    assert len(seen) == len(set(seen)) == 60


def test_an_alert_is_acknowledged_silenced_and_closed(ana, db, watch):
    watch.look({"key": "disk"})
    (alert,) = watch.alerts()
    page = f"/alerts/{alert.id}"

    ana.post(f"{page}/acknowledge", note="on it")
    assert (watch.alerts()[0].acked_by, watch.alerts()[0].ack_note) == ("ana", "on it")
    ana.post(f"{page}/silence", 400, duration="1h")
    ana.post(f"{page}/silence", 400, duration="a while", reason="works")
    ana.post(f"{page}/silence", duration="1h", reason="works")
    assert watch.alerts()[0].silenced_until == db.now() + timedelta(hours=1)
    # The toast takes it back.
    undo = re.search(r'action="(/alerts/silences/[^"]+/end)"', ana.get(page))[1]
    assert "works" in ana.get("/alerts/silences")
    ana.post(undo)
    assert watch.alerts()[0].silenced_until is None
    ana.post(f"{page}/silence", duration="1h", reason="works", what="monitor")
    assert db.one("select * from onceward.silences where active").monitor == "probe"
    ana.post(f"{page}/close", 400)
    ana.post(f"{page}/close", note="mended")
    (closed,) = watch.alerts(closed=True)
    assert (closed.state, closed.closed_by, closed.close_note) == ("closed", "ana", "mended")
    assert "mended" in ana.get(page)
    ana.get("/alerts/7", 404)
    ana.get("/alerts/01890a5d-ac96-774b-bcce-b302099a8057", 404)


def told(text: str) -> str:
    return re.sub("<[^>]+>", "", re.search(r"<dt>Told</dt><dd>(.*?)</dd>", text)[1])


def test_an_alert_without_a_channel_says_that_nobody_is_told(ana, watch):
    watch.look({"key": "disk"})
    (alert,) = watch.alerts()
    assert told(ana.get(f"/alerts/{alert.id}")) == "no, there is no channel for it. Channels"
    assert "Nobody is told of 1 alert: there is no channel for it." in ana.get("/alerts")

    watch.channel()
    assert told(ana.get(f"/alerts/{alert.id}")) == "not yet, at the next run of its monitor"
    assert "Nobody is told" not in ana.get("/alerts")
    watch.look({"key": "disk"})
    assert told(ana.get(f"/alerts/{alert.id}")) == "yes"


def test_a_monitor_is_run_set_and_switched_off_and_on(ana, db, watch):
    page = "/monitors/of/dead_letters"
    bounds = {
        row.name: row for row in db.run("select * from onceward.thresholds where monitor = 'dead_letters'")
    }
    name = next(name for name, bound in bounds.items() if bound.unit == "count")

    ana.post("/monitors/run/dead_letters")
    assert db.one("select * from onceward.monitor_runs where monitor = 'dead_letters'").status == "ok"
    ana.post("/monitors/set/dead_letters", 400, **{f"t-{name}": "many"})
    ana.post(
        "/monitors/set/dead_letters", **{f"t-{name}": "7"}, every="2m", hold_for="0s", severity="critical"
    )
    row = db.one("select * from onceward.monitors where name = 'dead_letters'")
    assert (row.every, row.severity, row.set_by) == (timedelta(minutes=2), "critical", "ana")
    assert (
        db.value("select value from onceward.thresholds where monitor = 'dead_letters' and name = %s", name)
        == 7
    )
    assert 'value="7"' in ana.get(page)
    ana.post("/monitors/disable/dead_letters")
    assert "It is off." in ana.get(page)
    assert rows(ana.get("/monitors?state=disabled")) == 1
    ana.post("/monitors/enable/dead_letters")
    assert db.value("select enabled from onceward.monitors where name = 'dead_letters'")
    ana.get("/monitors/of/nothing", 404)


def test_a_form_of_a_monitor_that_is_sent_as_shown_sets_nothing(ana, db):
    before = db.contents()["threshold_private"]
    text = ana.get("/monitors/of/dead_letters")
    shown = dict(
        re.findall(
            r'name="(t-\w+|every|hold_for|clear_after|remind_every|timeout)"[^>]* value="([^"]*)"', text
        )
    )

    assert len(shown) > 5
    ana.post("/monitors/set/dead_letters", **shown)
    assert db.contents()["threshold_private"] == before


def test_runs_of_a_monitor_are_paged(ana, db, watch):
    for n in range(30):
        db.clock.advance(timedelta(minutes=1))
        watch.look(*({"key": f"k{k}"} for k in range(n % 3)))
    text = ana.get("/monitors/of/probe")
    following = re.search(r'href="([^"]+)" rel="next"', text)[1].replace("&amp;", "&")

    assert 'class="spark"' in text
    assert text.count("<tr><td>") == 25
    assert ana.get(following).count("<tr><td>") == 5
    assert ana.get("/monitors/runs/probe").count("\n") >= 31


def test_a_channel_is_added_tried_and_removed_and_its_address_is_not_shown(ana, db):
    assert (
        'id="e-address"'
        in ana.post("/channels", 400, name="ops", kind="email", address="nobody", severity="warning").text
    )
    ana.post("/channels", name="ops", kind="email", address="ops@example.com", severity="warning")
    text = ana.get("/channels")
    assert "ops" in text
    assert "ops@example.com" not in text
    place = ana.post("/channels/ops/test").headers["location"]
    assert "ops@example.com" in ana.get(place)
    ana.post("/channels/ops/drop")
    assert db.run("select * from onceward.channels") == []
    ana.post("/channels/ops/test", 404)


def test_viewers_see_no_actions_and_tenants_see_their_own(site, db, watch):
    watch.look({"key": "mine", "tenant": "acme"}, {"key": "theirs", "tenant": "bolt"})
    mine, theirs = sorted(watch.alerts(), key=lambda alert: alert.key)
    viewer, bound = site.signed_in("vic", "viewer"), site.signed_in("otto", "operator", "acme")

    for path in ("/alerts", f"/alerts/{mine.id}", "/monitors/of/probe", "/channels", "/alerts/silences"):
        assert 'method="post" action="/alerts' not in viewer.get(path)
        assert 'method="post" action="/monitors' not in viewer.get(path)
        assert 'method="post" action="/channels' not in viewer.get(path)
    text = bound.get("/alerts")
    assert "mine is wrong" in text
    assert "theirs" not in text
    bound.get(f"/alerts/{theirs.id}", 404)
    bound.post(f"/alerts/{mine.id}/acknowledge")
    assert bound.http.post(f"/alerts/{theirs.id}/acknowledge", data={"csrf": bound.csrf}).status_code == 404
    bound.post("/monitors/disable/probe", 403)
    assert "theirs" not in bound.get("/monitors/of/probe")
