"""Lab results as customers read them: the figure, how much of the limit it is, and what that means.  Nothing here touches a database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from onceward_apps.proof.domain import day, weight

_FIGURE = re.compile(r"(?P<less>[<≤])?\s*(?P<number>\d[\d\s,]*(?:\.\d+)?)\s*(?P<unit>.*)", re.DOTALL)
_NOTHING = re.compile(r"\b(not\s+detected|absent|none\s+detected|negative|nd)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table."""

    parameter: str
    plain_language: str
    method: str
    result: str
    limit_value: str
    passed: bool
    # Of the limit that was measured, 0 to 1; None where the two cannot be compared.
    share: float | None
    meaning: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A released batch, or the sample of one."""

    public_batch_id: str
    product: str
    description: str
    net_weight: str
    ingredients: Sequence[str]
    best_before: str
    released: str
    results: Sequence[Result]
    lab_name: str
    certificate_reference: str
    analysed: str
    has_certificate: bool
    formulation: Mapping[str, Any]
    is_sample: bool = False

    @property
    def all_passed(self) -> bool:
        return all(result.passed for result in self.results)


def read_result(row: Mapping[str, Any]) -> Result:
    share = share_of_limit(row["result"], row["limit_value"])
    return Result(
        parameter=row["parameter"],
        plain_language=row["plain_language"],
        method=row["method"],
        result=row["result"],
        limit_value=row["limit_value"],
        passed=row["passed"],
        share=share,
        meaning=_meaning(row["result"], share, passed=row["passed"]),
    )


def share_of_limit(result: str, limit: str) -> float | None:
    """How much of the limit was measured: 0 when nothing was found, None when the units differ or there are no numbers."""
    if _NOTHING.search(result):
        return 0.0
    measured, allowed = _FIGURE.search(result), _FIGURE.search(limit)
    if measured is None or allowed is None or _unit(measured["unit"]) != _unit(allowed["unit"]):
        return None
    most = _number(allowed["number"])
    return _number(measured["number"]) / most if most > 0 else None


def _unit(text: str) -> str:
    return re.sub(r"\s+", "", text).lower()


def _number(text: str) -> float:
    return float(re.sub(r"[\s,]", "", text))


def _meaning(result: str, share: float | None, *, passed: bool) -> str:
    if not passed:
        return "Above what is allowed."
    if _NOTHING.search(result):
        return "None was found."
    if share is None:
        # Nothing was compared here: it is the lab that says so.
        return "The lab says that it has passed."
    if share < 0.01:
        return "Less than 1 % of what is allowed."
    return f"{'Less than' if '<' in result else 'About'} {share:.0%} of what is allowed.".replace("%", " %")


def evidence_of(page: Mapping[str, Any]) -> Evidence:
    """From what raw_ops.fn_get_proof_page_v1 says of a released batch."""
    rows = page["results"]
    product, batch = page["product"], page["batch"]
    last = max(rows, key=lambda row: row["analysis_date"], default=None)
    return Evidence(
        public_batch_id=page["public_batch_id"],
        product=product["name"],
        description=product["description"],
        net_weight=weight(product["net_weight_g"]),
        ingredients=split_ingredients(product["ingredients"]),
        best_before=day(date.fromisoformat(batch["best_before"])),
        released=day(datetime.fromisoformat(batch["released_at"]).date()),
        results=[read_result(row) for row in rows],
        lab_name=last["lab_name"] if last else "",
        certificate_reference=last["certificate_reference"] if last else "",
        analysed=day(date.fromisoformat(last["analysis_date"])) if last else "",
        has_certificate=bool(page["certificate_path"]),
        formulation=page["formulation"],
    )


def split_ingredients(text: str) -> list[str]:
    """At commas outside of parentheses."""
    parts = re.split(r",\s*(?![^()]*\))", text.strip().rstrip("."))
    return [part.strip() for part in parts if part.strip()]


def sample() -> Evidence:
    """What a page looks like, for who has not bought anything yet.  Of no batch."""
    rows = [
        ("Salmonella", "The bacterium that most often makes pets and people ill. None may be found.", "ISO 6579-1", "Not detected", "Absent in 25 g"),
        ("Enterobacteriaceae", "A family of gut bacteria that shows how clean the kitchen was. Few are allowed.", "ISO 21528-2", "120 cfu/g", "5000 cfu/g"),
        ("Listeria monocytogenes", "A bacterium that also grows in the fridge. None may be found.", "ISO 11290-1", "Not detected", "Absent in 25 g"),
        ("E. coli", "A bacterium that shows contact with waste. Few are allowed.", "ISO 16649-2", "< 10 cfu/g", "500 cfu/g"),
    ]  # fmt: skip
    names = ("parameter", "plain_language", "method", "result", "limit_value")
    return Evidence(
        public_batch_id="sample",
        product="Protocol Raw Complete",
        description="Complete raw food for adult dogs.",
        net_weight="500 g",
        ingredients=[
            "Beef (42 %)", "chicken with ground bone (30 %)", "beef heart (10 %)", "beef liver (5 %)", "carrot (4 %)",
            "kale (3 %)", "blueberry (2 %)", "flaxseed (1.5 %)", "salmon oil (1 %)", "sea kelp (0.5 %)", "egg (0.5 %)",
            "vitamins and minerals",
        ],
        best_before="20 March 2027",
        released="25 March 2026",
        results=[read_result(dict(zip(names, row, strict=True)) | {"passed": True}) for row in rows],
        lab_name="An independent, accredited laboratory",
        certificate_reference="SAMPLE-0001",
        analysed="24 March 2026",
        has_certificate=False,
        formulation={
            "version": "v2.1", "name": "Complete Adult", "description": "Beef and chicken, balanced for adult dogs",
            "url": "", "fediaf_verified": True,
        },
        is_sample=True,
    )  # fmt: skip
