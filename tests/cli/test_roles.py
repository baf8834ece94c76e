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


def test_a_role_without_rights_is_told_which_it_needs(db, login):
    cli = Cli(login())

    for command in (["job", "list"], ["lane", "list"], ["workers"]):
        error = cli.refused(1, *command)
        assert "permission denied" in error
        assert "grant onceward_operator to" in error


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
