"""`onceward audit` as people use it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.support.audit import fill, seal


def test_the_newest_entries_come_first_and_can_be_chosen(cli, db):
    job = db.dead_letter(tenant="acme")
    db.call("pause_lane", name="default", reason="provider is down")
    db.call("record_event", kind="invoice.approved", entity_type="invoice", entity_id="42", actor="jane")

    everything = cli.json("audit", "list")
    assert [entry["kind"] for entry in everything] == ["invoice.approved", "lane.paused", "job.dead_letter"]
    for options, kinds in {
        ("--kind", "job."): ["job.dead_letter"],
        ("--kind", "lane.paused"): ["lane.paused"],
        ("--kind", "lane"): [],
        ("--actor", "jane"): ["invoice.approved"],
        ("--entity", "invoice:42"): ["invoice.approved"],
        ("--entity", "lane"): ["lane.paused"],
        ("--job", str(job)): ["job.dead_letter"],
        ("--limit", "1"): ["invoice.approved"],
        ("--before", "2"): ["job.dead_letter"],
        ("--tenant", "acme"): ["job.dead_letter"],
    }.items():
        assert [entry["kind"] for entry in cli.json("audit", "list", *options)] == kinds, options
    shown = cli.ok("audit", "list").out
    assert "lane default" in shown
    assert "running → dead_letter" in shown
    assert f"job {job}"[:20] in shown


def test_one_entry_is_shown_with_its_seal(cli, db):
    fill(db, 1)
    assert "not sealed yet" in cli.ok("audit", "show", 1).out
    seal(db)
    shown = cli.ok("audit", "show", 1).out
    assert "number 1" in shown
    assert "thing 1" in shown
    assert cli.json("audit", "show", 1)["seal"] == 1
    assert "audit entry 7 does not exist" in cli.refused(1, "audit", "show", 7)


def test_the_jobs_of_a_batch_are_listed(cli, db):
    ids = [row.job_id for row in db.enqueue_many("ocr", [{}] * 3)]
    db.exchange(db.claims(3))
    assert "3 jobs" in cli.ok("audit", "list").out
    shown = cli.ok("audit", "show", 1).out
    assert all(str(job) in shown for job in ids)


def test_sealing_and_its_status(cli, db):
    fill(db, 3)
    assert cli.json("audit", "status")["unsealed"] == 3
    assert cli.ok("audit", "seal").err == "3 entries sealed in 1 seal\n"
    assert cli.ok("audit", "seal").err == "nothing to seal\n"
    status = cli.json("audit", "status")
    assert (status["seals"], status["sealed"], status["unsealed"]) == (1, 3, 0)
    assert len(status["head"]) == 64
    assert "sealed entries" in cli.ok("audit", "status").out


def test_a_log_that_is_whole_is_verified_and_a_changed_one_is_not(cli, db, tmp_path):
    fill(db, 5)
    kept = tmp_path / "checkpoint.json"
    cli.ok("audit", "checkpoint", "--output", kept)
    good = cli.ok("audit", "verify", "--checkpoint", kept)
    assert "the log is whole, and goes on from the checkpoint" in good.err
    assert "hint: Only a checkpoint" in cli.ok("audit", "verify").err

    with db.conn.transaction():
        db.run("set local session_replication_role = replica")
        db.run("update onceward.audit_private set actor = 'somebody else' where seq = 3")
    bad = cli("audit", "verify")
    assert bad.status == 1
    assert "entry_edited" in bad.out
    assert "error: the log is not whole: 1 finding" in bad.err
    found = cli("audit", "verify", "--json")
    assert found.status == 1
    assert found.json["whole"] is False
    assert [(f["kind"], f["seal"], f["entry"]) for f in found.json["findings"]] == [("entry_edited", 1, 3)]


def test_a_checkpoint_is_signed_and_a_proof_is_checked(cli, db, tmp_path):
    from onceward.audit import verifier

    fill(db, 5)
    key, kept, proof = tmp_path / "audit.key", tmp_path / "checkpoint.json", tmp_path / "proof.json"
    cli.ok("audit", "keygen", "--output", key)
    cli.ok("audit", "checkpoint", "--output", kept, "--key", key)
    cli.ok("audit", "verify", "--checkpoint", kept, "--key", f"{key}.pub")
    cli.ok("audit", "proof", 2, "--checkpoint", kept, "--output", proof)

    assert verifier.main([str(proof), str(kept), "--key", f"{key}.pub"]) == 0
    assert json.loads(proof.read_text())["entry"]["seq"] == "2"
    assert (
        cli.json("audit", "list", "--kind", "audit.checkpoint")[0]["meta"]["key"]
        == json.loads(kept.read_text())["key"]
    )
    assert "is not covered" in cli.refused(1, "audit", "proof", 6, "--checkpoint", kept)


def test_a_checkpoint_goes_to_standard_output(cli, db):
    fill(db, 1)
    assert cli.ok("audit", "checkpoint").json["seals"] == 1


@pytest.mark.parametrize(
    ("target", "kind", "field"),
    [("webhook:https://example.com/hook", "webhook", "payload"), ("email:ops@example.com", "email", "text"), ("slack:ops", "slack", "text")],
)  # fmt: skip
def test_a_checkpoint_is_delivered(cli, db, target, kind, field):
    fill(db, 1)
    answer = cli.ok("audit", "checkpoint", "--deliver-to", target)
    assert answer.out == ""
    (delivery,) = db.run("select * from onceward.deliveries")
    content = db.answer("delivery_content", delivery_id=delivery.id)
    assert delivery.kind == kind
    assert db.value("select encode(head, 'hex') from onceward.seals where number = 1") in json.dumps(
        content[field]
    )


def test_days_are_dropped_after_a_checkpoint(cli, db, tmp_path):
    fill(db, 3)
    db.clock.advance(timedelta(days=1))
    today = db.value("select (onceward.now() at time zone 'UTC')::date")
    assert "is not sealed" in cli.refused(1, "audit", "drop", "--before", today, "--yes")
    cli.ok("audit", "checkpoint", "--output", tmp_path / "c.json")
    assert "3 entries" in cli.ok("audit", "drop", "--before", today, "--yes").err
    assert cli("audit", "verify", "--checkpoint", tmp_path / "c.json").status == 0


def test_what_a_lane_tells_is_chosen(cli, db):
    assert 'every transition of lane "default"' in cli.ok("lane", "audit", "default", "all").err
    assert "nothing changed" in cli.ok("lane", "audit", "default", "all").err
    assert cli.json("lane", "list")[0]["audit"] == "all"
    assert "MODE" in cli.refused(2, "lane", "audit", "default", "off")
    assert "Did you mean" in cli.refused(1, "lane", "audit", "defualt", "all")


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("audit", "list", "--job", "01a1e24e-b234-7902-ae8a-6dfe00ce7eab", "--kind", "x"), "--job does not go with --kind"),
        (("audit", "list", "--limit", "0"), "--limit"),
        (("audit", "verify", "--key", "x"), "--key goes with --checkpoint"),
        (("audit", "drop", "--before", "soon", "--yes"), "must be a date"),
    ],
)  # fmt: skip
def test_a_command_line_that_is_none(cli, arguments, fragment):
    assert fragment in cli.refused(2, *arguments)


def test_an_auditor_verifies_and_cannot_drop(cli, db, login, tmp_path):
    fill(db, 3)
    auditor = login("onceward_auditor")
    assert cli("audit", "checkpoint", "--output", tmp_path / "c.json", dsn=auditor).status == 0
    assert cli("audit", "verify", "--checkpoint", tmp_path / "c.json", dsn=auditor).status == 0
    assert "onceward_operator" in cli.refused(
        1, "audit", "drop", "--before", "2020-01-01", "--yes", dsn=auditor
    )
    assert "as a whole" in cli.refused(1, "audit", "verify", "--tenant", "acme", dsn=auditor)


def test_a_producer_does_not_read_the_log(cli, db, login):
    assert "onceward_auditor" in cli.refused(1, "audit", "list", dsn=login("onceward_producer"))
