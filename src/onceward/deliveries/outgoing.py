"""What passes between the ledger and a provider: one effect to send, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol
from uuid import UUID

from onceward.model import Json

Verdict = Literal["sent", "not_sent", "unknown"]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One try of one delivery."""

    id: UUID
    kind: str
    key: str
    tenant: str
    # Address and text: kept out of every representation, so that it reaches no log.
    content: dict[str, Json] = field(repr=False)
    tries: int
    first_try_at: datetime
    # When this try began, by the database's clock.
    sending_at: datetime
    # Since then, an earlier try may have arrived; None: certainly not.
    unclear_since: datetime | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every try, for providers that take one."""
        return f"onceward/{self.id}"


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider has taken it.  `ref` is its own name for it, without private parts."""

    ref: str | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """It did not arrive, or nobody knows.  The message must name neither address nor content."""

    category: str
    message: str
    # It cannot pass later either.
    permanent: bool = False
    # The receiver may have acted.
    unclear: bool = False
    retry_after: timedelta | None = None


Report = Sent | NotSent


class Provider(Protocol):
    """A way to send one kind of delivery."""

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        ...

    @property
    def idempotent_for(self) -> timedelta | None:
        """For how long the same delivery, sent again, has no second effect; None: a second try is a second effect."""
        ...

    async def send(self, outgoing: Outgoing) -> Report:
        """One try.  Reports what happened; an exception counts as an unclear outcome."""
        ...
