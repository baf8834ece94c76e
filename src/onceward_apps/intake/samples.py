"""Sample data for `onceward up`: a family with some years of documents, typeset here and read like anybody's.

Keys make a second start change nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from onceward.web.context import Web
from onceward_apps.intake import store
from onceward_apps.intake.settings import Settings
from onceward_apps.intake.uploads import Uploads, Wish
from onceward_apps.kit import typeset

# Ids of the sample, the same in every installation.
_SPACE = UUID("5b0c6f0e-6a6e-4a51-9d5e-3f4f0d2c7a10")
_TEMPLATE = Path(__file__).parent / "artwork" / "letter.typ"


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    born: str
    account: str
    plan: str = "free"

    @property
    def id(self) -> UUID:
        return uuid5(_SPACE, self.name)

    @property
    def owner(self) -> UUID:
        return uuid5(_SPACE, f"account {self.account}")


MAYA = Person("Maya Thompson", "1984-06-02", "thompson", "pro")
LEO = Person("Leo Thompson", "2016-09-21", "thompson")
GEORG = Person("Georg Brandt", "1951-01-30", "brandt")
PEOPLE = (MAYA, LEO, GEORG)


def _row(name: str, value: str, unit: str, reference: str) -> dict[str, str]:
    return {"name": name, "value": value, "unit": unit, "range": reference}


# Plain documents, as practices print them.
LETTERS: list[tuple[Person, str, dict[str, Any]]] = [
    (MAYA, "blood-test-march.pdf", {
        "practice": "Harbour Street Pathology", "title": "Laboratory Report", "date": "12 March 2026",
        "lines": ["Ordering provider: Dr. Helen Carter"],
        "rows": [
            _row("Glucose", "5.4", "mmol/L", "3.9 - 5.5"), _row("HbA1c", "5.6", "%", "4.0 - 5.6"),
            _row("Total cholesterol", "6.1", "mmol/L", "3.0 - 5.2"), _row("LDL cholesterol", "3.9", "mmol/L", "0.0 - 3.4"),
            _row("Hemoglobin", "13.8", "g/dL", "12.0 - 16.0"), _row("Creatinine", "71", "umol/L", "45 - 90"),
            _row("TSH", "2.1", "mIU/L", "0.4 - 4.0"),
        ],
    }),
    (MAYA, "medication-plan.pdf", {
        "practice": "Carter Family Practice", "title": "Medication Plan", "date": "20 March 2026",
        "lines": ["Provider: Dr. Helen Carter", "Medications", "Atorvastatin 20 mg 0-0-1", "Metformin 500 mg 1-0-1", "Vitamin D 1000 IU 1-0-0"],
    }),
    (MAYA, "discharge-letter.pdf", {
        "practice": "St. Brigid Hospital", "title": "Discharge Letter", "date": "4 November 2025",
        "lines": ["Admission: 1 November 2025", "Discharge: 4 November 2025", "Diagnosis: Pneumonia", "Diagnosis: Asthma",
                  "Medication on discharge: Amoxicillin 500 mg three times daily", "Dr. Samuel Okafor"],
    }),
    (LEO, "school-check.pdf", {
        "practice": "Harbour Street Pathology", "title": "Laboratory Report", "date": "2 February 2026",
        "lines": ["Ordering provider: Dr. Anna Weiss"],
        "rows": [_row("Hemoglobin", "11.2", "g/dL", "11.5 - 15.5"), _row("Ferritin", "14", "ug/L", "20 - 200"),
                 _row("Leukocytes", "7.2", "10^9/L", "4.5 - 13.5")],
    }),
    (LEO, "vaccination-record.pdf", {
        "practice": "Weiss Paediatrics", "title": "Vaccination Record", "date": "15 September 2025",
        "lines": ["Vaccine: Tetanus", "Vaccine: Diphtheria", "Vaccine: Influenza", "Dr. Anna Weiss"],
    }),
    # Put to the wrong child.
    (LEO, "allergy-test.pdf", {
        "practice": "Weiss Paediatrics", "title": "Laboratory Report", "date": "9 March 2026", "patient": "Ella Thornton", "born": "2015-04-11",
        "lines": ["Ordering provider: Dr. Anna Weiss"],
        "rows": [_row("Total IgE", "48", "kU/L", "0 - 90"), _row("Eosinophils", "3.1", "%", "1.0 - 6.0")],
    }),
    (GEORG, "laborbefund.pdf", {
        "practice": "Labor am Markt", "title": "Laborbefund", "date": "08.01.2026",
        "lines": ["Einsender: Dr. med. Jutta Roth"],
        "rows": [_row("Glukose", "128", "mg/dl", "70 - 100"), _row("Kreatinin", "1,4", "mg/dl", "0,7 - 1,2"),
                 _row("Kalium", "4,6", "mmol/l", "3,5 - 5,1"), _row("Natrium", "139", "mmol/l", "135 - 145")],
    }),
]  # fmt: skip


def filler(settings: Settings, database: store.Database) -> Callable[[Web], Awaitable[None]]:
    async def fill(web: Web) -> None:
        await people(database)
        uploads = Uploads(settings, database)
        for person, filename, letter in LETTERS:
            wish = Wish(person.owner, person.id, filename, f"sample:{filename}", uuid5(_SPACE, filename))
            async with database.reading(person.owner) as connection:
                there = await store.call(
                    connection,
                    "select true from intake.shell_files where patient_id = %s and idempotency_key = %s",
                    person.id, wish.key,
                )  # fmt: skip
            if not there:
                await uploads.receive(wish, _once(printed(person, letter)))

    return fill


async def people(database: store.Database) -> None:
    async with database.serving() as connection:
        for person in PEOPLE:
            await store.call(
                connection,
                "select intake.create_profile(%s, %s, %s, %s, %s)",
                person.id, person.owner, person.name, person.born, person.plan,
            )  # fmt: skip


def printed(person: Person, letter: dict[str, Any]) -> bytes:
    """The letter as a PDF."""
    return typeset.pdf(_TEMPLATE, {"rows": [], "patient": person.name, "born": person.born, **letter})


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
