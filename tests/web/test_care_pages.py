"""Dead letters on the pages: who looks after them, what is said; and what a job has asked for."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import quote

from onceward.app import Onceward
from onceward.worker import Job, Worker


def kind_of(db, job) -> str:
    (row,) = db.run("select task, fingerprint from onceward.dead_letters where id = %s", job)
    return f"task={quote(row.task)}&fingerprint={row.fingerprint}"


def test_a_kind_of_failure_is_looked_after_and_talked_about(site, ana, db):
    job = db.dead_letter("charge", {"n": 1}, "the bank said no")
    kind = kind_of(db, job)
    assert "Nobody looks after it yet" in ana.get("/dead-letters")

    ana.post(f"/dead-letters/assign?{kind}", to="ben")
    ana.post(f"/dead-letters/comment?{kind}", comment="Asked the bank.\r\nThey look into it.")

    for path in ("/dead-letters", f"/dead-letters?{kind}", f"/jobs/{job}"):
        text = ana.get(path)
        assert "<b>ben</b> looks after it" in text
        assert "asked by ana" in text
        assert "Asked the bank.\nThey look into it." in text
    assert db.value("select actor from onceward.audit_log where kind = 'dead_letter.assigned'") == "ana"
    assert db.value("select message from onceward.audit_log where kind = 'dead_letter.commented'").startswith(
        "Asked"
    )


def test_from_the_page_of_a_job_a_comment_names_it_and_stays_when_it_lives_again(ana, db):
    job = db.dead_letter("charge", {}, "no")
    ana.post(f"/jobs/{job}/assign", to="ana")
    ana.post(f"/jobs/{job}/comment", comment="this one first")
    assert f'about <a href="/jobs/{job}">' in ana.get("/dead-letters")

    db.requeue(job)

    text = ana.get(f"/jobs/{job}")
    assert "this one first" in text
    assert f"/jobs/{job}/comment" not in text
    ana.post(f"/jobs/{job}/comment", 409, comment="too late")


def test_the_list_is_of_everybody_of_mine_or_of_nobody(ana, db):
    mine = db.dead_letter("charge", {}, "no")
    db.dead_letter("sync", {}, "gone")
    ana.post(f"/dead-letters/assign?{kind_of(db, mine)}", to="ana")

    def tasks(path: str) -> list[str]:
        return re.findall(r'inbox-top"><span class="cut">(\w+)<', ana.get(path))

    assert sorted(tasks("/dead-letters")) == ["charge", "sync"]
    assert tasks("/dead-letters?whose=mine") == ["charge"]
    assert tasks("/dead-letters?whose=nobody") == ["sync"]
    assert sorted(tasks("/dead-letters?whose=nobody&whose=mine")) == ["charge", "sync"]
    ana.get("/dead-letters?whose=everybody", 400)


def test_who_only_reads_sees_the_thread_and_has_no_form(site, db):
    job = db.dead_letter("charge", {}, "no")
    db.run(
        "select onceward.comment_dead_letters(task, fingerprint, 'known since May') from onceward.dead_letters"
    )
    ben = site.signed_in("ben", "viewer")

    text = ben.get(f"/jobs/{job}")
    assert "known since May" in text
    assert "/comment" not in text
    ben.post(f"/jobs/{job}/comment", 403, comment="me, too")


def test_a_tenant_has_a_thread_of_its_own(site, db):
    job = db.dead_letter("charge", {}, "no", tenant="acme")
    db.dead_letter("charge", {}, "no", tenant="globex")
    site.signed_in("ana").post(f"/jobs/{job}/comment", comment="seen by all of us")
    kim = site.signed_in("kim", "operator", "acme")
    kim.post(f"/jobs/{job}/comment", comment="our own words")

    assert "seen by all of us" not in kim.get(f"/jobs/{job}")
    assert "our own words" not in site.signed_in("lee", "operator", "globex").get("/dead-letters")
    assert "our own words" in site.signed_in("mia").get(f"/jobs/{job}")


def test_nothing_said_about_nothing(ana, db):
    db.dead_letter("charge", {}, "no")
    ana.post("/dead-letters/comment?task=charge&fingerprint=nothing", 404, comment="hello")
    ana.post("/dead-letters/comment", 404, comment="hello")
    ana.post(f"/dead-letters/comment?{kind_of(db, db.dead_letter())}", 400, comment="  ")


def test_a_job_shows_deliveries_it_asked_for_and_events_it_emitted_and_heard(ana, db):
    app = Onceward(db.dsn)

    @app.task
    async def ship(job: Job, order: int) -> None:
        client = app.async_client()
        await client.deliveries.slack(text="packed", key=f"packed:{order}")
        await client.emit_event(f"order {order} packed")
        await job.wait_event(f"order {order} paid")

    @app.task
    def tell(order: int) -> None:
        with app.client() as client:
            client.deliveries.slack(text="told", key=f"told:{order}")

    with app.client() as client:
        first, second = client.enqueue(ship, {"order": 7}), client.enqueue(tell, {"order": 7})
        client.deliveries.slack(text="by nobody", key="outside")
    asyncio.run(Worker(app, lanes=["default"]).drain())

    text = ana.get(f"/jobs/{first.id}")
    assert "packed:7" in text
    assert "told:7" not in text
    assert "order 7 packed" in text
    assert re.search(r"waits for</span></td><td[^>]*>order 7 paid", text)
    assert "told:7" in ana.get(f"/jobs/{second.id}")
    assert db.value("select made_by from onceward.deliveries where key = 'outside'") is None
    delivery = db.value("select id from onceward.deliveries where key = 'packed:7'")
    assert f"/jobs/{first.id}" in ana.get(f"/deliveries/{delivery}")
    assert "packed:7" in ana.get(f"/jobs/{first.id}/deliveries.csv")
    assert "order 7 packed" in ana.get(f"/jobs/{first.id}/events.csv")
