"""What a call is, and the ways to read an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, LiteralString, NamedTuple, TypeVar

T = TypeVar("T")
Row = Sequence[Any]


class Call(NamedTuple, Generic[T]):
    """One call of one SQL function."""

    sql: LiteralString
    params: Mapping[str, object]
    parse: Callable[[Sequence[Row]], T]
    # Whether the call may be repeated when its reply was lost.
    repeatable: bool = False
    # Asked when the answer is None: the call was a short form of this one, which did not fit.
    otherwise: Callable[[], Call[T]] | None = None
    # The same object is sent again and again: a connection keeps its values as they are sent.
    lasts: bool = False


def one(make: Callable[[Row], T]) -> Callable[[Sequence[Row]], T]:
    return lambda rows: make(rows[0])


def scalar(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def nothing(rows: Sequence[Row]) -> None:
    return None


def rows_of(kind: Callable[..., T]) -> Callable[[Sequence[Row]], list[T]]:
    return lambda rows: [kind(*row) for row in rows]
