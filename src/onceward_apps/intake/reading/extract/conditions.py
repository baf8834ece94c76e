"""Conditions: names of the table that are stated, not denied, suspected of relatives or asked about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from onceward_apps.intake.reading import lexicon
from onceward_apps.intake.reading.extract.rows import Row
from onceward_apps.intake.reading.model import Fact

# Before a name, in the same sentence.
_DENIED_BEFORE: Final = re.compile(
    r"\b(?:no|not|without|denies|negative for|absence of|rules? out|ruled out|exclude[sd]?|free of|"
    r"kein\w*|ohne|nicht|ausschluss|verneint|frei von|mother|father|brother|sister|family|mutter|vater|bruder|schwester|"
    r"risk of|risiko|screening|vaccin\w*|impf\w*|question of|query)\b[^.;]*$",
    re.IGNORECASE,
)
_DENIED_AFTER: Final = re.compile(
    r"^[^.;,]*\b(?:ruled out|excluded|not (?:seen|present|found)|unlikely|ausgeschlossen|nicht nachweisbar|unwahrscheinlich|"
    r"vaccin\w*|impf\w*)\b",
    re.IGNORECASE,
)
_QUESTION: Final = re.compile(r"^\s*\?")


def find(row: Row, above: str, day: str | None) -> Iterator[Fact]:
    """The conditions that a line states.  `above` is the line before it, in which its sentence may have begun."""
    if row.section in {"allergies", "family", "medications"}:
        return
    bare = [word.strip(":=*•,;.?()") for word in row.words]
    at = 0
    while at < len(bare):
        match = lexicon.conditions().at(bare, at)
        if match is None:
            at += 1
            continue
        last = at + match.words - 1
        before = f"{above} {row.text[: row.offset(at)]}"
        after = row.text[row.offset(last) + len(row.words[last].rstrip("?")) :]
        if not (_DENIED_BEFORE.search(before) or _DENIED_AFTER.search(after) or _QUESTION.match(after)):
            span = row.span(at, last)
            sure = 1.0 if row.section == "diagnoses" else 0.8
            yield Fact(
                kind="condition",
                name=" ".join(bare[at : last + 1]),
                source=span,
                confidence=round(row.seen(span) * match.quality * sure, 4),
                date=day,
            )
        at = last + 1
