"""Pass 3: units, dates and codes, from tables and rules, whoever extracted the facts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Final, Literal

from onceward_apps.intake.reading import dates, lexicon, units
from onceward_apps.intake.reading.model import Fact, NormalFact

# Below this somebody should look at a fact.
CONFIDENT: Final = 0.75

_OFTEN: Final = (
    (
        re.compile(
            r"once|einmal|1 ?[x×]|in the morning|at night|in the evening|at bedtime|^daily|^täglich|morgens|abends|mittags|zur nacht"
        ),
        "1",
    ),
    (re.compile(r"twice|zweimal|2 ?[x×]"), "2"),
    (re.compile(r"three times|dreimal|3 ?[x×]"), "3"),
    (re.compile(r"four times|viermal|4 ?[x×]"), "4"),
)
_EVERY: Final = re.compile(r"(?:every|alle) (\d{1,2})")
_SCHEME: Final = re.compile(r"[0-9½¼.,]+(?:(?:\s?[-–—]\s?|\s)[0-9½¼.,]+){2,3}")
_WEEKLY: Final = re.compile(r"week|wöchentlich")
_NEED: Final = re.compile(r"need|required|bedarf|prn")
_DOSE: Final = re.compile(r"(?P<amount>\d+(?:[.,]\d+)?)\s?(?P<unit>\S.*)")


def facts(found: Iterable[Fact]) -> list[NormalFact]:
    """One for each, in the same order."""
    return [_normal(fact) for fact in found]


def _normal(fact: Fact) -> NormalFact:
    day = dates.parse(fact.date) if fact.date else None
    doubts = ["low_confidence"] if fact.confidence < CONFIDENT else []
    if fact.date and day is None:
        doubts.append("unreadable_date")
    if day and day.ambiguous:
        doubts.append("ambiguous_date")
    when = day.day if day else None
    match fact.kind:
        case "measurement":
            return _measurement(fact, when, doubts)
        case "medication":
            return _medication(fact, when, doubts)
        case "condition":
            return _condition(fact, when, doubts)
        case "date":
            return _plain(fact, fact.name, when, doubts)
        case "provider":
            return _plain(fact, _person(fact.name), when, doubts)


def _person(printed: str) -> str:
    """One space between words, and a full stop behind a shortened title, which OCR takes for other marks."""
    name = re.sub(r"\s+", " ", printed).strip(" ,;:.")
    return re.sub(r"\b(Prof|Dr|med|dent|PD)[:;,·](?= )", r"\1.", name)


def _measurement(fact: Fact, when: date | None, doubts: list[str]) -> NormalFact:
    code = _code(lexicon.measured(), fact.name, doubts)
    analyte = lexicon.analytes()[code] if code else None
    printed = (fact.value or "").strip()
    comparator: Literal["<", ">"] | None = None
    if printed[:1] in {"<", "≤"}:
        comparator = "<"
    elif printed[:1] in {">", "≥"}:
        comparator = ">"
    number = printed.lstrip("<>≤≥= ")
    symbol = units.symbol(fact.unit, analyte.units if analyte else ()) if fact.unit else None
    if fact.unit and symbol is None:
        doubts.append("unknown_unit")
    value = _best(number, analyte, symbol)
    low, high = (_best(bound or "", None, None) for bound in (fact.low, fact.high))
    unit = symbol or fact.unit
    if analyte and symbol and symbol != analyte.unit:
        if symbol in analyte.factors:
            value, low, high = (_in(analyte, each, symbol) for each in (value, low, high))
            unit = analyte.unit
        else:
            doubts.append("unexpected_unit")
    elif analyte and symbol is None and analyte.unit == "1":
        unit = analyte.unit
    elif symbol is None and fact.unit is None:
        doubts.append("missing_unit")
    if analyte and value is not None and unit == analyte.unit and not analyte.is_plausible(value):
        doubts.append("implausible_value")
    return NormalFact(
        fact=fact,
        kind=fact.kind,
        name=analyte.name if analyte else fact.name,
        code=code,
        code_system=lexicon.SYSTEM if code else None,
        value=value,
        comparator=comparator,
        text=None if value is not None else fact.value,
        unit=unit,
        low=low,
        high=high,
        interpretation=_against(value, low, high),
        date=when,
        doubts=tuple(doubts),
    )


def _best(text: str, analyte: lexicon.Analyte | None, symbol: str | None) -> Decimal | None:
    """What a printed number means: the meaning that a person can have, where it has two."""
    meanings = units.numbers(text)
    if analyte and len(meanings) > 1:
        for meaning in meanings:
            value = _in(analyte, meaning, symbol or analyte.unit)
            if value is not None and analyte.is_plausible(value):
                return meaning
    return next(iter(meanings), None)


def _in(analyte: lexicon.Analyte, value: Decimal | None, unit: str) -> Decimal | None:
    return None if value is None else analyte.converted(value, unit)


def _against(
    value: Decimal | None, low: Decimal | None, high: Decimal | None
) -> Literal["low", "normal", "high"] | None:
    if value is None or (low is None and high is None):
        return None
    if low is not None and value < low:
        return "low"
    return "high" if high is not None and value > high else "normal"


def _medication(fact: Fact, when: date | None, doubts: list[str]) -> NormalFact:
    code = _code(lexicon.medications(), fact.name, doubts)
    amount: Decimal | None = None
    unit: str | None = None
    if fact.dose and (match := _DOSE.fullmatch(fact.dose.strip())):
        amount, unit = units.number(match["amount"]), units.dose_unit(match["unit"])
    if fact.dose and (amount is None or unit is None):
        doubts.append("unreadable_dose")
    text, per_day = _often(fact.value)
    if fact.value and text is None:
        doubts.append("unreadable_schedule")
    return NormalFact(
        fact=fact,
        kind=fact.kind,
        name=lexicon.display(code) if code else fact.name,
        code=code,
        code_system=lexicon.SYSTEM if code else None,
        text=text or fact.value,
        dose=amount,
        dose_unit=unit,
        per_day=per_day,
        date=when,
        doubts=tuple(doubts),
    )


def _often(printed: str | None) -> tuple[str | None, Decimal | None]:
    """How often, in one manner (1-0-1-0, 2/day, as needed), and the doses of a day."""
    if not printed:
        return None, None
    text = printed.strip().casefold()
    if _SCHEME.fullmatch(text):
        parts = [_share(part) for part in re.split(r"\s?[-–—]\s?|\s", text)]
        if any(part is None for part in parts):
            return None, None
        times = [part for part in parts if part is not None]
        times += [Decimal(0)] * (4 - len(times))
        return "-".join(format(time.normalize(), "f") for time in times), sum(times, Decimal(0))
    if _NEED.search(text):
        return "as needed", None
    if match := _EVERY.search(text):
        hours = int(match[1])
        return f"every {hours} h", (Decimal(24) / hours).quantize(Decimal("0.1")) if hours else None
    for pattern, count in _OFTEN:
        if pattern.search(text):
            if _WEEKLY.search(text):
                return f"{count}/week", (Decimal(count) / 7).quantize(Decimal("0.01"))
            return f"{count}/day", Decimal(count)
    return None, None


def _share(text: str) -> Decimal | None:
    return {"½": Decimal("0.5"), "¼": Decimal("0.25")}.get(text) or units.number(text)


def _code(table: lexicon.Lexicon, name: str, doubts: list[str]) -> str | None:
    """The code of a name.  One that is only nearly in the table is taken, and doubted: drugs have names alike."""
    code = table.code(name)
    if code is None:
        doubts.append("unknown_name")
    elif not table.is_exact(name):
        doubts.append("inexact_name")
    return code


def _condition(fact: Fact, when: date | None, doubts: list[str]) -> NormalFact:
    code = _code(lexicon.conditions(), fact.name, doubts)
    return NormalFact(
        fact=fact,
        kind=fact.kind,
        name=lexicon.display(code) if code else fact.name,
        code=code,
        code_system=lexicon.SYSTEM if code else None,
        date=when,
        doubts=tuple(doubts),
    )


def _plain(fact: Fact, name: str, when: date | None, doubts: list[str]) -> NormalFact:
    return NormalFact(
        fact=fact, kind=fact.kind, name=name, code=None, code_system=None, date=when, doubts=tuple(doubts)
    )
