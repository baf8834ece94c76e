"""What a person does, in a real Chromium."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect

from onceward.app import Onceward
from onceward.worker import Worker
from tests.web import filled
from tests.web.looks import cut_buttons, press, shoot, violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = ("/", "/jobs", "/dead-letters", "/lanes", "/schedules", "/schedules/new", "/deliveries", "/workers", "/doctor", "/new-lane",
         *filled.PAGES, "/_components", "/jobs/cancel?state=ready", "/dead-letters/requeue", "/dead-letters/resolve")  # fmt: skip


def in_a_thread(work) -> None:
    """Playwright keeps a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


@pytest.fixture
def things(db):
    """One of each, and the addresses of their pages."""
    done = db.done("mail.send", {"to": "x", "deep": {"list": [1, 2]}}, {"id": 7})
    letter = db.dead_letter("charge", {"card": "old"}, "the card has expired")
    db.dead_letter("sync", {"sku": "mug"}, "the warehouse does not answer")
    for said in ("Asked the bank.", "They look into it; do not requeue before Monday."):
        db.run(
            "select onceward.comment_dead_letters(task, fingerprint, %s, id) from onceward.dead_letters where id = %s",
            said,
            letter,
        )
    db.run(
        "select onceward.assign_dead_letters(task, fingerprint, 'ben') from onceward.dead_letters where task = 'charge'"
    )
    db.call("add_lane", name="meals-deliveries")
    claim = db.running("pack")
    db.finish_step(claim, "label", {"pages": 2})
    db.call("add_schedule", name="daily", task="report", spec="0 7 * * *", zone="Europe/Lisbon")
    (mail,) = db.call(
        "deliver",
        kind="email",
        key="r:1",
        content={"to": "a@example.com", "subject": "Hi", "html": "<b>Hi</b>"},
    )
    flow = db.workflow(
        {"name": "fetch"}, {"name": "scan", "after": ["fetch"]}, {"name": "read", "after": ["fetch", "scan"]}
    )
    schedule = db.value("select id from onceward.schedules")
    return [f"/jobs/{done}", f"/jobs/{letter}", f"/jobs/{letter}/requeue", f"/jobs/{letter}/resolve", f"/jobs/{claim.job_id}",
            f"/jobs/{flow['read']}", f"/schedules/{schedule}", f"/schedules/{schedule}/edit",
            f"/deliveries/{mail.delivery_id}", *filled.watched(db)]  # fmt: skip


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_every_page_is_accessible_and_fits_its_window(window, things, size):
    page = window(viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce")
    trouble = []
    for path in (*PAGES, *things):
        page.emulate_media(color_scheme="light")
        page.goto(path)
        page.wait_for_load_state("load")
        name = re.sub(r"[0-9a-f-]{36}|\W+", "-", path).strip("-") or "overview"
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            shoot(page, f"{name}.{theme}.{size[0]}")
            trouble += [f"{path} {theme}: {text}" for text in violations(page, only_colours=theme == "dark")]
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > size[0]:
            trouble.append(f"{path}: {wide} px wide")
        trouble += [f"{path}: button {text} is cut" for text in cut_buttons(page)]
    assert not trouble, "\n".join(trouble)


def test_a_long_word_makes_no_page_wider(window, db):
    """An address in an error, a key or a comment is one word."""
    long = "https://example.com/" + "a" * 300
    task, key = "t." + "b" * 198, "k" * 500
    letter = db.dead_letter(task, {long: long, "list": [long]}, long, key=key)
    db.run("select onceward.comment_dead_letters(task, fingerprint, %s, id) from onceward.dead_letters", long)
    db.run("select onceward.assign_dead_letters(task, fingerprint, %s) from onceward.dead_letters", "c" * 100)
    other = db.dead_letter(task, {}, long)
    db.resolve(other, long)
    done = db.done(task, {"x": long}, {"y": long}, concurrency_key=key)
    waiting = db.enqueue(task, {"x": long}, concurrency_key=key, concurrency_limit=1)
    claim = db.running("pack")
    db.finish_step(claim, "s" * 190, {"z": long})
    db.cancel(claim.job_id, long)
    for job in (letter, other, done, waiting, claim.job_id):
        db.call(
            "record_event", kind="note", message=long, entity_type="page", entity_id=long[:200], job_id=job
        )
    paths = ["/", "/jobs", "/dead-letters", "/audit", "/lanes", "/workers", "/lanes/default"]
    paths += [f"/jobs/{job}" for job in (letter, other, done, waiting, claim.job_id)]
    paths += [f"/jobs/{letter}/requeue", f"/jobs/{letter}/resolve"]
    trouble = []
    for width in (1280, 390):
        page = window(viewport={"width": width, "height": 800}, reduced_motion="reduce")
        for path in paths:
            answer = page.goto(path)
            assert answer.status == 200, path
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                trouble.append(f"{path}: {wide} px wide in {width}")
    assert not trouble, "\n".join(trouble)


def test_signing_in_is_accessible_too(chromium, site):
    context = chromium.new_context(base_url=site.address)
    page = context.new_page()
    for path in (site.link(), "/sign-in", "/nothing"):
        page.goto(path)
        assert violations(page) == []
    context.close()


def test_a_person_mends_a_dead_letter(window, db):
    job = db.dead_letter("charge", {"card": "expired 11/24"}, "the card has expired")
    page = window()

    page.get_by_role("link", name="Decide").click()
    page.get_by_role("cell", name=str(job)[-6:]).get_by_role("link").click()
    expect(page.get_by_text("after attempt 1 of 8")).to_be_visible()
    press(page, "r")
    page.get_by_role("textbox", name="Payload").fill('{"card": "valid 12/31"}')
    page.get_by_role("button", name="See what changes").click()
    expect(page.get_by_text('"card": "valid 12/31"').last).to_be_visible()
    page.get_by_role("button", name="Requeue", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Requeued with the edited payload")).to_be_visible()

    assert db.job(job).payload == {"card": "valid 12/31"}


def test_a_job_goes_through_and_a_second_window_sees_it_live(window, db, site):
    app = Onceward(db.dsn)

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    page, other = window(), window("ben", "viewer")
    page.goto("/jobs")
    other.goto("/")
    expect(other.locator("[data-live-marker]")).to_have_attribute("data-state", "connected")
    with app.client() as client:
        job = client.enqueue(greet, {"name": "Ana"})
    # The stream tells both windows; nobody reloads.
    expect(page.get_by_role("row").filter(has_text="greet")).to_be_visible()
    expect(other.locator("[data-glow=ready]")).to_have_text("1")
    page.goto(f"/jobs/{job.id}")
    in_a_thread(lambda: asyncio.run(Worker(app).drain()))
    expect(page.locator("[data-live=state]")).to_have_text("done")
    expect(page.get_by_text("hello Ana")).to_be_visible()
    expect(other.locator("[data-glow=ready]")).to_have_text("0")
    # Two windows, one connection that looks.
    assert (
        db.value(
            "select count(*) from pg_stat_activity where application_name = 'onceward web live' and datname = current_database()"
        )
        == 1
    )


def test_a_paused_lane_shows_in_another_window_and_undo_opens_it(window, db):
    page, other = window(), window("ben", "viewer")
    page.goto("/lanes")
    other.goto("/lanes")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(other.get_by_text("Paused", exact=False).first).to_be_visible()
    expect(other.get_by_role("button", name="Resume")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Lane default is open")).to_be_visible()
    assert not db.value("select paused from onceward.lanes where name = 'default'")


def test_a_schedule_is_edited_with_a_preview_that_follows_the_typing(window, db):
    db.call("add_schedule", name="daily", task="report", spec="0 7 * * *")
    page = window()
    page.goto("/schedules")
    page.get_by_role("link", name="daily").click()
    page.get_by_role("link", name="Edit").click()
    # What is typed before the script has come changes nothing.
    page.wait_for_load_state("load")
    page.get_by_label("When").fill("30 4 * * *")
    expect(page.locator("#coming")).to_contain_text("04:30")
    page.get_by_label("When").fill("61 4 * * *")
    expect(page.locator("#coming")).to_contain_text("61")
    page.get_by_label("When").fill("30 5 * * *")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Schedule daily changed")).to_be_visible()
    assert db.value("select spec from onceward.schedules") == "30 5 * * *"


def test_an_edit_that_is_too_large_to_be_sent_is_said_in_the_browser_and_stays(window, db):
    job = db.dead_letter("charge", {"card": "old"})
    page = window()
    page.goto(f"/jobs/{job}")
    press(page, "r")
    # What is typed before the script has come is not measured.
    page.wait_for_url("**/requeue")
    area = page.get_by_label("Payload")
    area.evaluate(
        "(area) => { area.value = '\"' + 'é'.repeat(200000) + '\"'; area.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.get_by_role("button", name="Requeue").click()

    said = area.evaluate("(area) => area.validationMessage")
    assert said == "This is 1,172 KiB when it is sent, and a form may have 1,024 KiB."
    assert page.url.endswith("/requeue")
    assert len(area.input_value()) == 200_002
    assert db.state(job) == "dead_letter"
    area.fill('{"card": "new"}')
    page.get_by_role("button", name="Requeue").click()
    expect(page.get_by_text("Requeued with the edited payload")).to_be_visible()


def test_many_dead_letters_are_requeued_at_once(window, db):
    for n in range(5):
        db.dead_letter("charge", {"n": n}, "expired")
    page = window()
    page.goto("/dead-letters")
    press(page, "r")
    page.get_by_role("button", name="Requeue 5 jobs").click()
    expect(page.get_by_text("Requeued 5 dead letters")).to_be_visible()
    expect(page.get_by_text("No dead letters", exact=True)).to_be_visible()


def test_keys_lead_through_the_pages(window, db):
    job = db.enqueue()
    page = window()
    press(page, "g")
    press(page, "j")
    page.wait_for_url("**/jobs")
    press(page, "j")
    press(page, "Enter")
    page.wait_for_url(f"**/jobs/{job}")
    press(page, "?")
    expect(page.get_by_role("dialog")).to_be_visible()
    press(page, "Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_the_theme_is_switched_and_kept(window):
    page = window(color_scheme="light")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    page.goto("/jobs")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_the_marker_says_when_the_page_is_old(window, site, db):
    page = window()
    expect(page.locator("[data-live-marker]")).to_have_attribute("data-state", "connected")
    page.context.set_offline(True)
    site.web.live.end()
    expect(page.locator("[data-live-marker]")).to_have_attribute("data-state", "stale")
    expect(page.locator("[data-live-marker]")).to_contain_text("Stale since")


def test_pages_work_without_scripts(window, db):
    job = db.dead_letter("charge", {"card": "old"})
    page = window(java_script_enabled=False)
    page.goto("/dead-letters")
    page.get_by_role("link", name="Requeue 1…").click()
    page.get_by_role("button", name="Requeue 1 job").click()
    assert db.state(job) == "ready"
