"""The command line under roles with few rights: what they may do works, the rest is explained."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


def test_an_operator_sees_and_acts_for_every_tenant(db, login):
    cli = Cli(login("onceward_operator"))
    red, blue = db.enqueue(tenant="red"), db.enqueue(tenant="blue")

    assert len(cli.json("job", "list")) == 2
    assert cli.ok("job", "cancel", red, blue).out.count("cancelled") == 2


def test_an_owner_of_the_schema_sees_and_acts_for_every_tenant(db, login):
    cli = Cli(login("onceward_owner"))
    red = db.enqueue(tenant="red")

    assert len(cli.json("job", "list")) == 1
    assert cli.ok("job", "cancel", red).out == f"{red} cancelled\n"


def test_an_auditor_reads_and_is_told_why_acting_fails(db, login):
    cli = Cli(login("onceward_auditor"))
    job = db.enqueue(tenant="red")

    assert len(cli.json("job", "list")) == 1
    error = cli.refused(1, "job", "cancel", job)
    assert "permission denied" in error
    assert "onceward_operator" in error
    assert db.state(job) == "ready"


def test_a_producer_sees_one_tenant_and_is_told_to_name_it(db, login):
    cli = Cli(login("onceward_producer"))
    db.enqueue(tenant="red")
    db.enqueue(tenant="blue")

    nothing = cli.ok("job", "list", "--json")

    assert nothing.json == []
    assert "Name one with --tenant" in nothing.err
    assert len(cli.json("job", "list", "--tenant", "red")) == 1
    assert cli.json("lane", "list", "--tenant", "red")[0]["ready"] == 1


def test_workflows_steps_and_events_under_every_role(db, login):
    flow = db.job(db.workflow({"name": "a"}, {"name": "b", "after": ["a"]}, tenant="red")["a"]).workflow_id
    claim = db.claim()
    db.finish_step(claim, "priced")
    db.fail(claim, "declined")
    operator, auditor, producer = (
        Cli(login(f"onceward_{role}")) for role in ("operator", "auditor", "producer")
    )

    for cli, options in ((operator, ()), (auditor, ()), (producer, ("--tenant", "red"))):
        assert cli.json("workflow", "show", flow, *options)["jobs"] == 2
        assert len(cli.json("step", "partial", *options)) == 1
        assert [step["name"] for step in cli.json("step", "list", claim.job_id, *options)] == ["priced"]
        assert cli.ok("job", "show", claim.job_id, *options)
        assert cli.json("event", "list", *options) == []
    for cli in (producer, auditor):
        assert "permission denied" in cli.refused(1, "workflow", "requeue", flow, "--tenant", "red")
    assert "permission denied" in auditor.refused(1, "event", "emit", "paid", "--tenant", "red")
    assert producer.json("event", "emit", "paid", "--tenant", "red")["emitted"]
    assert producer.json("workflow", "cancel", flow, "--tenant", "red")["jobs"] == 2
    assert operator.json("workflow", "requeue", flow)["jobs"] == 2
    assert "Name one with --tenant" in producer.ok("workflow", "list").err


def test_a_role_without_rights_is_told_which_it_needs(db, login):
    cli = Cli(login())

    for command in (["job", "list"], ["lane", "list"], ["workers"], ["db", "status"]):
        error = cli.refused(1, *command)
        assert "permission denied" in error
        assert "grant onceward_auditor to" in error


@pytest.mark.parametrize(
    "role", ["onceward_operator", "onceward_auditor", "onceward_worker", "onceward_producer"]
)
def test_doctor_works_for_every_role(login, role):
    findings = Cli(login(role))("doctor", "--json").json

    assert not [finding for finding in findings if finding["value"] == "could not look"]


def test_doctor_for_a_role_without_rights_reports_what_it_could_see(login):
    answer = Cli(login())("doctor", "--json")

    assert answer.status == 1
    by_name = {finding["name"]: finding for finding in answer.json}
    assert by_name["fsync"]["status"] in {"ok", "fail"}
    assert by_name["roles"]["status"] == "fail"
    assert "grant onceward_producer" in by_name["roles"]["action"]
