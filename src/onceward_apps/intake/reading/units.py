"""Numbers and units as they are printed, in either language and as OCR leaves them."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Final

_TABLE: Final = Path(__file__).parent / "tables" / "units.toml"
_ALIKE: Final = str.maketrans({"1": "l", "i": "l", "|": "l", "0": "o", "ʼ": "", ",": ".", "º": "°", "u": "µ"})
_NUMBER: Final = re.compile(r"(?P<whole>\d+)(?:(?P<mark>[.,])(?P<part>\d+))?")
_GROUPED: Final = re.compile(r"\d{1,3}(?:[.,' ]\d{3})+(?:[.,]\d+)?")

DOSE_UNITS: Final = {
    "mg": "mg",
    "g": "g",
    "µg": "ug",
    "mcg": "ug",
    "mikrogramm": "ug",
    "ml": "mL",
    "ie": "[iU]",
    "iu": "[iU]",
    "i.e.": "[iU]",
    "units": "[iU]",
    "einheiten": "[iU]",
    "%": "%",
    "mg/ml": "mg/mL",
    "mg/g": "mg/g",
    "µg/h": "ug/h",
    "mmol": "mmol",
}


def symbols(text: str) -> frozenset[str]:
    """The symbols that a printed unit may stand for; none when it is no unit we know."""
    folded = _folded(text)
    # A litre at the end is a thin stroke, and easily lost.
    return _spellings().get(folded) or _spellings().get(
        folded + "l" if folded.endswith("/") else "", frozenset()
    )


def symbol(text: str, among: Collection[str] = ()) -> str | None:
    """The one symbol of a printed unit, of those an analyte is measured in if there are several."""
    found = symbols(text)
    fitting = [each for each in sorted(found) if each in among]
    if fitting:
        return fitting[0]
    return min(found) if found else None


def dose_unit(text: str) -> str | None:
    folded = unicodedata.normalize("NFKC", text).casefold().strip().replace("μ", "µ")
    return DOSE_UNITS.get(folded) or DOSE_UNITS.get(folded.rstrip("."))


def numbers(text: str) -> list[Decimal]:
    """What a printed number can mean, the likeliest first: `4.500` is four and a half, or in German 4500."""
    text = text.strip().lstrip("+")
    found: list[Decimal] = []
    if match := _NUMBER.fullmatch(text):
        found.append(
            Decimal(f"{match['whole']}.{match['part'] or '0'}") if match["mark"] else Decimal(match["whole"])
        )
    if _GROUPED.fullmatch(text):
        grouped = _ungrouped(text)
        if grouped is not None and grouped not in found:
            found.append(grouped)
    return found


def number(text: str) -> Decimal | None:
    return next(iter(numbers(text)), None)


def _ungrouped(text: str) -> Decimal | None:
    marks = [letter for letter in text if not letter.isdigit()]
    # The last mark is a decimal one if it differs from those before it.
    tail = len(marks) > 1 and marks[-1] != marks[0]
    head, mark, part = text.rpartition(marks[-1]) if tail else (text, "", "")
    try:
        return Decimal(re.sub(r"\D", "", head) + ("." + part if mark else ""))
    except InvalidOperation:
        return None


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text.replace("×", "x").replace("μ", "µ")).casefold()
    return re.sub(r"[\s*^()]", "", plain).translate(_ALIKE).rstrip(".")


@cache
def _spellings() -> dict[str, frozenset[str]]:
    made: dict[str, set[str]] = {}
    for name, spellings in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items():
        for spelling in spellings if name == "1" else (name, *spellings):
            made.setdefault(_folded(spelling), set()).add(name)
    return {spelling: frozenset(names) for spelling, names in made.items()}
