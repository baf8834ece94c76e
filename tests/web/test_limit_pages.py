"""Pages of limits and lanes: what is left, who waits, and changing them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.support.limits import fill, limit


def rows(text: str) -> int:
    return text.count("<tr data-line>")


def test_limits_are_listed_with_their_state_and_who_waits(ana, db):
    limit(db, "openai/chat", requests=60)
    limit(db, "bank", slots=1)
    fill(db, 3, "bank")
    db.call("pause_limit", limit="bank", **{"for": "10 min"})
    text = ana.get("/limits")

    assert rows(text) == db.value("select count(*) from onceward.limits")
    assert 'data-glow="w-bank">3<' in text
    assert rows(ana.get("/limits?state=paused")) == 1
    assert rows(ana.get("/limits?name=OPENAI/")) == 1
    assert "No limit matches" in ana.get("/limits?name=nothing")
    ana.get("/limits?state=odd", 400)


def test_pages_of_limits_follow_each_other(ana, db):
    for n in range(60):
        limit(db, f"api/{n:02}", slots=1)
    first = ana.get("/limits")
    following = re.search(r'href="([^"]+)" rel="next"', first)[1].replace("&amp;", "&")

    count = db.value("select count(*) from onceward.limits")
    assert f'data-live="count">{count}<' in first
    assert (rows(first), rows(ana.get(following))) == (50, count - 50)


def test_a_limit_is_made_changed_paused_resumed_and_removed(ana, db):
    form = {"name": "open/ai", "requests": "60", "per": "1m", "tokens": "10000", "slots": "4", "threshold": "75%",
            "over": "defer"}  # fmt: skip

    assert 'id="e-per"' in ana.post("/limits/new", 400, **{**form, "per": "soon"}).text
    assert 'id="e-name"' in ana.post("/limits/new", 400, **{**form, "name": "a b"}).text
    assert "This is needed" in ana.post("/limits/new", 400, **{**form, "name": ""}).text
    mine = "select * from onceward.limits where source = 'person'"
    assert db.run(mine) == []
    place = ana.post("/limits/new", **form).headers["location"]
    row = db.one(mine)
    assert (row.requests, row.weight, row.slots, row.threshold, row.over, row.source) == (
        60, 10000, 4, 0.75, "defer", "person")  # fmt: skip
    assert place == "/limits/of/open/ai"
    assert "There is room" in ana.get(place)
    # A form that is sent as it was shown changes nothing.
    shown = dict(re.findall(r'name="(\w+)" (?:aria-\S+ )?value="([^"]*)"', ana.get("/limits/edit/open/ai")))
    ana.post(
        "/limits/edit/open/ai", **{**form, **{k: v for k, v in shown.items() if k not in {"csrf", "per_key"}}}
    )
    assert db.one(mine) == row
    ana.post("/limits/pause/open/ai", duration="10m", reason="they said so")
    assert db.one(mine).paused_until == db.now() + timedelta(minutes=10)
    assert "they said so" in ana.get(place)
    assert "Limit open/ai is paused" in ana.get("/")
    ana.post("/limits/resume/open/ai")
    ana.post("/limits/pause/open/ai", 400, duration="soon")
    assert "limit.paused" in ana.get(place)
    ana.post("/limits/drop/open/ai")
    assert db.run(mine) == []
    ana.get(place, 404)


def test_one_key_of_a_limit_is_paused_alone(ana, db):
    limit(db, "bank", slots=1, per_key=True)
    for key in ("acme", "bolt"):
        fill(db, 2, "bank", key=key)
        db.claims(1)

    ana.post("/limits/pause/bank", key="acme", duration="5m")
    paused = db.run("select key from onceward.limits where paused_until > onceward.now()")
    assert [row.key for row in paused] == ["acme"]
    assert ana.get("/limits/of/bank?key=bol").count('<td class="main-cell mono">') == 1


def test_the_bar_of_slots_and_its_words_say_what_is_free(ana, db):
    db.call("set_limit", name="gpu", slots=4)
    for _ in range(3):
        db.enqueue("ocr", uses=Jsonb([{"limit": "gpu"}]))
    db.claims(3)

    for path, words in (("/limits", "1 of 4 slots free"), ("/limits/of/gpu", "1 of 4 free")):
        text = ana.get(path)
        assert f'aria-label="Slots: {words}"' in text
        assert 'class="meter-level" width="25.0"' in text


def test_a_new_limit_changes_none_that_is_there(ana, db):
    limit(db, "api", slots=4)

    assert "Limit api is there already." in ana.post("/limits/new", 400, name="api", slots="1").text
    assert db.value("select slots from onceward.limits where name = 'api'") == 4


def test_a_limit_that_was_changed_in_another_window_is_not_changed_back_unseen(ana, db):
    limit(db, "api", slots=4)
    page = "/limits/edit/api"
    seen = re.search(r'name="seen" value="(\w+)"', ana.get(page))[1]
    ana.post(page, seen=seen, name="api", slots="5")

    refused = ana.post(page, 409, seen=seen, name="api", slots="4", requests="7").text

    assert "Somebody has changed it since you opened this page. Now requests is empty; " in refused
    assert "slots is 5" in refused
    assert db.value("select slots from onceward.limits where name = 'api'") == 5
    again = re.search(r'name="seen" value="(\w+)"', refused)[1]
    ana.post(page, seen=again, name="api", slots="4", requests="7")
    assert db.value("select slots from onceward.limits where name = 'api'") == 4


def test_how_many_jobs_of_a_lane_run_at_once_is_shown_and_set(ana, site, db):
    ana.post("/new-lane", name="mail", max_running="5", max_wait="5m", fair="1")
    db.enqueue_many("ocr", [{}] * 7, lane="mail")
    db.worker("a", lanes=["mail"], tasks=["ocr"])
    assert len(db.claims(3, lanes=["mail"])) == 3
    text = ana.get("/lanes/mail")
    assert "3 of 5 running" in text
    assert "of at most 5" in text
    assert "At most 5 run at once" in ana.get("/lanes")

    ana.post("/lanes/mail/running", max_running="3")
    assert "Full: 3 of at most 3 run; 4 jobs are ready" in ana.get("/lanes")
    assert "obs at once" in ana.post("/lanes/mail/running", 400, max_running="many").text
    ana.post("/lanes/mail/running", max_running="")
    assert "as many as workers take" in ana.get("/lanes/mail")
    ana.post("/lanes/nowhere/running", 404, max_running="3")
    bound = site.signed_in("bo", "operator", "acme")
    bound.post("/lanes/mail/running", 403, max_running="3")
    ana.post("/lanes/mail/running", max_running="2")
    # Not how many jobs of others run.
    assert "at most 2, of all tenants" in bound.get("/lanes/mail")


def test_a_lane_says_why_and_is_set(ana, db):
    text = ana.get("/lanes/default")
    assert "No live worker serves it" in text
    ana.post("/lanes/default/turns", fair="1", max_wait="1h")
    ana.post("/lanes/default/share", tenant="acme", turns="3")
    ana.post("/lanes/default/bound", max_depth="100", max_age="10m", over="reject", tenant="*")
    ana.post("/lanes/default/audit", mode="all")
    lane = db.one("select * from onceward.lanes where name = 'default'")
    assert (lane.fair, lane.max_wait, lane.audit) == (True, timedelta(hours=1), "all")
    bound = db.one("select * from onceward.bounds")
    assert (bound.tenant, bound.max_depth, bound.over) == ("*", 100, "reject")
    text = ana.get("/lanes/default")
    for words in ("tenants take turns", "acme", "each tenant", "every transition", "lane.changed"):
        assert words in text
    ana.post("/lanes/default/no-bound", tenant="*")
    assert db.run("select * from onceward.bounds") == []


@pytest.mark.parametrize("action", ["turns", "share", "bound", "no-bound", "audit"])
def test_a_slip_makes_no_lane(ana, db, action):
    ana.post(
        f"/lanes/nothing/{action}", 404, tenant="acme", turns="2", max_depth="1", over="signal", mode="all"
    )
    assert db.value("select count(*) from onceward.lanes where name = 'nothing'") == 0


@pytest.mark.parametrize(
    "path",
    ["/limits/new", "/limits/pause/api", "/limits/resume/api", "/limits/drop/api", "/lanes/default/audit"],
)
def test_who_is_bound_to_a_tenant_or_only_reads_changes_no_limit(site, db, path):
    limit(db, "api", slots=1)
    before = db.contents()["limit_private"]
    bound, viewer = site.signed_in("otto", "operator", "acme"), site.signed_in("vic", "viewer")

    bound.post(path, 403, name="x", slots="1", mode="all")
    assert viewer.http.post(path, data={"csrf": "x"}).status_code == 403
    for visitor in (bound, viewer):
        assert 'method="post" action="/limits' not in visitor.get("/limits/of/api")
        assert 'method="post" action="/lanes' not in visitor.get("/lanes/default")
    assert db.contents()["limit_private"] == before


def test_a_lane_is_made_and_its_sizes_changed(ana, db):
    made = ana.post("/new-lane", name="mail", max_payload="64KiB", max_result="1MiB", max_wait="", fair="")
    assert made.headers["location"] == "/lanes/mail"
    lane = db.run("select * from onceward.lanes where name = 'mail'")[0]
    assert (lane.max_payload_bytes, lane.max_result_bytes, lane.max_wait, lane.fair) == (
        65536,
        1048576,
        None,
        False,
    )

    ana.post("/lanes/mail/caps", max_payload="100000", max_result="512KiB")
    text = ana.get("/lanes/mail")
    assert 'name="max_payload" required value="100000"' in text
    assert 'name="max_result" required value="512KiB"' in text
    kinds = db.run("select kind, actor from onceward.audit_log where entity_id = 'mail' order by seq")
    assert [(row.kind, row.actor) for row in kinds] == [("lane.created", "ana"), ("lane.changed", "ana")]


def problems(text: str) -> dict[str, str]:
    """What stands under each field that is wrong."""
    return dict(re.findall(r'<p class="field-error" id="e-([\w-]+)">(.*?)</p>', text))


def check_refused(ana, page: str, fields: dict[str, str], wrong: str, said: str) -> None:
    """The form comes back with the reason at the field, and with what was typed."""
    text = ana.post(page, 400, **fields).text
    assert list(problems(text)) == [wrong]
    assert problems(text)[wrong].startswith(said)
    assert all(f'value="{typed}"' in text for typed in fields.values())


@pytest.mark.parametrize(
    ("fields", "wrong", "said"),
    [
        ({"name": "", "requests": "1"}, "name", "This is needed."),
        ({"name": "a b", "requests": "1"}, "name", "The name must be"),
        ({"name": "a", "requests": "many"}, "requests", "The number of requests must be a whole number"),
        ({"name": "a", "requests": "1", "per": "soon"}, "per", "The period must be a duration"),
        ({"name": "a", "requests": "1", "burst": "0"}, "burst", "The number of requests at once must be a whole number"),
        ({"name": "a", "requests": "1", "threshold": "much"}, "threshold", "The share that may wait must be"),
        ({"name": "a"}, "requests", "A limit"),
        ({"name": "a", "tokens": "10", "tokens_per": "99999d"}, "tokens_per", "The period of the weight must be"),
    ],
)  # fmt: skip
def test_a_limit_that_cannot_be_made_says_why_at_the_field(ana, db, fields, wrong, said):
    check_refused(ana, "/limits/new", fields, wrong, said)
    assert db.run("select * from onceward.limits where source = 'person'") == []


@pytest.mark.parametrize(
    ("fields", "wrong", "said"),
    [
        ({"name": "default"}, "name", "Lane default is there already."),
        ({"name": "no spaces"}, "name", "The name must be 1 to 100 letters"),
        ({"name": "mail", "max_payload": "much"}, "max_payload", "The size of payloads must be a size"),
        ({"name": "mail", "max_payload": "1B"}, "max_payload", "The size of payloads must be from 1KiB to 256MiB"),
        ({"name": "mail", "max_result": "9TB"}, "max_result", "The size of results must be from 1KiB to 256MiB"),
        ({"name": "mail", "max_wait": "soon"}, "max_wait", "The longest wait must be a duration"),
        ({"name": "mail", "max_wait": "400d"}, "max_wait", "The longest wait must be between 0"),
        ({"name": "mail", "max_running": "-1"}, "max_running", "The number of jobs at once must be a whole number"),
    ],
)  # fmt: skip
def test_a_lane_that_cannot_be_made_says_why_and_keeps_what_was_typed(ana, db, fields, wrong, said):
    check_refused(ana, "/new-lane", fields, wrong, said)
    assert db.value("select count(*) from onceward.lanes") == 1


@pytest.mark.parametrize(
    ("form", "fields", "wrong"),
    [
        ("turns", {"max_wait": "soon"}, {"max_wait": "The longest wait must be a duration"}),
        ("share", {"tenant": "*", "turns": "2"}, {"tenant": "The tenant must be 1 to 200 characters"}),
        ("share", {"tenant": "acme", "turns": "0"}, {"turns": "The number of turns must be a whole number"}),
        ("bound", {"max_depth": "some", "max_age": "old"},
         {"max_depth": "The number of ready jobs must be a whole number", "max_age": "The age of the oldest must be"}),
        ("bound", {"max_age": "2d", "over": "explode"}, {"over": "What enqueue does above it must be"}),
        ("bound", {"max_age": "2d", "over": "defer", "defer_by": "50d"}, {"defer_by": "The time to put off by must be"}),
        ("bound", {"max_bytes": "9999999TB", "over": "defer"}, {"max_bytes": "The size of their payloads must be"}),
        ("bound", {"over": "signal"}, {"max_depth": "A bound needs a number of jobs, an age or a size."}),
        ("running", {"max_running": "100001"}, {"max_running": "The number of jobs at once must be"}),
        ("caps", {"max_payload": "1KiB", "max_result": "3"}, {"max_result": "The size of results must be from"}),
    ],
)  # fmt: skip
def test_a_form_of_a_lane_comes_back_with_what_is_wrong_at_its_fields(ana, db, form, fields, wrong):
    before = db.one("select * from onceward.lanes where name = 'default'")
    text = ana.post(f"/lanes/default/{form}", 400, **fields).text

    assert {name: said[: len(wrong.get(name, said))] for name, said in problems(text).items()} == wrong
    panel = re.search(
        rf'<details class="more" id="{"turns" if form == "share" else form}" open>.*?</details>',
        text,
        re.DOTALL,
    )
    assert panel, "the form that is wrong is not open"
    assert all(f'value="{typed}"' in panel[0] for name, typed in fields.items() if name != "over")
    assert db.one("select * from onceward.lanes where name = 'default'") == before
    assert db.run("select * from onceward.bounds") == []
    assert problems(ana.get(f"/lanes/default/{form}")) == {}


def test_who_is_bound_to_a_tenant_makes_no_lane(site, db):
    site.signed_in("kim", "operator", "acme").post("/new-lane", 403, name="mail")


def test_the_page_of_a_limit_draws_its_day(ana, db):
    limit(db, "bank", slots=2)
    assert "come back in a few" in ana.get("/limits/of/bank")
    for _ in range(3):
        db.call("tidy")
        db.clock.advance("1 minute")

    text = ana.get("/limits/of/bank")
    assert 'aria-label="What was left of bank"' in text
    assert "100% left, 0 waiting" in text
    assert "What was left in the last hour" in ana.get("/limits")
