"""What the calls about limits, shares and bounds take and return: plain values without behaviour."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from onceward import jsonsafe
from onceward.errors import InvalidArgument, shown
from onceward.model import Json

Amount: TypeAlias = int | Callable[[Any], int]
Key: TypeAlias = str | Callable[[Any], str]
LimitOver: TypeAlias = Literal["accept", "defer"]
BoundOver: TypeAlias = Literal["signal", "defer", "reject"]


@dataclass(frozen=True, slots=True)
class Use:
    """A limit that jobs of a task use; made by `use`."""

    limit: str
    # How much of its weight, and which key: a value, or a function of the payload.
    weight: Amount | None = None
    key: Key | None = None

    def of(self, payload: object) -> dict[str, Json]:
        """As onceward.enqueue reads it."""
        use: dict[str, Json] = {"limit": self.limit}
        if self.weight is not None:
            weight = self.weight(payload) if callable(self.weight) else self.weight
            if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
                raise InvalidArgument(
                    f"tokens of limit {self.limit} must be a whole number of at least 0, got {shown(weight)}",
                    detail="Nothing was written.",
                )
            use["weight"] = weight
        if self.key is not None:
            key = self.key(payload) if callable(self.key) else self.key
            if not isinstance(key, str) or not key or jsonsafe.printable(key) != key:
                raise InvalidArgument(
                    f"key of limit {self.limit} must be a text, got {shown(key)!r}",
                    detail="Nothing was written.",
                )
            use["key"] = key
        return use


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit as it is declared or set.  At least one of requests, tokens and slots."""

    name: str
    requests: int | None = None
    per: timedelta = timedelta(minutes=1)
    tokens: int | None = None
    # The same as `per`, unless given.
    tokens_per: timedelta | None = None
    slots: int | None = None
    burst: int | None = None
    tokens_burst: int | None = None
    allowance: timedelta | None = None
    per_key: bool = False
    threshold: float = 0.8
    over: LimitOver = "accept"

    def to_json(self) -> dict[str, Json]:
        """As onceward.declare_limits reads it."""
        given: dict[str, Json] = {
            "name": self.name,
            "requests": self.requests,
            "period": _interval(self.per),
            "weight": self.tokens,
            "weight_period": _interval(self.tokens_per),
            "slots": self.slots,
            "burst": self.burst,
            "weight_burst": self.tokens_burst,
            "allowance": _interval(self.allowance),
            "per_key": self.per_key,
            "threshold": self.threshold,
            "over": self.over,
        }
        return {name: value for name, value in given.items() if value is not None}


def _interval(value: timedelta | None) -> str | None:
    return None if value is None else f"{value.total_seconds():f} seconds"


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """One row of the view `limits`: a limit and what is left of it, for one key."""

    name: str
    # Empty when the limit is not per key; None when nobody has used it.
    key: str | None
    requests: int | None
    period: timedelta | None
    weight: int | None
    weight_period: timedelta | None
    slots: int | None
    burst: float | None
    weight_burst: float | None
    allowance: timedelta
    per_key: bool
    threshold: float
    over: str
    source: str
    requests_left: float | None
    weight_left: float | None
    slots_held: int | None
    next_room_at: datetime | None
    # Why there is no room.
    reason: str | None
    paused_until: datetime | None
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class Acquired:
    """The answer of acquire: a hold, or how long to wait and why."""

    hold_id: UUID | None
    wait: timedelta | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class BoundInfo:
    """One row of the view `bounds`: a bound, and what was measured last."""

    lane: str
    # Empty: the whole lane; *: each tenant.
    tenant: str
    max_depth: int | None
    max_age: timedelta | None
    max_bytes: int | None
    over: str
    defer_by: timedelta
    measured_tenant: str | None
    depth: int | None
    oldest_at: datetime | None
    bytes: int | None
    # What is above the bound, if anything.
    reason: str | None
    measured_at: datetime | None


@dataclass(frozen=True, slots=True)
class ShareInfo:
    """One row of the view `shares`."""

    lane: str
    tenant: str
    share: int


def check_limits(limits: Sequence[Use], *, of: str | None = None) -> tuple[Use, ...]:
    """Raises InvalidArgument; `of` is whose they are."""
    wrong: object = limits
    if isinstance(limits, (list, tuple)):
        wrong = next((item for item in limits if not isinstance(item, Use)), None)
    if wrong is not None:
        raise InvalidArgument(
            f"limits{f' of {of}' if of else ''} must be a list of use(...), got {shown(wrong)!r}",
            hint='from onceward.limits import use; limits=[use("openai")]',
        )
    return tuple(limits)


def uses_json(uses: Sequence[Use], payload: object) -> list[dict[str, Json]]:
    return [use.of(payload) for use in uses]


@dataclass(frozen=True, slots=True)
class LimitLevel:
    """One row of the view `limit_history`: a minute of a limit.  Of a limit per key, of the emptiest key."""

    name: str
    at: datetime
    # What was left, from 0 to 1.
    level: float
    # Ready jobs that used it, counted up to ten thousand.
    waiting: int
    paused: bool
