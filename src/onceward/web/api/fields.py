"""What fields of requests and answers are made of, and answers derived from what the engine returns."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_type_hints

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    create_model,
)

from onceward.model import STATES

MOST = 500
_EARLIEST, _LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


class Sent(BaseModel):
    """What a request may say: these fields, of these types, and nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _text(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("must be a text")  # noqa: TRY004 # pydantic takes ValueError
    return value


def _storable(value: datetime) -> datetime:
    if not _EARLIEST <= value <= _LATEST:
        raise ValueError("must be a time between 2000 and 2200")
    return value


# A time as RFC 3339 with a zone; a number could mean seconds or milliseconds.
When = Annotated[AwareDatetime, BeforeValidator(_text), AfterValidator(_storable)]
# Of answers.
Seconds = Annotated[timedelta, PlainSerializer(timedelta.total_seconds, return_type=float)]
# Of requests.
Duration = Annotated[float, Field(strict=True, ge=0, le=315_360_000, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=500, pattern=r"^[^\x00]+$")]
# With something in it beside white space.
Note = Annotated[
    str,
    Field(
        strict=True,
        min_length=1,
        max_length=4000,
        pattern=r"^[^\x00]*[^\s\x00][^\x00]*$",
        description="How it was settled; kept with it.",
        examples=["Refunded by hand, see ticket 812."],
    ),
]
Reason = Annotated[
    str,
    Field(
        strict=True, min_length=1, max_length=4000, pattern=r"^[^\x00]+$", description="Why; kept with it."
    ),
]
_NAME = r"^[A-Za-z0-9_.:/-]{1,200}$"
_LANE = r"^[A-Za-z0-9_.:-]{1,100}$"
# One that can be made is not dots alone.
_NEW_LANE = r"^[.]{0,99}[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,99}$"
Name = Annotated[str, Field(strict=True, pattern=_NAME)]
LaneName = Annotated[str, Field(strict=True, pattern=_LANE)]
Tenant = Annotated[
    str,
    Field(
        strict=True,
        pattern=r"^[^*\x00-\x1f\x7f-\x9f]{1,200}$",
        description="Whose it is. A token that is bound to a tenant need not say.",
    ),
]
Payload = Annotated[dict[str, Any], Field(description="An object of named values.", examples=[{"order": 1}])]
State = Literal[STATES]  # type: ignore[valid-type] # the engine's own list

NameInPath = Annotated[str, Path(pattern=_NAME, examples=["nightly-report"])]
LaneInPath = Annotated[str, Path(pattern=_LANE, examples=["default"])]
NewLaneInPath = Annotated[str, Path(pattern=_NEW_LANE, max_length=100, examples=["default"])]
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]


class Changed(BaseModel):
    """Whether there was anything to do."""

    changed: bool = Field(description="False: it was so already.")


def answer_of(
    kind: type, name: str, words: str, *, without: Collection[str] = (), **more: Any
) -> type[BaseModel]:
    """A model of what the engine returns, so that the two cannot differ.  `more` are fields that are added."""
    hints = get_type_hints(kind)
    members: dict[str, Any] = {
        found.name: (_shown(hints[found.name]), ...) for found in fields(kind) if found.name not in without
    }
    return create_model(name, __doc__=words, __config__=ConfigDict(from_attributes=True), **members, **more)


def _shown(hint: Any) -> Any:
    if hint is timedelta:
        return Seconds
    return Seconds | None if hint == timedelta | None else hint
