"""The routes of programs and of customers, by real HTTP."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from psycopg.types.json import Jsonb

from tests.apps.proof.stage import DAY, WORKER_SECRET

PAGES = "/functions/v1/proof-page"
NEW = {"production_date": "2026-03-20", "kg_produced": 512.5}


def released(proof, certificate=b"%PDF-1.7 a certificate %%EOF"):
    batch = proof.create()
    path = proof.folder / "lab-reports" / "a.pdf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(certificate)
    proof.record(batch)
    proof.release(batch)
    return batch


# ---------------------------------------------------------------- /functions/v1


def test_a_batch_is_created_by_a_token_that_may_operate(proof, site):
    http = site.visitor(authorization=f"Bearer {site.token('operate')}").http
    answer = http.post("/functions/v1/create-batch", json=NEW)
    assert (answer.status_code, answer.json()["batch_code"]) == (201, "PR-260320-001")
    # The record names the token and not the role of the database.
    assert proof.one("select changed_by from raw_ops.batch_status_history") == "token ci"
    assert proof.all(
        "select kind, actor, entity_id from onceward.audit_log where source = 'application'"
    ) == [("proof.batch_created", "token ci", "PR-260320-001")]


def test_the_same_idempotency_key_is_the_same_batch(proof, site):
    http = site.visitor(authorization=f"Bearer {site.token('operate')}").http
    first = http.post("/functions/v1/create-batch", json=NEW, headers={"idempotency-key": "a"})
    again = http.post("/functions/v1/create-batch", json=NEW, headers={"idempotency-key": "a"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    other = http.post(
        "/functions/v1/create-batch", json={**NEW, "kg_produced": 1}, headers={"idempotency-key": "a"}
    )
    assert other.status_code == 422
    assert proof.one("select count(*) from raw_ops.batches") == 1


@pytest.mark.parametrize("scopes", [[], ["read"], ["enqueue"]])
def test_whoever_may_not_operate_creates_nothing(proof, site, scopes):
    headers = {"authorization": f"Bearer {site.token(*scopes)}"} if scopes else {}
    answer = site.visitor(**headers).http.post("/functions/v1/create-batch", json=NEW)
    assert answer.status_code == (403 if scopes else 401)
    assert proof.one("select count(*) from raw_ops.batches") == 0


def test_a_cookie_creates_nothing(proof, ana):
    assert ana.http.post("/functions/v1/create-batch", json=NEW).status_code == 401
    assert proof.one("select count(*) from raw_ops.batches") == 0


def test_another_tenants_operator_creates_nothing(proof, site):
    token = site.token("operate", tenant="acme")
    answer = site.visitor(authorization=f"Bearer {token}").http.post("/functions/v1/create-batch", json=NEW)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        ({"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, 413),
        ({"content": b"[" * 15_000, "headers": {"content-type": "application/json"}}, 400),
        ({"content": b"{}", "headers": {"content-type": "text/plain"}}, 415),
        ({"json": {"production_date": "soon", "kg_produced": 1}}, 422),
        ({"json": {**NEW, "more": 1}}, 422),
        ({"json": NEW, "headers": {"idempotency-key": "x" * 300}}, 400),
    ],
)
def test_what_is_no_batch_is_refused_with_a_reason(proof, site, given, status):
    http = site.visitor(authorization=f"Bearer {site.token('operate')}").http
    answer = http.post("/functions/v1/create-batch", **given)
    assert answer.status_code == status
    assert answer.json()["error"]
    assert proof.one("select count(*) from raw_ops.batches") == 0


@pytest.mark.slow
def test_an_outside_cron_drives_pipeline_and_monitor__trap_p16(proof, public):
    # No schedule comes due meanwhile, whose jobs would count.
    proof.clock.pin()
    proof.create()
    for path, body in (("process-proof-jobs", {}), ("run-monitor", {"check": "proof_system_health"})):
        for headers in ({}, {"x-worker-secret": "wrong"}, {"apikey": WORKER_SECRET}):
            assert public.post(f"/functions/v1/{path}", json=body, headers=headers).status_code == 401
    assert (proof.job().state, proof.one("select count(*) from raw_ops.monitoring_runs")) == ("queued", 0)

    mine = {"x-worker-secret": WORKER_SECRET}
    assert public.post("/functions/v1/process-proof-jobs", headers=mine).json() == {
        "success": True,
        "executed": 3,
    }
    assert (proof.job().state, len(proof.mail.kept)) == ("done", 1)
    answer = public.post("/functions/v1/run-monitor", headers=mine, json={"check": "proof_system_health"})
    assert (answer.status_code, answer.json()["success"]) == (200, True)
    assert (
        public.post("/functions/v1/run-monitor", headers=mine, json={"check": ["pg_sleep"]}).status_code
        == 404
    )
    assert public.get("/functions/v1/run-monitor", headers=mine).status_code == 404
    # What it finds is told, through the ledger.
    proof.dead_letter(proof.create())
    public.post("/functions/v1/run-monitor", headers=mine, json={"check": "proof_system_health"})
    assert proof.one("select count(*) from onceward.deliveries where kind = 'slack'") == 1


def test_whoever_guesses_has_to_wait(public):
    answers = {
        public.post("/functions/v1/process-proof-jobs", headers={"x-worker-secret": str(n)}).status_code
        for n in range(40)
    }
    assert answers == {401, 429}


@pytest.mark.slow
def test_files_are_public_or_opened_by_a_signed_link__trap_p15(proof, public):
    batch = proof.create()
    proof.drain()
    qr = public.get(f"/proof-assets/qr-codes/{batch['batch_code']}.png")
    assert (qr.status_code, qr.headers["content-type"]) == (200, "image/png")
    assert "max-age" in qr.headers["cache-control"]
    label = f"/proof-assets/batch-labels/{batch['batch_code']}.pdf"
    link = re.search(
        r"/proof-assets/batch-labels/\S+", proof.mail.kept[0].message.get_body(("plain",)).get_content()
    )[0]
    opened = public.get(link)
    assert (opened.status_code, opened.content[:5]) == (200, b"%PDF-")
    assert opened.headers["cache-control"] == "private, no-store"
    forged = re.sub(r"expires=\d+", "expires=99999999999", link)
    for wrong in (label, forged, link[:-1], link.replace("001.pdf", "002.pdf")):
        assert public.get(wrong).status_code == 403, wrong
    for path in (
        "qr-codes/../batch-labels/x.pdf",
        "qr-codes/%2e%2e/proof-link-secret",
        "..%2f..%2fetc/passwd",
    ):
        assert public.get(f"/proof-assets/{path}").status_code in {403, 404}, path


# ---------------------------------------------------------------- search and events


def test_the_search_tells_of_released_batches_only(proof, public):
    held, done = proof.create(), released(proof)

    def search(code):
        return public.get(f"{PAGES}/api/search", params={"code": code}).json()

    assert search(done["batch_code"].lower()) == {
        "found": True,
        "status": "RELEASED",
        "public_batch_id": done["public_batch_id"],
    }
    nothing = {"found": False, "status": None, "public_batch_id": None}
    for code in (held["batch_code"], held["public_batch_id"], "%", "PR-", "", "\0", "x" * 5000):
        assert search(code) == nothing, code


def test_the_search_cannot_enumerate(proof, public):
    batches = [released(proof) for _ in range(3)]
    # The beginning of an hour, whatever the time is.
    proof.clock.pin(datetime(2026, 11, 16, 12, tzinfo=UTC))
    answers = [public.get(f"{PAGES}/api/search", params={"code": f"PR-260320-{n:03}"}) for n in range(1, 30)]
    assert [answer.status_code for answer in answers] == [200] * 10 + [429] * 19
    assert answers[-1].headers["retry-after"] == "60"
    # Nor by the form, nor under another name of the browser.
    last = batches[-1]["batch_code"]
    assert public.get(f"{PAGES}/", params={"code": last}).status_code == 429
    again = public.get(f"{PAGES}/api/search", params={"code": last}, headers={"user-agent": "other"})
    assert again.status_code == 429
    # A minute later a few more, and in an hour forty.
    found = 0
    for _ in range(5):
        proof.clock.advance("1 min")
        found += sum(
            public.get(f"{PAGES}/api/search", params={"code": last}).status_code == 200 for _ in range(10)
        )
    assert found == 30


def test_events_are_capped_and_nothing_else_is_taken__trap_p12(proof, public):
    batch = released(proof)
    proof.clock.pin()
    event = {"event": "share_copy", "public_batch_id": batch["public_batch_id"]}

    def send(**given):
        return public.post(f"{PAGES}/api/event", **given).status_code

    assert send(json=event) == 202
    assert send(json={**event, "event": "hack"}) == 422
    assert send(json={**event, "meta": {"a": "\0"}}) == 422
    assert send(json={**event, "meta": {"a": "x" * 600}}) == 422
    assert send(json={**event, "meta": {"a": "x" * 5000}}) == 413
    assert send(json={**event, "public_batch_id": proof.create()["public_batch_id"]}) == 422
    assert send(content=b"event=share_copy") == 415
    assert send(content=b"nonsense", headers={"content-type": "application/json"}) == 400
    assert public.get(f"{PAGES}/api/event").status_code == 404
    assert [send(json=event) for _ in range(31)][-1] == 429
    assert proof.one("select count(*) from raw_ops.proof_page_events") == 30


# ---------------------------------------------------------------- pages


def test_each_status_has_its_page(proof, public):
    held, done, bad = proof.create(), released(proof), proof.create()
    proof.one("select raw_ops.fn_reject_batch_v1(%s, 'Salmonella')", bad["batch_id"])

    def page(batch):
        return public.get(f"{PAGES}/batch/{batch['public_batch_id']}")

    assert (
        "This batch is undergoing safety testing. Results will be published once verified." in page(held).text
    )
    assert "This batch did not pass our safety requirements." in page(bad).text
    assert "Salmonella was" not in page(bad).text
    text = page(done).text
    for said in (
        "Tested and released", "Salmonella", "Not detected", "Absent in 25 g", "None may be found.",
        "Less than 1 % of what is allowed.", "Eurofins", "CERT-1", "Complete Adult v2.1", "Beef (42 %)",
        f"https://proof.protocolraw.co.uk/batch/{done['public_batch_id']}/card.png",
    ):  # fmt: skip
        assert said in text, said
    # Nothing of the company's own.
    for private in (done["batch_code"], done["batch_id"], "3.8", "500 kg"):
        assert private not in text
    assert [page(batch).status_code for batch in (held, done, bad)] == [200, 200, 200]
    missing = public.get(f"{PAGES}/batch/PR-00000000")
    assert (missing.status_code, "Batch not found." in missing.text) == (404, True)
    lower = public.get(f"{PAGES}/batch/{done['public_batch_id'].lower()}")
    assert lower.status_code == 200


def test_the_latest_batch_and_the_sample(proof, public):
    assert public.get(f"{PAGES}/batch/PR-00LATEST").headers["location"] == f"{PAGES}/batch/sample"
    for path in ("/batch/sample", "/sample"):
        answer = public.get(PAGES + path)
        assert (answer.status_code, "Sample" in answer.text) == (200, True)
    done = released(proof)
    latest = public.get(f"{PAGES}/batch/PR-00LATEST")
    assert (latest.status_code, latest.headers["location"]) == (
        302,
        f"{PAGES}/batch/{done['public_batch_id']}",
    )
    assert done["public_batch_id"] in public.get(f"{PAGES}/").text


def test_pages_are_kept_by_caches_and_carry_no_cookie(proof, public):
    done = released(proof)
    for path in ("/", "/batch/sample", f"/batch/{done['public_batch_id']}", "/batch/PR-00000000"):
        answer = public.get(PAGES + path)
        assert "set-cookie" not in answer.headers
        assert answer.headers["cache-control"] == "public, max-age=60"
        assert "'unsafe" not in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        again = public.get(PAGES + path, headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == (304 if answer.status_code == 200 else 404)
        assert again.status_code != 304 or not again.content


def test_a_recall_changes_the_page_and_its_tag(proof, public):
    done = released(proof)
    path = f"{PAGES}/batch/{done['public_batch_id']}"
    before = public.get(path)
    proof.one("select raw_ops.fn_reject_batch_v1(%s, 'recalled')", done["batch_id"])
    after = public.get(path, headers={"if-none-match": before.headers["etag"]})
    assert after.status_code == 200
    assert "Do not feed it." in after.text
    assert "Not detected" not in after.text
    for gone in ("/certificate", "/card.png"):
        assert public.get(path + gone).status_code == 404


def test_who_types_the_code_of_a_recalled_batch_is_warned(proof, public):
    proof.clock.pin(datetime(2026, 11, 16, 12, tzinfo=UTC))
    recalled, never = released(proof), proof.create()
    for batch in (recalled, never):
        proof.one("select raw_ops.fn_reject_batch_v1(%s, 'glass in a pouch')", batch["batch_id"])
    for code in (recalled["batch_code"], recalled["public_batch_id"]):
        found = public.get(f"{PAGES}/", params={"code": code})
        assert (found.status_code, found.headers["location"]) == (
            303,
            f"{PAGES}/batch/{recalled['public_batch_id']}",
        )
    text = public.get(f"{PAGES}/batch/{recalled['public_batch_id']}").text
    for said in (">Recalled<", "We have recalled this batch. Do not feed it.", "16 November 2026", "Tell us"):
        assert said in text, said
    for unsaid in ("Not released", "did not pass", "Verified safe", "glass"):
        assert unsaid not in text, unsaid
    # One that was never sold: its page as before, and no way to it by the code.
    assert public.get(f"{PAGES}/", params={"code": never["batch_code"]}).status_code == 404
    text = public.get(f"{PAGES}/batch/{never['public_batch_id']}").text
    assert "This batch did not pass our safety requirements." in text
    assert "ecalled" not in text
    assert "Verified safe" not in text


def test_the_certificate_of_a_released_batch_is_open_and_its_place_is_not_told(proof, public):
    held, done = proof.create(), released(proof)
    answer = public.get(f"{PAGES}/batch/{done['public_batch_id']}/certificate")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/pdf")
    assert done["batch_code"] not in str(answer.headers)
    proof.record(held)
    assert public.get(f"{PAGES}/batch/{held['public_batch_id']}/certificate").status_code == 404
    assert public.get("/proof-assets/lab-reports/a.pdf").status_code == 403


def test_the_picture_for_chats(proof, public):
    done = released(proof)
    for name in (done["public_batch_id"], "sample"):
        picture = public.get(f"{PAGES}/batch/{name}/card.png")
        assert (picture.status_code, picture.headers["content-type"]) == (200, "image/png")
        assert int.from_bytes(picture.content[16:20], "big") == 1200
    assert public.get(f"{PAGES}/batch/PR-00000000/card.png").status_code == 404


def test_a_host_name_of_its_own_has_the_pages_and_nothing_else(proof, serve):
    done = released(proof)
    http = serve(public_host="proof.example").visitor(host="proof.example").http
    assert "See what the lab found" in http.get("/").text
    page = http.get(f"/batch/{done['public_batch_id']}")
    assert f'href="/batch/{done["public_batch_id"]}/certificate"' in page.text
    assert http.get("/batch/PR-00LATEST").headers["location"] == f"/batch/{done['public_batch_id']}"
    assert http.get("/api/search", params={"code": done["batch_code"]}).json()["found"]
    for path in ("/jobs", "/proof/batches", "/functions/v1/create-batch"):
        answer = http.get(path)
        assert (answer.status_code, "There is no such page." in answer.text) == (404, True), path


def test_texts_of_people_cannot_become_markup(proof, public):
    evil = "<script>alert(1)</script>"
    batch = proof.create()
    proof.one(
        "select raw_ops.fn_record_lab_results_v1(%s, %s, %s, %s, %s)",
        batch["batch_id"],
        Jsonb([
            {"parameter": name, "method": evil, "result": evil, "limit": evil, "passed": True}
            for name in ("Salmonella", "Enterobacteriaceae")
        ]),
        evil, evil, DAY,
    )  # fmt: skip
    proof.release(batch)
    text = public.get(f"{PAGES}/batch/{batch['public_batch_id']}").text
    assert evil not in text
    assert "&lt;script&gt;" in text
    found = public.get(f"{PAGES}/", params={"code": f'"{evil}'})
    assert (found.status_code, evil in found.text) == (404, False)
