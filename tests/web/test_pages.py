"""What the pages show, and what their buttons do."""

from __future__ import annotations

import html
import json
import re

import pytest

from onceward.model import STATES
from tests.web.filled import watched

EVERY_PAGE = (
    "/", "/jobs", "/dead-letters", "/lanes", "/schedules", "/schedules/new", "/deliveries", "/workers", "/doctor",
    "/_components", "/workers?all=1", "/limits", "/limits/new", "/alerts", "/alerts/silences", "/alerts/silences?all=1",
    "/monitors", "/channels", "/audit", "/audit/verify", "/retention", "/retention?all=1", "/lanes/default",
)  # fmt: skip
TABLES = ("jobs", "dead-letters", "lanes", "schedules", "deliveries", "workers", "limits", "alerts", "alerts/silences", "monitors",
          "channels", "audit", "retention", "retention/holds")  # fmt: skip


@pytest.fixture
def full(db):
    """Something of everything."""
    jobs = {
        "done": db.done("mail.send", {"to": "x"}, {"id": 7}),
        "dead_letter": db.dead_letter("charge", {"card": "old"}, "the card has expired"),
        "cancelled": db.enqueue("mail.send"),
        "scheduled": db.enqueue("mail.send", run_at=db.now().replace(year=db.now().year + 1)),
    }
    db.cancel(jobs["cancelled"], "not needed")
    claim = db.running("pack")
    db.finish_step(claim, "label", {"pages": 2})
    db.fail_step(claim, "print", "no paper")
    jobs["running"] = claim.job_id
    db.workflow({"name": "a"}, {"name": "b", "after": ["a"]}, {"name": "c", "after": ["a", "b"]})
    db.call("add_schedule", name="daily/report", task="report", spec="0 7 * * *", zone="Europe/Lisbon")
    db.call("run_schedule_now", name="daily/report")
    db.call(
        "deliver",
        kind="email",
        key="receipt:1",
        content={"to": "jane@example.com", "subject": "Hello", "text": "Hi", "html": "<b>Hi</b>"},
    )
    db.promote()
    watched(db)
    return jobs


@pytest.mark.parametrize("path", EVERY_PAGE)
def test_every_page_is_shown_with_nothing_and_with_everything(ana, db, path, request):
    ana.get(path)
    request.getfixturevalue("full")
    text = ana.get(path)
    assert "<h1>" in text


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere(ana, full):
    # What the sample of components links to is no job of this database.
    seen, todo = {"/_components"}, list(EVERY_PAGE)
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        text = ana.get(path)
        # Filters of filters are without end.
        if "?" not in path:
            links = re.findall(r'(?:href|src)="(/[^"]*)"', text)
            todo += [link.replace("&amp;", "&").partition("#")[0] for link in links]
    assert len(seen) > 50


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_had_as_csv(ana, full, name):
    answer = ana.http.get(f"/{name}.csv")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.text.count("\n") >= (2 if name != "workers" else 1)


def test_csv_has_no_formulas(ana, db):
    db.dead_letter("t", {}, "=cmd|' /C calc'!A0")

    assert "'=cmd" in ana.get("/dead-letters.csv")


@pytest.mark.parametrize("state", STATES)
def test_jobs_are_filtered_by_state_with_a_count(ana, db, full, state):
    expected = db.value("select count(*) from onceward.jobs where state = %s", state)
    text = ana.get(f"/jobs?state={state}")

    assert f'data-live="count">{expected}<' in text
    assert text.count("<tr data-line>") == expected


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ("task=charge", 1),
        ("lane=default&state=dead_letter", 1),
        ("lane=nothing", 0),
        ("error=EXPIRED", 1),
        ("error=100%25", 0),
        ("key=nothing", 0),
        ("since=1h&state=dead_letter", 1),
        ("until=1h", 0),
        ("tenant=other", 0),
        ("state=done,dead_letter", 2),
        ("state=done&state=dead_letter", 2),
    ],
)
def test_jobs_are_filtered_by_what_stands_in_the_address(ana, full, filter_, found):
    assert ana.get(f"/jobs?{filter_}").count("<tr data-line>") == found


@pytest.mark.parametrize("filter_", ["state=odd", "since=yesterday", "before=7", "q=hello", "task=%00"])
def test_a_filter_that_cannot_be_read_is_told(ana, filter_):
    text = ana.get(f"/jobs?{filter_}", 400)

    assert "could not be understood" in text


def test_pages_of_jobs_follow_each_other_without_gap_or_repetition(ana, db):
    db.enqueue_many(payloads=[{"n": n} for n in range(120)])
    seen, path = [], "/jobs"
    while path:
        text = ana.get(path)
        seen += re.findall(r'<td><span class="id"><a href="/jobs/([^"]+)"', text)
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = following[1].replace("&amp;", "&") if following else None

    assert len(seen) == len(set(seen)) == 120
    assert seen == sorted(seen, reverse=True)


def test_an_id_in_the_search_leads_to_the_job(ana, db):
    job = db.enqueue()
    assert ana.http.get(f"/jobs?q={job}").headers["location"] == f"/jobs/{job}"


def test_a_job_tells_its_story(ana, db):
    claim = db.running("pack", {"order": 7})
    db.finish_step(claim, "draw the label", {"pages": 2})
    db.fail(claim, "no paper", traceback="File x, line 1", retry_after="1 min")
    text = ana.get(f"/jobs/{claim.job_id}")

    for words in (
        "Attempt 1 of 8 failed",
        "draw the label",
        "no paper",
        "File x, line 1",
        "Run now",
        "order",
    ):
        assert words in text


def test_a_dead_letter_is_requeued_with_an_edited_payload(ana, db):
    job = db.dead_letter("charge", {"card": "old"})
    page = f"/jobs/{job}/requeue"

    assert "line 1, column 2" in ana.post(page, 400, payload="{card").text
    assert "object" in ana.post(page, 400, payload="[1]").text
    compared = ana.post(page, 200, payload='{"card": "new"}', compare="1").text
    assert "diff-went" in compared
    assert "diff-skip" not in compared
    assert db.state(job) == "dead_letter"
    ana.post(page, payload='{"card": "new"}')
    assert (db.state(job), db.job(job).payload) == ("ready", {"card": "new"})
    assert "Payload edited by ana" in ana.get(f"/jobs/{job}")


def test_requeue_without_an_edit_keeps_the_payload_as_it_is(ana, db):
    job = db.dead_letter("charge", {"amount": 1.10, "text": "a\nb"})
    text = re.search(r"<textarea[^>]*>(.*?)</textarea>", ana.get(f"/jobs/{job}/requeue"), re.DOTALL)[1]
    ana.post(f"/jobs/{job}/requeue", payload=html.unescape(text))
    assert db.run("select * from onceward.payload_edits") == []


def test_a_dead_letter_is_resolved_only_with_a_note(ana, db):
    job = db.dead_letter()

    assert "Say how it was settled" in ana.post(f"/jobs/{job}/resolve", 400).text
    ana.post(f"/jobs/{job}/resolve", note="refunded")
    assert db.state(job) == "resolved"


def test_a_job_that_waits_is_cancelled_or_run_now(ana, db):
    later = db.now().replace(year=db.now().year + 1)
    one, two = db.enqueue(run_at=later), db.enqueue(run_at=later)

    ana.post(f"/jobs/{one}/cancel", note="a slip")
    ana.post(f"/jobs/{two}/run-now")
    assert (db.state(one), db.job(one).note, db.state(two)) == ("cancelled", "a slip", "ready")
    ana.post(f"/jobs/{two}/run-now", 409)


def test_a_lane_is_paused_and_the_toast_undoes_it(ana, db):
    answer = ana.post("/lanes/default/pause", reason="provider is down")
    lane = db.one("select * from onceward.lanes where name = 'default'")
    assert (lane.paused, lane.paused_by, lane.pause_reason) == (True, "ana", "provider is down")

    text = ana.get(answer.headers["location"])
    assert "Lane default is paused" in text
    assert 'action="/lanes/default/resume"' in text
    # It is said once.
    assert 'class="toast"' not in ana.get("/lanes")
    ana.post("/lanes/default/resume")
    assert not db.value("select paused from onceward.lanes where name = 'default'")
    ana.post("/lanes/nothing/pause", 404)


@pytest.fixture
def uncertain(db):
    """A delivery whose sender died in the middle."""
    (row,) = db.call("deliver", kind="email", key="receipt:1", content={
        "to": "jane@example.com", "subject": "Hello", "html": "<h1>Hi</h1><script>alert(1)</script>"})  # fmt: skip
    claim = db.claim(lanes=["deliveries"])
    db.call("begin_delivery", job_id=claim.job_id, epoch=claim.epoch, provider="smtp")
    db.call("settle_delivery", job_id=claim.job_id, epoch=claim.epoch, outcome="uncertain", error_type="x",
            category="no_reply", message="the line broke", unclear=True)  # fmt: skip
    return row.delivery_id


def test_an_uncertain_delivery_is_decided_with_a_note(ana, db, uncertain):
    text = ana.get(f"/deliveries/{uncertain}")
    assert "It may have arrived" in text
    assert "jane@example.com" in text
    assert "1 delivery may or may not have arrived" in ana.get("/")

    ana.post(f"/deliveries/{uncertain}/decide", 400, decision="sent")
    ana.post(f"/deliveries/{uncertain}/decide", 400, decision="odd", note="x")
    ana.post(f"/deliveries/{uncertain}/decide", decision="sent", note="she answered")
    row = db.one("select * from onceward.deliveries")
    assert (row.state, row.decided_by, row.note) == ("sent", "ana", "she answered")


def test_an_email_is_shown_in_a_frame_that_can_do_nothing(ana, uncertain):
    assert f'src="/deliveries/{uncertain}/preview" sandbox ' in ana.get(f"/deliveries/{uncertain}")
    answer = ana.http.get(f"/deliveries/{uncertain}/preview")

    assert "<h1>Hi</h1>" in answer.text
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


def test_contents_of_deliveries_are_not_for_viewers(site, uncertain):
    viewer = site.signed_in("vic", "viewer")

    assert "jane@example.com" not in viewer.get(f"/deliveries/{uncertain}")
    viewer.get(f"/deliveries/{uncertain}/preview", 403)


def test_the_overview_says_in_one_sentence_whether_all_is_well(ana, db):
    assert "All well." in ana.get("/")
    db.call("add_lane", name="mail")
    db.call("register_worker", name="w", lanes=["mail"], lease="1 day")
    db.enqueue()
    assert "No live worker serves lane default" in ana.get("/")
    db.run("select onceward.pause_lane('default')")
    assert "Lane default is paused" in ana.get("/")
    db.run("select onceward.resume_lane('default')")
    db.fail(db.claim(), permanent=True)
    assert "1 dead letter waits for a person." in ana.get("/")


def test_workers_are_shown_with_what_they_do(ana, db):
    claim = db.running("pack", worker="press-1")
    text = ana.get("/workers")

    assert "press-1" in text
    assert f"/jobs/{claim.job_id}" in text


def test_a_page_that_does_not_exist_and_a_job_that_does_not_are_told_apart_from_errors(ana):
    for path in ("/nothing", "/jobs/7", "/jobs/01890a5d-ac96-774b-bcce-b302099a8057", "/deliveries/x"):
        assert "There is nothing here" in ana.get(path, 404)
    assert ana.http.get("/api/nothing").headers["content-type"] == "application/problem+json"


def test_a_defect_is_answered_with_a_number_and_no_secret(ana, monkeypatch):
    def broken(*unused):
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr("onceward.web.pages.lanes.lane_lines", broken)
    text = ana.get("/lanes", 500)

    assert "under the number" in text
    assert "hunter2" not in text


def test_a_large_payload_is_shown_folded_and_whole(ana, db):
    payload = {f"k{n}": {"list": list(range(30)), "text": "x" * 500} for n in range(20)}
    job = db.enqueue(payload=payload)
    text = ana.get(f"/jobs/{job}")

    assert "json-fold" in text
    assert json.dumps("k19")[1:-1] in text
