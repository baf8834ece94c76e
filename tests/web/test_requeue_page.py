"""Requeueing with an edited payload: what is checked, what is kept, and how the attempts are told apart afterwards."""

from __future__ import annotations

import html
import re

from onceward import Onceward


def test_an_edit_that_the_task_refuses_is_kept_and_says_which_field_is_wrong(serve, db):
    app = Onceward()

    @app.task
    async def charge(card: str, amount: int) -> None: ...

    ana = serve(apps=[app]).signed_in()
    job = db.dead_letter("charge", {"card": "old"})
    page = f"/jobs/{job}/requeue"

    answer = ana.post(page, 400, payload='{"card": "new", "amount": "lots"}').text
    assert "Payload does not fit task charge: amount: " in answer
    assert "&#34;lots&#34;" in answer.partition("<textarea")[2]
    assert db.state(job) == "dead_letter"
    # Nothing was edited: maybe the code has changed meanwhile.
    ana.post(page, payload='{"card": "old"}')
    assert db.state(job) == "ready"
    other = db.dead_letter("unknown_here", {"card": "old"}) if db.claims(9) else None
    ana.post(f"/jobs/{other}/requeue", payload='{"anything": 1}')
    assert db.job(other).payload == {"anything": 1}


def test_an_edit_that_is_too_large_for_the_lane_is_kept_and_the_cap_is_beside_it(ana, db):
    db.call("add_lane", name="default", max_payload_bytes=2048)
    job = db.dead_letter("charge", {"card": "old"})
    page = f"/jobs/{job}/requeue"
    assert "At most 2KiB in lane default." in html.unescape(ana.get(page))

    answer = ana.post(page, 413, payload='{"card": "' + "y" * 3000 + '"}').text

    assert "Payload must be at most 2048 bytes" in answer
    assert "y" * 3000 in answer.partition("<textarea")[2]
    assert db.state(job) == "dead_letter"


def test_an_emptied_payload_is_not_the_old_one(ana, db):
    job = db.dead_letter("charge", {"card": "old"})

    assert "This is not JSON" in html.unescape(ana.post(f"/jobs/{job}/requeue", 400, payload=" ").text)
    assert db.state(job) == "dead_letter"


def test_a_form_that_is_too_large_says_how_large_it_is_and_where_the_text_is(ana, db):
    job = db.dead_letter("charge", {"card": "old"})

    text = ana.post(f"/jobs/{job}/requeue", 413, payload="y" * 1_200_000).text

    assert "form may have 1,024 KiB, and this one has 1,171 KiB" in text
    assert "the browser still has what you have typed" in text


def test_the_button_says_that_the_payload_can_be_edited(ana, db):
    text = ana.get(f"/jobs/{db.dead_letter('charge', {'card': 'old'})}")

    assert re.search(r'data-key="r">Edit and requeue…</a>', text)


def test_attempts_are_shown_by_run_so_that_no_number_stands_for_two(ana, db):
    job = db.dead_letter("charge")
    assert "First run" not in ana.get(f"/jobs/{job}")
    db.requeue(job)
    db.fail(db.claim())
    db.cancel(job)
    db.requeue(job)
    db.claim()

    text = re.sub(r"<[^>]+>", " ", ana.get(f"/jobs/{job}"))
    story = re.findall(r"First run|Run \d, requeued|Attempt \d(?=\s+<|\s{2})", text.partition("Attempts ")[2])

    assert story == ["First run", "Attempt 1", "Run 2, requeued", "Attempt 1", "Run 3, requeued", "Attempt 1"]
    assert "used in this run" in text
    assert "Attempt 1, run 3" in ana.get(f"/jobs/{job}")
