"""Texts of others, in every field that is shown: nothing of them runs, in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
# Each would set window.hit, in a context of its own: text, attribute, address, style, template, script, SVG.
CORPUS = [
    "<script>window.hit=1</script>", "</script><script>window.hit=1</script>", "<img src=x onerror=window.hit=1>",
    '"><img src=x onerror=window.hit=1>', "'><svg onload=window.hit=1>", "<svg><script>window.hit=1</script></svg>",
    "<svg/onload=window.hit=1//", "<body onload=window.hit=1>", '<iframe srcdoc="<script>parent.hit=1</script>">',
    "javascript:window.hit=1", "jaVasCript:/*-/*`/*\\`/*'/*\"/**/(/* */window.hit=1)//", "<a href=javascript:window.hit=1 id=x>x</a>",
    "<details open ontoggle=window.hit=1>", "<input autofocus onfocus=window.hit=1>", "<video><source onerror=window.hit=1>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.hit=1>", "<template><script>window.hit=1</script>",
    "{{ 7*7 }}{% raw %}", "{{ ''.__class__.__mro__ }}", "${window.hit=1}", "<style>@import'javascript:window.hit=1'</style>",
    "<link rel=stylesheet href=javascript:window.hit=1>", "<base href=//evil.example/>", "<meta http-equiv=refresh content=0;url=javascript:window.hit=1>",
    "<form action=javascript:window.hit=1><input type=submit autofocus>", "&lt;script&gt;window.hit=1&lt;/script&gt;", "%3Cscript%3Ewindow.hit=1%3C/script%3E",
    "\u003cscript\u003ewindow.hit=1\u003c/script\u003e", "<scr\u0130pt>window.hit=1</scr\u0130pt>", '<!--<img src="--><img src=x onerror=window.hit=1>',
    "]]><img src=x onerror=window.hit=1>", '<noscript><p title="</noscript><img src=x onerror=window.hit=1>">', "\u202e<script>window.hit=1</script>",
    "<table background=javascript:window.hit=1>", "<object data=javascript:window.hit=1>", "<embed src=javascript:window.hit=1>",
    "<marquee onstart=window.hit=1>", "<select autofocus onfocus=window.hit=1>", "<x contenteditable onblur=window.hit=1>", "`-window.hit=1-`",
]  # fmt: skip


# A small window that stands still: what is drawn is not the point here, and costs a sixth of the time.
SMALL = {"viewport": {"width": 320, "height": 200}, "reduced_motion": "reduce"}


def quiet(page: Page, path: str) -> None:
    page.goto(path)
    page.wait_for_load_state("load")
    # What waits for the mouse, the focus or a toggle gets it.
    page.evaluate(
        "document.querySelectorAll('main *').forEach(e => { for (const k of ['mouseover', 'focus', 'toggle', 'error', 'load'])"
        " e.dispatchEvent(new Event(k)) })"
    )
    assert page.evaluate("window.hit") is None, f"a script ran on {path}"


@pytest.fixture
def poisoned(db):
    """Every text of the corpus in every field that a page shows, and the addresses of those pages."""
    paths = []
    for number, text in enumerate(CORPUS):
        payload = {text: text, "list": [text, {text: [text]}]}
        done = db.done("mail", payload, {text: text}, headers={"k": text}, key=f"{number} {text}")
        claim = db.running("mail", payload, concurrency_key=text)
        db.finish_step(claim, text, {text: text})
        db.fail_step(claim, f"bad {text}", text)
        db.progress(claim, {text: text})
        db.fail(claim, text, error_type=text[:100], traceback=text, permanent=True)
        # Names of people and of events have no control characters.
        name = text if text.isprintable() else f"{number}"
        db.run(
            "select onceward.comment_dead_letters(task, fingerprint, %s, id), onceward.assign_dead_letters(task, fingerprint, %s)"
            " from onceward.dead_letters where id = %s",
            text,
            name,
            claim.job_id,
        )
        db.run(
            "select onceward.emit_event(%s, to_jsonb(%s::text), p_made_by => %s)",
            f"{number} {name}",
            text,
            claim.job_id,
        )
        cancelled = db.enqueue("mail")
        db.cancel(cancelled, text)
        paths += [f"/jobs/{done}", f"/jobs/{claim.job_id}", f"/jobs/{cancelled}"]
    requeued = db.dead_letter("mail", {CORPUS[0]: 1})
    db.run("select set_config('onceward.actor', %s, false)", CORPUS[3])
    db.requeue(requeued, payload={CORPUS[1]: 2})
    db.run("select onceward.pause_lane('default', %s)", CORPUS[3])
    db.call("register_worker", name=CORPUS[2], host=CORPUS[3], version=CORPUS[4], lease="1 day")
    db.call("add_schedule", name="s", task="mail", spec="1 hour", payload={CORPUS[0]: CORPUS[3]})
    db.run("select onceward.pause_schedule('s', %s)", CORPUS[2])
    for number, text in enumerate(CORPUS[:12]):
        (row,) = db.call("deliver", kind="email", key=f"{number} {text}",
                         content={"to": "a@example.com", "subject": text.replace("\\n", " "), "html": text, "text": text})  # fmt: skip
        paths.append(f"/deliveries/{row.delivery_id}")
    schedule = db.value("select id from onceward.schedules")
    groups = [f"/jobs/{requeued}", f"/schedules/{schedule}", f"/schedules/{schedule}/edit"]
    return [*paths, *groups]


def test_no_text_of_others_ever_runs(window, poisoned, site):
    page = window(CORPUS[3], **SMALL)
    lists = ["/", "/jobs", "/jobs?state=dead_letter", "/dead-letters", "/dead-letters/requeue", "/lanes", "/schedules",
             "/deliveries", "/workers"]  # fmt: skip
    for path in (*lists, *poisoned):
        quiet(page, path)


def test_no_text_in_an_address_ever_runs(window):
    from urllib.parse import quote

    page = window(**SMALL)
    for text in CORPUS:
        asked = quote(text)
        for path in (f"/jobs?task={asked}&lane={asked}&error={asked}&key={asked}", f"/jobs?state={asked}", f"/jobs?q={asked}",
                     f"/{asked}", f"/jobs/{asked}", f"/deliveries?key={asked}", f"/dead-letters?task={asked}",
                     f"/sign-in?next={asked}&link={asked}"):  # fmt: skip
            quiet(page, path)
