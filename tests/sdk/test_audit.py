"""The audit log from Python: recording, reading, and workers that seal."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from onceward import AsyncClient, Client, Onceward, calls
from onceward.audit import Audit
from onceward.errors import InvalidArgument
from onceward.model_audit import AuditFilter
from onceward.worker import Worker, maintenance
from tests.sdk import shop


def test_an_application_records_and_reads(client):
    number = client.record_event(
        "invoice.approved", entity_type="invoice", entity_id=42, before={"state": "open"}, after={"state": "approved"},
        meta={"limit": 1.5}, message="over the limit", actor="jane",
    )  # fmt: skip

    (entry,) = client.audit_entries(AuditFilter(kind="invoice."))
    assert (entry.seq, entry.kind, entry.source, entry.actor) == (
        number,
        "invoice.approved",
        "application",
        "jane",
    )
    assert (entry.entity_type, entry.entity_id, entry.message) == ("invoice", "42", "over the limit")
    assert (entry.before, entry.after, entry.meta) == (
        {"state": "open"},
        {"state": "approved"},
        {"limit": 1.5},
    )


def test_a_record_is_part_of_the_callers_transaction(plain, onceward_database):
    with psycopg.connect(onceward_database) as connection:
        plain.record_event("note", connection=connection)
        connection.rollback()
        assert plain.audit_entries(AuditFilter(kind="note")) == []
        plain.record_event("note", connection=connection)
        connection.commit()
    assert len(plain.audit_entries(AuditFilter(kind="note"))) == 1


def test_the_tenant_of_the_client_is_that_of_its_records(onceward_database):
    with Client(onceward_database, tenant="acme") as client:
        client.record_event("note")
        assert [entry.tenant for entry in client.audit_entries()] == ["acme"]
    with Client(onceward_database, tenant="*") as client:
        client.record_event("note")
        assert client.audit_entries()[0].tenant == "default"


@pytest.mark.parametrize(
    "event",
    [{"entity": "x"}, {"message": 7}, {"meta": {"x": float("nan")}}, {"before": {1, 2}}, {"entity_id": "7"}],
    ids=str,
)
def test_a_record_that_is_not_one_is_refused(plain, event):
    with pytest.raises(InvalidArgument):
        plain.record_event("note", **event)
    assert plain.audit_entries(AuditFilter(kind="note")) == []


def test_a_null_in_a_message_does_not_keep_it_from_being_recorded(plain):
    plain.record_event("note", message="a\0b")
    (entry,) = plain.audit_entries(AuditFilter(kind="note"))
    assert entry.message is not None
    assert "\0" not in entry.message


def test_a_job_has_its_entries(plain):
    job = plain.enqueue(shop.greet, {"name": "Ada"})
    plain.cancel(job, "no longer wanted")
    assert [(entry.kind, entry.message) for entry in plain.audit_of(job)] == [
        ("job.cancelled", "no longer wanted")
    ]


def test_a_running_worker_seals(onceward_database, monkeypatch):
    monkeypatch.setattr(maintenance, "SEAL_EVERY", 0.0)
    app = Onceward()

    @app.task(name="nothing")
    async def nothing() -> None:
        pass

    async def go() -> None:
        worker = Worker(app, dsn=onceward_database)
        worker.passes.listen()
        running = asyncio.create_task(worker.run())
        async with AsyncClient(onceward_database, app=app, tenant="*") as client:
            await client.enqueue(nothing)
            while not (await client.run(calls.audit_status())).sealed:
                await worker.passes.next()
        worker.stop()
        await running

    asyncio.run(asyncio.wait_for(go(), 60))
    with Client(onceward_database, tenant="*") as client:
        audit = Audit(client)
        audit.seal()
        assert audit.verify().whole
        assert [entry.kind for entry in client.audit_entries()] == ["job.done"]


def test_the_log_as_an_object(onceward_database, tmp_path):
    with Client(onceward_database, tenant="*") as client:
        audit = Audit(client)
        empty = audit.checkpoint()
        audit.exported(empty, "nowhere")
        number = client.record_event("note")
        made = audit.checkpoint()
        audit.exported(made, "a safe")

        assert (made["seals"], made["entries"]) == (1, 1)
        assert audit.proof(number, made)["entry"]["seq"] == str(number)
        assert audit.verify([empty, made]).checkpoints == 2
        assert [entry.kind for entry in client.audit_entries()] == ["audit.checkpoint", "note"]
        assert audit.status().unsealed == 1
