"""Documents whose contents are known: typeset, drawn, and spoilt as scanners and phones spoil them.

    samples()          sixty of them: two languages, five kinds, six disturbances, four typefaces; the same for a seed
    pdf(sample)        as typeset
    picture(sample)    as photographed or scanned, as PNG or JPEG
    contents(sample)   the words that are on the page

Nobody in them exists.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import pypdfium2
import typst
from PIL import Image

from onceward_apps.kit.typeset import manrope
from tests.apps.intake import corpus_texts as texts

KINDS: Final = ("lab_report", "medication_plan", "discharge_letter", "imaging_report", "vaccination_record")
LANGUAGES: Final = ("en", "de")
DISTURBANCES: Final = ("clean", "tilted", "turned", "blurred", "noisy", "photographed")
TYPEFACES: Final = ("Manrope", "Libertinus Serif", "DejaVu Sans Mono", "New Computer Modern")
SEED: Final = 20_261_116
_DPI: Final = 150

_TEMPLATE: Final = """
#let data = json(bytes(sys.inputs.data))
#set page(paper: "a4", margin: (x: 20mm, y: 18mm))
#set text(font: data.font, size: data.size * 1pt, hyphenate: false)
#set par(justify: false)
#for block in data.blocks {
  if block.kind == "title" { v(2mm); text(size: 1.5em, weight: "bold", block.text); v(1mm) }
  if block.kind == "head" { text(size: 0.95em, block.text); parbreak() }
  if block.kind == "heading" { v(2mm); text(weight: "bold", block.text); parbreak() }
  if block.kind == "text" { block.text; parbreak() }
  if block.kind == "list" { for item in block.items [- #item] }
  if block.kind == "table" {
    table(
      columns: block.widths.map(width => width * 1fr),
      stroke: if data.ruled { 0.5pt } else { none },
      inset: (x: 2mm, y: 1.4mm),
      ..block.rows.flatten().map(cell => [#cell])
    )
  }
}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """A document, and what a perfect reader finds in it.

    A fact is a tuple: kind and code (or role, or name) first, then what belongs to the kind; see `benchmark.key`.
    """

    number: int
    kind: str
    language: str
    disturbance: str
    typeface: str
    ruled: bool
    blocks: tuple[dict[str, Any], ...] = field(repr=False)
    facts: frozenset[tuple[str, ...]] = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.number:02}-{self.kind}-{self.language}-{self.disturbance}"


@cache
def samples(count: int = 60, seed: int = SEED) -> tuple[Sample, ...]:
    made = []
    for number in range(count):
        # Every kind in every language meets every disturbance within sixty.
        kind = KINDS[number % 5]
        language = LANGUAGES[number // 5 % 2]
        disturbance = DISTURBANCES[number // 10 % 6]
        writer = _Writer(random.Random(f"{seed}/{number}"), language)
        blocks, facts = getattr(writer, kind)()
        made.append(
            Sample(
                number=number,
                kind=kind,
                language=language,
                disturbance=disturbance,
                typeface=TYPEFACES[writer.random.randrange(4)],
                ruled=writer.random.random() < 0.5,
                blocks=tuple(blocks),
                facts=frozenset(facts),
            )
        )
    return tuple(made)


def contents(sample: Sample) -> list[str]:
    """Every word on the page."""
    words: list[str] = []
    for block in sample.blocks:
        pieces = [block.get("text", ""), *block.get("items", ())]
        pieces += [cell for row in block.get("rows", ()) for cell in row]
        words.extend(" ".join(pieces).split())
    return words


def pdf(sample: Sample) -> bytes:
    data = {"font": sample.typeface, "size": 10.5, "ruled": sample.ruled, "blocks": sample.blocks}
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder, "page.typ")
        template.write_text(_TEMPLATE, encoding="utf-8")
        made = typst.compile(
            template, root=folder, font_paths=_fonts(), sys_inputs={"data": json.dumps(data)}, format="pdf"
        )
    assert isinstance(made, bytes)
    return made


def picture(sample: Sample) -> bytes:
    """One page, spoilt; JPEG when a phone or a bad scanner made it, else PNG."""
    document = pypdfium2.PdfDocument(pdf(sample))
    page = np.asarray(document[0].render(scale=_DPI / 72, rev_byteorder=True).to_pil().convert("RGB")).copy()
    chance = np.random.default_rng(SEED + sample.number)
    spoilt, quality = _SPOIL[sample.disturbance](page, chance)
    out = io.BytesIO()
    if quality is None:
        Image.fromarray(spoilt).save(out, "PNG", compress_level=1)
    else:
        Image.fromarray(spoilt).save(out, "JPEG", quality=quality)
    return out.getvalue()


def suffix(sample: Sample) -> str:
    return ".jpg" if sample.disturbance in {"noisy", "photographed"} else ".png"


# --- what goes wrong between paper and file


def _clean(page: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, int | None]:
    return page, None


def _tilted(page: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, int | None]:
    angle = float(chance.uniform(1.0, 4.0) * chance.choice([-1, 1]))
    height, width = page.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), angle, 0.96)
    return cv2.warpAffine(
        page, turn, (width, height), borderValue=(235, 235, 235), flags=cv2.INTER_CUBIC
    ), None


def _turned(page: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, int | None]:
    return np.ascontiguousarray(np.rot90(page, int(chance.integers(1, 4)))), None


def _blurred(page: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, int | None]:
    return cv2.GaussianBlur(page, (0, 0), float(chance.uniform(1.0, 1.7))), None


def _noisy(page: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, int | None]:
    # Faded ink on grey paper, grain, specks, and far too much compression.
    faded = page.astype(np.float32) * 0.65 + 70
    faded += chance.normal(0, float(chance.uniform(12, 22)), page.shape).astype(np.float32)
    speck = chance.random(page.shape[:2])
    faded[speck < 0.002] = 20
    faded[speck > 0.998] = 250
    return np.clip(faded, 0, 255).astype(np.uint8), 45


def _photographed(page: np.ndarray, chance: np.random.Generator) -> tuple[np.ndarray, int | None]:
    height, width = page.shape[:2]
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], dtype=np.float32)
    inward = chance.uniform(0.01, 0.06, (4, 2)) * np.array([width, height])
    moved = (corners + inward * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])).astype(np.float32)
    lens = cv2.getPerspectiveTransform(corners, moved)
    table = (70, 60, 55)
    seen = cv2.warpPerspective(page, lens, (width, height), borderValue=table, flags=cv2.INTER_CUBIC).astype(
        np.float32
    )
    # A hand's shadow falls from one side.
    shade = np.linspace(1.0, float(chance.uniform(0.55, 0.75)), width, dtype=np.float32)
    if chance.random() < 0.5:
        shade = shade[::-1]
    seen = seen * shade[None, :, None] + chance.normal(0, 4, seen.shape).astype(np.float32)
    return cv2.GaussianBlur(np.clip(seen, 0, 255).astype(np.uint8), (0, 0), 0.7), 75


_SPOIL: Final = {
    "clean": _clean,
    "tilted": _tilted,
    "turned": _turned,
    "blurred": _blurred,
    "noisy": _noisy,
    "photographed": _photographed,
}


@cache
def _fonts() -> typst.Fonts:
    """Those of the wheels only: the same pages on every machine."""
    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=True, font_paths=[manrope()])


# --- what the documents say


class _Writer:
    """Writes one document of a kind: blocks for the template, and the facts in them."""

    def __init__(self, chance: random.Random, language: str) -> None:
        self.random = chance
        self.language = language
        self.number = LANGUAGES.index(language)
        self.day = date(2025, 1, 6) + timedelta(days=chance.randrange(600))
        self.born = date(1940, 1, 1) + timedelta(days=chance.randrange(22_000))
        self.doctor = chance.choice(texts.DOCTORS[language])

    def lab_report(self) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
        rows = [
            self.say("Test|Result|Unit|Reference range", "Parameter|Ergebnis|Einheit|Referenzbereich").split(
                "|"
            )
        ]
        facts = [self.dated("sample", self.day), self.dated("report", self.day + timedelta(days=1))]
        for analyte in self.random.sample(texts.ANALYTES, 9):
            row, fact = self.measured(analyte)
            rows.append(row)
            facts.append(fact)
        blocks = [
            *self.top(0, self.say("Laboratory report", "Laborbefund")),
            self.text(
                self.say("Collected: ", "Probenentnahme: ") + self.print_day(self.day),
                self.say("Report date: ", "Befunddatum: ") + self.print_day(self.day + timedelta(days=1)),
            ),
            {"kind": "table", "widths": [4, 2, 2, 3], "rows": rows},
            self.text(self.say("Authorised by ", "Freigegeben durch ") + self.doctor),
        ]
        return blocks, [*facts, *self.people()]

    def medication_plan(self) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
        rows = [self.say("Substance|Strength|How often|For", "Wirkstoff|Stärke|Einnahme|Grund").split("|")]
        facts = [self.dated("report", self.day)]
        reasons = self.say("blood pressure|heart|stomach|pain", "Blutdruck|Herz|Magen|Schmerzen").split("|")
        for medication in self.random.sample(texts.MEDICATIONS, 5):
            (name, dose, often), fact = self.taken(medication)
            rows.append([name, dose, often, self.random.choice(reasons)])
            facts.append(fact)
        blocks = [
            *self.top(2, self.say("Medication plan", "Medikationsplan")),
            self.text(self.say("Date: ", "Datum: ") + self.print_day(self.day)),
            {"kind": "table", "widths": [3, 2, 3, 2], "rows": rows},
            self.text(self.say("Allergies: Amoxicillin", "Allergien: Amoxicillin")),
            self.text(self.say("Issued by ", "Ausgestellt durch ") + self.doctor),
        ]
        return blocks, [*facts, *self.people()]

    def discharge_letter(self) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
        stay = self.day + timedelta(days=self.random.randrange(3, 12))
        facts = [self.dated("admission", self.day), self.dated("discharge", stay)]
        conditions = self.random.sample(texts.CONDITIONS, 3)
        facts += [("condition", each[0]) for each in conditions]
        medications = [self.taken(each) for each in self.random.sample(texts.MEDICATIONS, 4)]
        facts += [fact for _, fact in medications]
        systolic, diastolic = self.random.randrange(110, 165), self.random.randrange(60, 95)
        pulse = self.random.randrange(55, 100)
        facts += [
            ("measurement", "blood_pressure_systolic", str(systolic), "mm[Hg]", "", ""),
            ("measurement", "blood_pressure_diastolic", str(diastolic), "mm[Hg]", "", ""),
            ("measurement", "heart_rate", str(pulse), "/min", "", ""),
        ]
        blocks = [
            *self.top(1, self.say("Discharge summary", "Entlassungsbrief")),
            self.text(
                self.say("Admitted: ", "Aufnahme: ") + self.print_day(self.day),
                self.say("Discharged: ", "Entlassung: ") + self.print_day(stay),
            ),
            {"kind": "heading", "text": self.say("Diagnoses", "Diagnosen")},
            {"kind": "list", "items": [each[1 + self.number] for each in conditions]},
            {"kind": "heading", "text": self.say("Hospital course", "Verlauf")},
            self.text(texts.COURSE[self.language]),
            {"kind": "heading", "text": self.say("Vital signs", "Vitalparameter")},
            self.text(
                self.say("Blood pressure ", "Blutdruck ") + f"{systolic}/{diastolic} mmHg,",
                self.say("heart rate ", "Herzfrequenz ") + f"{pulse} /min",
            ),
            {"kind": "heading", "text": self.say("Discharge medication", "Entlassmedikation")},
            {"kind": "list", "items": [" ".join(parts) for parts, _ in medications]},
            {"kind": "heading", "text": self.say("Family history", "Familienanamnese")},
            self.text(self.say("Mother: stroke, father: Migraine", "Mutter: Schlaganfall, Vater: Migräne")),
            self.text(self.doctor),
        ]
        return blocks, [*facts, *self.people()]

    def imaging_report(self) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
        title, (code, *names), *findings = self.random.choice(texts.IMAGING)
        blocks = [
            *self.top(3, self.say("Radiology report", "Radiologischer Befund")),
            self.text(self.say("Examination: ", "Untersuchung vom ") + self.print_day(self.day)),
            self.text(title[self.number]),
            {"kind": "heading", "text": self.say("Findings", "Befund")},
            self.text(findings[self.number]),
            {"kind": "heading", "text": self.say("Impression", "Beurteilung")},
            self.text(names[self.number] + "."),
            self.text(self.doctor),
        ]
        return blocks, [self.dated("examination", self.day), ("condition", code), *self.people()]

    def vaccination_record(self) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
        rows = [self.say("Given on|Vaccine|Batch", "Geimpft am|Impfstoff|Charge").split("|")]
        facts: list[tuple[str, ...]] = []
        for code, *names in self.random.sample(texts.VACCINES, 4):
            day = self.day - timedelta(days=self.random.randrange(3000))
            batch = f"{self.random.choice('ABCDEF')}{self.random.choice('HKMX')}{self.random.randrange(1000, 9999)}"
            rows.append([self.print_day(day), names[self.number], batch])
            facts.append(("medication", code, "", "", "", day.isoformat()))
        blocks = [
            *self.top(2, self.say("Vaccination record", "Impfnachweis")),
            {"kind": "table", "widths": [2, 4, 2], "rows": rows},
            self.text(self.doctor),
        ]
        return blocks, [*facts, *self.people()]

    def top(self, place: int, title: str) -> list[dict[str, Any]]:
        patient = self.random.choice(texts.PATIENTS[self.language])
        return [
            {"kind": "head", "text": texts.PLACES[self.language][place]},
            {"kind": "title", "text": title},
            self.text(
                f"Patient: {patient}",
                self.say("Date of birth: ", "geb. ") + self.print_day(self.born),
            ),
        ]

    def people(self) -> list[tuple[str, ...]]:
        return [self.dated("birth", self.born), ("provider", self.doctor)]

    def measured(self, analyte: Sequence[Any]) -> tuple[list[str], tuple[str, ...]]:
        unit, symbol = analyte[3 + self.number]
        low, high = analyte[5 + self.number]
        places = analyte[7][self.number]
        spread = high - low
        value = self.random.uniform(low - 0.15 * spread, high + 0.45 * spread)
        printed = [f"{each:.{places}f}" for each in (max(value, 0.1), low, high)]
        dash = self.random.choice(["-", " - ", " – "])
        row = [
            analyte[1 + self.number],
            self.mark(printed[0]),
            unit,
            self.mark(f"{printed[1]}{dash}{printed[2]}"),
        ]
        if not low <= float(printed[0]) <= high:
            row[1] += self.random.choice([" *", " H" if float(printed[0]) > high else " L"])
        return row, ("measurement", analyte[0], printed[0], symbol, printed[1], printed[2])

    def taken(self, medication: Sequence[Any]) -> tuple[tuple[str, str, str], tuple[str, ...]]:
        dose = self.random.choice(medication[3])
        printed, often = self.random.choice(texts.SCHEDULES[self.language])
        amount, unit = dose.split()
        shown = dose if self.language == "de" else dose.replace(",", ".")
        fact = (
            "medication",
            medication[0],
            amount.replace(",", "."),
            {"µg": "ug"}.get(unit, unit),
            often,
            "",
        )
        return (medication[1 + self.number], shown, printed), fact

    def dated(self, role: str, day: date) -> tuple[str, ...]:
        return "date", role, day.isoformat()

    def print_day(self, day: date) -> str:
        if self.language == "en":
            return f"{day.day} {texts.MONTHS['en'][day.month - 1]} {day.year}"
        return day.strftime("%d.%m.%Y")

    def mark(self, number: str) -> str:
        return number.replace(".", ",") if self.language == "de" else number

    def say(self, english: str, german: str) -> str:
        return english if self.language == "en" else german

    def text(self, *pieces: str) -> dict[str, Any]:
        return {"kind": "text", "text": "    ".join(pieces)}
