"""What the pages show, and what their buttons do."""

from __future__ import annotations

import html
import json
import re

import pytest

from onceward.app import Onceward
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


def test_all_that_a_filter_finds_is_cancelled_after_a_preview(ana, db):
    db.enqueue_many("spam", [{} for _ in range(60)])
    kept = db.enqueue("mail")

    preview = ana.get("/jobs/cancel?state=ready&task=spam")
    assert "Cancel 60 jobs" in preview
    ana.confirm("/jobs/cancel?state=ready&task=spam", reason="a slip")
    assert db.value("select count(*) from onceward.jobs where state = 'cancelled'") == 60
    assert db.state(kept) == "ready"
    ana.get("/jobs/cancel?state=running", 400)
    ana.get("/jobs/cancel", 400)


def test_a_kind_of_failure_is_requeued_as_a_whole_after_a_preview_and_spread(ana, db):
    jobs = [db.dead_letter("charge", {"n": n}, "expired") for n in range(3)]
    other = db.dead_letter("mail", {}, "no such host")
    group = db.one("select * from onceward.dead_letters where task = 'charge' limit 1")
    suffix = f"?task=charge&fingerprint={group.fingerprint}"

    assert "Requeue 3 dead letters?" in ana.get(f"/dead-letters/requeue{suffix}")
    assert "must be a whole number" in ana.confirm(f"/dead-letters/requeue{suffix}", 400, rate="some").text
    ana.confirm(f"/dead-letters/requeue{suffix}", rate="60")
    assert db.state(jobs[0]) == "ready"
    waits = sorted((db.job(job).run_at - db.now()).total_seconds() for job in jobs)
    assert waits == [0, 1, 2]
    assert db.state(other) == "dead_letter"


def test_a_kind_of_failure_is_resolved_with_a_note(ana, db):
    jobs = [db.dead_letter("charge", {"n": n}, "expired") for n in range(3)]

    assert "The note is missing." in ana.confirm("/dead-letters/resolve?task=charge", 400).text
    ana.confirm("/dead-letters/resolve?task=charge", note="refunded all")
    assert {db.state(job) for job in jobs} == {"resolved"}


@pytest.mark.parametrize("verb", ["requeue", "resolve"])
def test_what_came_after_the_question_is_not_meant(ana, db, verb):
    old = [db.dead_letter("charge", {"n": n}, "expired") for n in range(2)]
    gone = db.dead_letter("charge", {"n": 2}, "expired")
    path = f"/dead-letters/{verb}?task=charge"
    asked = re.search(r'name="ids" value="([\w=-]+)"', ana.get(path))[1]
    late = db.dead_letter("charge", {"n": 3}, "expired")
    db.run("select onceward.resolve(%s, 'by somebody else')", gone)

    ana.post(path, ids=asked, note="refunded")

    done = "ready" if verb == "requeue" else "resolved"
    assert [db.state(job) for job in (*old, gone, late)] == [done, done, "resolved", "dead_letter"]
    assert "d 2 dead letters; 1 had changed meanwhile" in ana.get("/dead-letters")


def test_jobs_that_came_or_began_after_the_question_are_not_cancelled(ana, db):
    (waits,) = [row.job_id for row in db.enqueue_many("spam", [{}])]
    runs = db.enqueue("spam", priority=5)
    path = "/jobs/cancel?state=ready&task=spam"
    asked = re.search(r'name="ids" value="([\w=-]+)"', ana.get(path))[1]
    db.claim()
    late = db.enqueue("spam")

    ana.post(path, ids=asked)

    assert [db.state(job) for job in (waits, runs, late)] == ["cancelled", "running", "ready"]
    assert db.job(runs).cancel_at is None


@pytest.mark.parametrize("ids", ["", "?", "AAAA", "A" * 50_000])
def test_a_form_that_does_not_say_which_jobs_does_nothing(ana, db, ids):
    job = db.dead_letter("charge")

    ana.post("/dead-letters/requeue", 400, ids=ids)
    ana.post("/jobs/cancel?state=ready", 400, ids=ids)

    assert db.state(job) == "dead_letter"


def test_only_the_kinds_that_are_shown_are_requeued(ana, db):
    mine, other = db.dead_letter("charge", {}, "expired"), db.dead_letter("mail", {}, "no such host")
    db.run(
        "select onceward.assign_dead_letters(task, fingerprint, 'ben') from onceward.dead_letters where id = %s",
        mine,
    )
    third = db.dead_letter("sync", {}, "no answer")
    link = re.search(
        r'href="(/dead-letters/requeue\?whose=nobody)">Requeue these', ana.get("/dead-letters?whose=nobody")
    )

    ana.confirm(link[1])

    assert [db.state(job) for job in (mine, other, third)] == ["dead_letter", "ready", "ready"]


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


def test_a_schedule_is_made_seen_changed_paused_run_and_removed(ana, db):
    form = {"name": "night/ly", "task": "report", "spec": "0 3 * * *", "zone": "UTC", "lane": "default",
            "payload": '{"kind": "long"}', "missed": "latest", "overlap": "skip"}  # fmt: skip

    assert 'id="e-spec"' in ana.post("/schedules/new", 400, **{**form, "spec": "0 3"}).text
    assert "not JSON" in ana.post("/schedules/new", 400, **{**form, "payload": "{"}).text
    assert "This is needed" in ana.post("/schedules/new", 400, **{**form, "name": ""}).text
    preview = ana.post("/schedules/new", 200, **form, preview="1").text
    assert preview.count("03:00") >= 10
    assert db.run("select * from onceward.schedules") == []
    place = ana.post("/schedules/new", **form).headers["location"]
    assert "night/ly" in ana.get(place)
    ana.post(f"{place}/edit", **{**form, "spec": "30 4 * * *"})
    assert db.value("select spec from onceward.schedules") == "30 4 * * *"
    ana.post(f"{place}/pause", reason="holidays")
    assert db.value("select state from onceward.schedules") == "paused"
    ana.post(f"{place}/resume")
    job = ana.post(f"{place}/run-now").headers["location"]
    assert "long" in ana.get(job)
    ana.post(f"{place}/drop")
    assert db.run("select * from onceward.schedules") == []
    ana.get(place, 404)


def seen_in(text: str) -> str:
    return re.search(r'name="seen" value="(\w+)"', text)[1]


def test_a_new_schedule_changes_none_that_is_there(ana, db):
    db.call("add_schedule", name="daily", task="report", spec="0 7 * * *")
    text = ana.post("/schedules/new", 400, name="daily", task="other", spec="1 hour", payload="{}",
                    lane="default", missed="latest", overlap="skip").text  # fmt: skip

    assert "Schedule daily is there already." in text
    assert db.value("select task from onceward.schedules") == "report"


def test_a_schedule_that_was_changed_in_another_window_is_not_changed_back_unseen(ana, db):
    db.call("add_schedule", name="daily", task="report", spec="0 7 * * *")
    page = f"/schedules/{db.value('select id from onceward.schedules')}/edit"
    form = {"name": "daily", "task": "report", "spec": "0 7 * * *", "zone": "UTC", "lane": "default", "payload": "{}",
            "missed": "latest", "overlap": "skip"}  # fmt: skip
    seen = seen_in(ana.get(page))
    ana.post(page, seen=seen, **{**form, "spec": "0 8 * * *"})

    refused = ana.post(page, 409, seen=seen, **{**form, "payload": '{"n": 1}'}).text
    assert (
        "Somebody has changed it since you opened this page. Now spec is 0 8 * * *; payload is {}." in refused
    )
    assert db.value("select spec from onceward.schedules") == "0 8 * * *"
    ana.post(page, seen=seen_in(refused), **{**form, "payload": '{"n": 1}'})
    assert db.one("select spec, payload from onceward.schedules")[:] == ("0 7 * * *", {"n": 1})


def test_a_schedule_is_saved_only_with_a_payload_that_fits_its_task(serve, db):
    app = Onceward("shop")

    @app.task
    def charge(amount: int) -> None: ...

    ana = serve(apps=[app]).signed_in()
    form = {
        "name": "daily",
        "task": "charge",
        "spec": "1 hour",
        "lane": "default",
        "missed": "latest",
        "overlap": "skip",
    }

    text = ana.post("/schedules/new", 400, payload='{"amount": "lots"}', **form).text
    assert "Payload does not fit task charge: amount: " in text
    ana.post("/schedules/new", payload='{"amount": 3}', **form)
    assert "No worker has announced task charge yet." in ana.get("/schedules")


def test_what_a_schedule_form_does_not_show_stays_as_it_is(ana, db):
    db.call(
        "add_schedule",
        name="s",
        task="t",
        spec="1 hour",
        priority=7,
        max_attempts=3,
        jitter="5 s",
        timeout="1 min",
    )
    form = {"name": "s", "task": "t2", "spec": "2 hours", "zone": "UTC", "lane": "default", "payload": "{}",
            "missed": "none", "overlap": "allow"}  # fmt: skip
    ana.post(f"/schedules/{db.value('select id from onceward.schedules')}/edit", **form)

    row = db.one("select * from onceward.schedules")
    assert (row.task, row.spec, row.missed, row.priority, row.max_attempts) == ("t2", "2 hours", "none", 7, 3)
    assert (row.jitter.total_seconds(), row.timeout.total_seconds()) == (5, 60)


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
