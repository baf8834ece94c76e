"""Pages of the audit log, of retention and of legal holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import timedelta

import pytest


def rows(text: str) -> int:
    return text.count("<tr data-line>")


def test_the_log_is_searched_by_what_stands_in_the_address(ana, db):
    job = db.dead_letter("charge")
    ana.post("/lanes/default/pause", reason="works")

    assert rows(ana.get("/audit?kind=lane.")) == 1
    assert rows(ana.get("/audit?kind=lane.paused&actor=ana")) == 1
    assert rows(ana.get("/audit?entity=lane&id=default")) == 1
    assert rows(ana.get(f"/audit?job={job}")) >= 1
    assert rows(ana.get(f"/audit?job={job}&kind=lane.")) == 0
    assert rows(ana.get("/audit?until=1h")) == 0
    assert rows(ana.get("/audit?actor=nobody")) == 0
    assert "lane.paused" in ana.get("/audit.csv?kind=lane.")
    assert "job.dead_letter" in ana.get(f"/jobs/{job}")
    for wrong in ("job=7", "since=yesterday", "before=x"):
        ana.get(f"/audit?{wrong}", 400)


def test_pages_of_the_log_follow_each_other_without_gap_or_repetition(ana, db):
    for n in range(120):
        db.call("record_event", kind="shop.sold", message=str(n))
    seen, path = [], "/audit?kind=shop.sold"
    while path:
        text = ana.get(path)
        seen += [int(seq) for seq in re.findall(r'mono"><a href="/audit/(\d+)"', text)]
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = following[1].replace("&amp;", "&") if following else None
    assert len(seen) == len(set(seen)) == 120
    assert seen == sorted(seen, reverse=True)


def test_an_entry_is_shown_with_its_seal_and_proved_without_the_database(ana, db, tmp_path):
    ana.post("/lanes/default/pause", reason="works")
    seq = db.value("select seq from onceward.audit_log where kind = 'lane.paused'")
    assert "not sealed yet" in ana.get(f"/audit/{seq}")
    ana.get(f"/audit/{seq}/proof.json", 409)
    db.call("seal")
    text = ana.get(f"/audit/{seq}")
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/audit/[^"]*\.json[^"]*)"', text)]
    # The log goes on between the two downloads; they fit together all the same.
    proof = ana.get(next(link for link in links if "proof" in link))
    ana.post("/lanes/default/resume")
    db.call("seal")
    checkpoint = ana.get(next(link for link in links if "checkpoint" in link))
    (tmp_path / "proof").write_text(proof)
    (tmp_path / "checkpoint").write_text(checkpoint)
    command = [sys.executable, "-m", "onceward.audit.verifier", tmp_path / "proof", tmp_path / "checkpoint"]

    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (tmp_path / "proof").write_text(proof.replace("works", "peace"))
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    ana.get("/audit/999999", 404)
    ana.get("/audit/x", 404)
    ana.get("/audit/checkpoint.json?seals=99", 400)


def test_a_checkpoint_is_taken_and_the_log_says_by_whom(ana, db):
    ana.post("/lanes/default/pause")
    answer = ana.post("/audit/checkpoint", 200)
    made = json.loads(answer.text)

    assert "attachment" in answer.headers["content-disposition"]
    assert made["seals"] == db.value("select max(number) from onceward.seals")
    entry = db.one("select * from onceward.audit_log where kind = 'audit.checkpoint'")
    assert "download by ana" in json.dumps([entry.message, entry.after, entry.meta])


def test_the_log_is_verified_and_a_forgery_is_found(ana, db):
    ana.post("/lanes/default/pause", reason="works")
    kept = ana.post("/audit/checkpoint", 200).text

    assert "The log is whole" in ana.post("/audit/verify", 200).text
    assert "go on from your checkpoint" in ana.post("/audit/verify", 200, checkpoint=kept).text
    assert "is not a checkpoint" in ana.post("/audit/verify", 400, checkpoint="{}").text
    cut = json.dumps({**json.loads(kept), "seals": 99})
    assert "truncated" in ana.post("/audit/verify", 200, checkpoint=cut).text
    with db.conn.transaction():
        db.run("set local session_replication_role = replica")
        db.run("update onceward.audit_private set message = 'peace' where kind = 'lane.paused'")
    text = ana.post("/audit/verify", 200).text
    assert "The log is not whole" in text
    assert "entry edited" in text


def test_one_verification_runs_at_a_time(ana, site, db):
    with site.web.verifying:
        assert "Another verification is running" in ana.post("/audit/verify", 200).text
    assert "The log is whole" in ana.post("/audit/verify", 200).text
    assert site.web.verifying.acquire(timeout=20)
    site.web.verifying.release()


def test_who_sees_one_tenant_sees_its_entries_and_no_seals(site, db):
    db.dead_letter("mine", tenant="acme")
    db.dead_letter("theirs", tenant="bolt")
    db.call("seal")
    bound = site.signed_in("otto", "operator", "acme")
    text = bound.get("/audit")

    mine, theirs = (db.value("select seq from onceward.audit_log where kind = 'job.dead_letter' and tenant = %s", tenant)
                    for tenant in ("acme", "bolt"))  # fmt: skip
    assert f"/audit/{mine}" in text
    assert f"/audit/{theirs}" not in text
    assert "Root of its entries" not in bound.get(f"/audit/{mine}")
    bound.get(f"/audit/{theirs}", 404)
    for path in (f"/audit/{mine}/proof.json", "/audit/checkpoint.json", "/audit/verify", "/retention"):
        bound.get(path, 403)
    bound.post("/audit/checkpoint", 403)
    bound.post("/audit/verify", 403)


def test_what_is_kept_is_set_and_what_would_go_is_shown(ana, db):
    kind = db.value(
        "select kind from onceward.retention where keep is not null and least_keep < interval '30 days' limit 1"
    )

    ana.post(f"/retention/keep/{kind}", keep="45d")
    assert db.value("select keep from onceward.retention where kind = %s", kind) == timedelta(days=45)
    ana.post(f"/retention/keep/{kind}", keep="for ever")
    assert db.value("select keep from onceward.retention where kind = %s", kind) is None
    ana.post(f"/retention/keep/{kind}", 400, keep="long")
    ana.post("/retention/keep/nothing", 400, keep="45d")
    before = db.contents()
    assert "Would go" in ana.post("/retention", 200).text
    after = db.contents()
    assert {name for name in before if before[name] != after[name]} <= {"session_private"}


def test_a_tenant_is_held_and_released_with_a_reason(ana, db):
    ana.post("/retention/hold", 400, tenant="acme")
    ana.post("/retention/hold", tenant="acme", reason="case 7")
    assert "case 7" in ana.get("/retention")
    ana.post("/retention/release", 400, tenant="acme")
    ana.post("/retention/release", tenant="acme", reason="settled")
    assert not db.one("select * from onceward.legal_holds").active
    assert "case 7" not in ana.get("/retention")
    assert "settled" in ana.get("/retention?all=1")


def test_viewers_read_the_log_and_change_nothing(site, db):
    db.call("record_event", kind="shop.sold")
    db.call("seal")
    viewer = site.signed_in("vic", "viewer")

    for path in ("/audit", "/audit/verify", "/retention"):
        assert not re.search(r'method="post" action="/(audit|retention)', viewer.get(path))
    assert "shop.sold" in viewer.get("/audit")
    seq = db.value("select seq from onceward.audit_log where kind = 'shop.sold'")
    assert json.loads(viewer.get(f"/audit/{seq}/proof.json"))["format"] == "onceward.audit.proof/1"
    for path in ("/audit/checkpoint", "/audit/verify", "/retention/hold"):
        assert viewer.http.post(path, data={}).status_code == 403


@pytest.mark.parametrize("path", ["/audit", "/alerts", "/limits", "/monitors", "/retention"])
def test_nobody_who_has_not_signed_in_sees_it(serve, db, path):
    site = serve()
    site.link()
    assert site.visitor().http.get(path).status_code == 303
