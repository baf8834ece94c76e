"""A form as somebody filled it in: what was typed, and what is wrong with it, stand at the fields where they belong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from onceward.errors import InvalidArgument, OncewardError
from onceward.web.forms import Form

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


class Filling:
    """One form of a page that may have several.  Without a form, nothing was typed yet.

    `words` has what messages call each field; `engine` has the fields of arguments that the engine calls otherwise.
    """

    def __init__(
        self,
        form: Form | None = None,
        name: str = "",
        words: Mapping[str, str] | None = None,
        engine: Mapping[str, str] | None = None,
    ) -> None:
        self._form, self._words, self._engine = form, words or {}, engine or {}
        self._name = name
        self._problems: dict[str, str] = {}

    @property
    def is_good(self) -> bool:
        return not self._problems

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong with each field; under "" what is wrong with the whole."""
        return self._problems

    def read(self, field: str, reader: Callable[[str, str], T]) -> T | None:
        """What a reader of `reading` makes of the field; None when it cannot, and the field has the problem."""
        try:
            return reader(self._words[field], self.typed(field, form=self._name))
        except InvalidArgument as error:
            self.blame(field, error.message, error.hint)
            return None

    def need(self, *fields: str) -> None:
        for field in fields:
            if not self.typed(field, form=self._name):
                self.blame(field, "this is needed")

    def blame(self, field: str, message: str, hint: str | None = None) -> None:
        self._problems[field] = told(message, hint)

    def blame_for(self, error: OncewardError) -> None:
        """Messages of the engine begin with the argument that is wrong; what names none stands at the first field."""
        first, _, rest = error.message.partition(" ")
        field = self._engine.get(first, first)
        if field in self._words:
            self.blame(field, f"{self._words[field]} {rest}", error.hint)
        else:
            self.blame(next(iter(self._words)), error.message, error.hint)

    def typed(self, field: str, kept: str = "", form: str = "") -> str:
        """What the field shows: what was typed into this form, or else what is kept."""
        return self._form.text(field) if self._form is not None and form == self._name else kept

    def problem(self, field: str, form: str = "") -> str | None:
        return self._problems.get(field) if form == self._name else None

    def is_of(self, form: str) -> bool:
        """Whether this form was sent, and came back."""
        return self._form is not None and form == self._name


def told(*parts: str | None) -> str:
    """What is wrong, what it means, and what would be right, as sentences."""
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)


def mark_of(kept: DataclassInstance) -> str:
    """Goes with a form that edits what is kept: another mark when it comes back means that somebody has changed it since."""
    return hashlib.sha256(repr(kept).encode()).hexdigest()[:16]


def changed_since(kept: DataclassInstance, typed: DataclassInstance) -> str:
    """What to say to whoever sends a form that was filled in from something older."""
    theirs = asdict(typed)
    now = "; ".join(
        f"{name.replace('_', ' ')} is {value or 'empty'}"
        for name, value in asdict(kept).items()
        if value != theirs[name]
    )
    return f"Somebody has changed it since you opened this page. {f'Now {now}. ' if now else ''}Save again to have it as it stands here."
