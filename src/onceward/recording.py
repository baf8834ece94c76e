"""What an application writes into the audit log: `client.record_event`."""

from __future__ import annotations

from typing import TypedDict
from uuid import UUID

from onceward import calls, jsonsafe
from onceward.calls import Call
from onceward.errors import InvalidArgument, shown
from onceward.model import Json
from onceward.model_audit import EventRecord


class AuditEvent(TypedDict, total=False):
    """What record_event takes beside the kind.  `actor` is who did it, in the application's words."""

    message: str | None
    entity_type: str | None
    entity_id: str | int | UUID | None
    before: Json
    after: Json
    meta: Json
    job_id: UUID | None
    actor: str | None
    tenant: str | None


def record_event(kind: str, given: AuditEvent, *, tenant: str | None) -> Call[int]:
    """The call; `tenant` is the client's, which counts when the event names none."""
    unknown = set(given) - set(AuditEvent.__annotations__)
    if unknown:
        raise InvalidArgument(
            f"record_event has no option {', '.join(sorted(unknown))}",
            hint=f"Options: {', '.join(sorted(AuditEvent.__annotations__))}.",
        )
    for name in ("message", "entity_type", "actor", "tenant"):
        value = given.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{name} must be a text, got {shown(value)}")
    entity_id = given.get("entity_id")
    return calls.record_event(
        EventRecord(
            kind,
            message=given.get("message"),
            entity_type=given.get("entity_type"),
            entity_id=None if entity_id is None else str(entity_id),
            before=_json("before", given),
            after=_json("after", given),
            meta=_json("meta", given),
            job_id=given.get("job_id"),
            actor=given.get("actor"),
            tenant=given.get("tenant") or (None if tenant == "*" else tenant),
        )
    )


def _json(name: str, given: AuditEvent) -> str | None:
    value = given.get(name)
    return None if value is None else jsonsafe.dumps(value, what=name)
