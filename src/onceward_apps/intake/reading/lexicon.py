"""The tables, and the finding of their names in text that a machine has read.

Names are compared in a folded form, in which what OCR confuses is the same letter, and long ones may differ by a
letter or two.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final

SYSTEM: Final = "onceward-intake"
_TABLES: Final = Path(__file__).parent / "tables"
# Letters and digits that look alike in print.
_ALIKE: Final = str.maketrans(
    {"1": "l", "i": "l", "|": "l", "!": "l", "0": "o", "5": "s", "ß": "ss", "γ": "y"}
)
# A name this long may be wrong by one letter, by two.
_ONE_OFF, _TWO_OFF = 6, 11
_LONGEST: Final = 6


@dataclass(frozen=True, slots=True)
class Analyte:
    """Something that is measured."""

    code: str
    name: str
    unit: str
    factors: Mapping[str, Decimal] = field(default_factory=dict)
    offsets: Mapping[str, Decimal] = field(default_factory=dict)
    plausible: tuple[Decimal, Decimal] | None = None
    # Two codes, for a value such as 120/80.
    pair: tuple[str, str] | None = None

    @property
    def units(self) -> frozenset[str]:
        return frozenset((self.unit, *self.factors))

    def converted(self, value: Decimal, unit: str) -> Decimal | None:
        """The value in the analyte's unit, to four significant digits if it had to be converted."""
        if unit == self.unit:
            return value
        if unit not in self.factors:
            return None
        made = value * self.factors[unit] + self.offsets.get(unit, Decimal(0))
        return made if made == 0 else made.quantize(Decimal(1).scaleb(made.adjusted() - 3))

    def is_plausible(self, value: Decimal) -> bool:
        return self.plausible is None or self.plausible[0] <= value <= self.plausible[1]


@dataclass(frozen=True, slots=True)
class Match:
    """A name of a table, found at the beginning of some words: how many words it took, and how well it fits."""

    code: str
    words: int
    quality: float


class Lexicon:
    """Codes by their names."""

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self._exact: dict[str, str] = {}
        for code, spellings in names.items():
            for spelling in spellings:
                self._exact.setdefault(fold(spelling), code)
        self._long = [(key, code) for key, code in self._exact.items() if len(key) >= _ONE_OFF]

    def at(self, words: Sequence[str], start: int = 0) -> Match | None:
        """The longest name that begins at a word."""
        for length in range(min(_LONGEST, len(words) - start), 0, -1):
            # A mark behind a name belongs to what follows.
            if not fold(words[start + length - 1]):
                continue
            piece = fold(" ".join(words[start : start + length]))
            if code := self._exact.get(piece):
                return Match(code, length, 1.0)
        for length in range(min(_LONGEST, len(words) - start), 0, -1):
            # A number after a name is its value, not the rest of a longer name.
            if not any(letter.isalpha() for letter in words[start + length - 1]):
                continue
            found = self._near(fold(" ".join(words[start : start + length])))
            if found:
                return Match(found[0], length, found[1])
        return None

    def code(self, name: str) -> str | None:
        """The code of exactly this name, or of one that OCR may have made of it."""
        key = fold(name)
        found = self._exact.get(key)
        if found is None and (near := self._near(key)):
            found = near[0]
        return found

    def is_exact(self, name: str) -> bool:
        """Whether a name stands in the table as it is, look-alike letters apart."""
        return fold(name) in self._exact

    def _near(self, piece: str) -> tuple[str, float] | None:
        if len(piece) < _ONE_OFF:
            return None
        allowed = 2 if len(piece) >= _TWO_OFF else 1
        near: dict[int, set[str]] = {}
        for key, code in self._long:
            # The first letter is right: OCR seldom errs there, and it tells one ending from another.
            if key[0] != piece[0] or abs(len(key) - len(piece)) > allowed:
                continue
            near.setdefault(distance(key, piece, allowed), set()).add(code)
        off = min(near, default=allowed + 1)
        # Between two substances that are equally near, nobody guesses.
        return (near[off].pop(), 1 - 0.1 * off) if off <= allowed and len(near[off]) == 1 else None


def fold(text: str) -> str:
    """Only letters and digits, small, without accents, look-alikes made one."""
    plain = unicodedata.normalize("NFKD", text.casefold().translate(_ALIKE))
    return "".join(letter for letter in plain if letter.isalnum()).translate(_ALIKE)


def distance(a: str, b: str, most: int) -> int:
    """Letters to insert, remove or replace; anything above `most` is `most` + 1."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


@cache
def analytes() -> Mapping[str, Analyte]:
    return {
        code: Analyte(
            code=code,
            name=held["name"],
            unit=held["unit"],
            factors={unit: Decimal(factor) for unit, factor in held.get("from", {}).items()},
            offsets={unit: Decimal(offset) for unit, offset in held.get("offset", {}).items()},
            plausible=_bounds(held.get("plausible")),
            pair=tuple(held["pair"]) if "pair" in held else None,
        )
        for code, held in _table("analytes").items()
    }


@cache
def measured() -> Lexicon:
    return Lexicon({code: [held["name"], *held["names"]] for code, held in _table("analytes").items()})


@cache
def medications() -> Lexicon:
    return Lexicon(_table("medications"))


@cache
def conditions() -> Lexicon:
    return Lexicon(_table("conditions"))


@cache
def display(code: str) -> str:
    """The English name of a code."""
    if code in analytes():
        return analytes()[code].name
    for table in ("medications", "conditions"):
        held = _table(table)
        if code in held:
            return str(held[code][0])
    return code


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((_TABLES / f"{name}.toml").read_text(encoding="utf-8"))


def _bounds(given: Sequence[float] | None) -> tuple[Decimal, Decimal] | None:
    return None if given is None else (Decimal(str(given[0])), Decimal(str(given[1])))
