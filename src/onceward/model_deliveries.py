"""Deliveries, as calls take and return them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

Json: TypeAlias = Any


class Delivery(NamedTuple):
    """The answer of deliver: which delivery, whether this call created it, and where it stands."""

    id: UUID
    created: bool
    state: str


@dataclass(frozen=True, slots=True)
class DeliveryInfo:
    """One row of the view `deliveries`."""

    id: UUID
    tenant: str
    kind: str
    key: str
    state: str
    tries: int
    provider: str | None
    provider_ref: str | None
    created_at: datetime
    first_try_at: datetime | None
    sending_at: datetime | None
    next_try_at: datetime | None
    unclear_since: datetime | None
    ended_at: datetime | None
    error_type: str | None
    category: str | None
    message: str | None
    decided_by: str | None
    note: str | None
    is_alert: bool
    # The job whose handler has asked for it.
    made_by: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries a list means.  Empty means all."""

    states: Sequence[str] = ()
    kind: str | None = None
    key: str | None = None
    tenant: str | None = None
    limit: int = 50
    before: UUID | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class BegunDelivery:
    """What begin_delivery hands out: what to send, and whether an earlier try may have arrived."""

    kind: str
    key: str
    tenant: str
    content: Json = field(repr=False)
    tries: int
    first_try_at: datetime
    sending_at: datetime
    unclear_since: datetime | None
    unclear_provider: str | None
