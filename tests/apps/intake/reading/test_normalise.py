"""Units, dates and codes; the time line."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from onceward_apps.intake.reading import dates, lexicon, normalise, timeline, units
from onceward_apps.intake.reading.model import Classification, Fact, Span

HERE = Span(1, 0, 3)


def normal(**given):
    (made,) = normalise.facts([Fact(**{"kind": "measurement", "source": HERE, "confidence": 0.95, **given})])
    return made


@pytest.mark.parametrize(
    ("name", "value", "unit", "expected"),
    [
        ("Hämoglobin", "14,2", "g/dl", ("hemoglobin", "142", "g/L")),
        ("Glukose", "100", "mg/dl", ("glucose", "5.551", "mmol/L")),
        ("Creatinine", "1.0", "mg/dL", ("creatinine", "88.42", "umol/L")),
        ("HbA1c", "6.5", "%", ("hba1c", "47.54", "mmol/mol")),
        ("Vitamin D", "30", "ng/ml", ("vitamin_d", "74.88", "nmol/L")),
        ("Leukozyten", "6.400", "/µl", ("leukocytes", "6.4", "10*9/L")),
        ("Thrombozyten", "250", "G/l", ("platelets", "250", "10*9/L")),
        ("Albumin", "4.1", "g/dL", ("albumin", "41", "g/L")),
        ("Height", "1.82", "m", ("body_height", "182", "cm")),
    ],
)
def test_a_value_is_brought_to_the_unit_of_its_table(name, value, unit, expected):
    made = normal(name=name, value=value, unit=unit)
    assert (made.code, made.value, made.unit) == (expected[0], Decimal(expected[1]), expected[2])
    assert made.code_system == "onceward-intake"
    assert made.doubts == ()


def test_the_range_is_converted_with_the_value():
    made = normal(name="Hämoglobin", value="11,0", unit="g/dl", low="11,5", high="16,5")
    assert (made.low, made.high, made.interpretation) == (Decimal(115), Decimal(165), "low")


@pytest.mark.parametrize(
    ("value", "expected"), [("4.0", "normal"), ("5.3", "high"), ("3.4", "low"), ("3.5", "normal")]
)
def test_a_value_is_held_against_its_range(value, expected):
    assert (
        normal(name="Potassium", value=value, unit="mmol/L", low="3.5", high="5.2").interpretation == expected
    )


def test_a_bound_stays_a_bound():
    made = normal(name="CRP", value="<5,0", unit="mg/l")
    assert (made.comparator, made.value) == ("<", Decimal("5.0"))


@pytest.mark.parametrize(
    ("given", "doubt"),
    [
        ({"name": "Potassium", "value": "41", "unit": "mmol/L"}, "implausible_value"),
        ({"name": "Potassium", "value": "4.1", "unit": None}, "missing_unit"),
        ({"name": "Potassium", "value": "4.1", "unit": "furlongs"}, "unknown_unit"),
        ({"name": "Potassium", "value": "4.1", "unit": "kg"}, "unexpected_unit"),
        ({"name": "Potasslum", "value": "4.1", "unit": "mmol/L"}, None),
        ({"name": "Potassiun", "value": "4.1", "unit": "mmol/L"}, "inexact_name"),
        ({"name": "Unobtainium", "value": "4.1", "unit": "mmol/L"}, "unknown_name"),
        ({"name": "Potassium", "value": "4.1", "unit": "mmol/L", "confidence": 0.5}, "low_confidence"),
        ({"name": "Potassium", "value": "4.1", "unit": "mmol/L", "date": "99.99.2024"}, "unreadable_date"),
        ({"name": "Potassium", "value": "4.1", "unit": "mmol/L", "date": "03/04/2024"}, "ambiguous_date"),
    ],
)
def test_what_somebody_should_look_at_is_said(given, doubt):
    assert normal(**given).doubts == ((doubt,) if doubt else ())


@pytest.mark.parametrize(
    ("printed", "text", "per_day"),
    [
        ("1-0-1", "1-0-1-0", "2"),
        ("½-0-½-0", "0.5-0-0.5-0", "1.0"),
        ("1 0 0 1", "1-0-0-1", "2"),
        ("twice daily", "2/day", "2"),
        ("3x täglich", "3/day", "3"),
        ("every 8 hours", "every 8 h", "3.0"),
        ("bei Bedarf", "as needed", None),
        ("einmal wöchentlich", "1/week", "0.14"),
    ],
)
def test_how_often_is_said_in_one_manner(printed, text, per_day):
    made = normal(kind="medication", name="Metformin", dose="500 mg", value=printed)
    assert (made.text, made.per_day) == (text, None if per_day is None else Decimal(per_day))
    assert (made.code, made.dose, made.dose_unit, made.doubts) == ("metformin", 500, "mg", ())


@pytest.mark.parametrize(
    ("dose", "amount", "unit"),
    [("2,5 mg", "2.5", "mg"), ("75µg", "75", "ug"), ("1000 IE", "1000", "[iU]"), ("10 ml", "10", "mL")],
)
def test_a_dose_is_a_number_with_a_unit(dose, amount, unit):
    made = normal(kind="medication", name="Ramipril", dose=dose)
    assert (made.dose, made.dose_unit) == (Decimal(amount), unit)


def test_both_languages_have_one_code():
    names = ["Arterial hypertension", "Arterielle Hypertonie", "Bluthochdruck"]
    assert {normal(kind="condition", name=name).code for name in names} == {"hypertension"}


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("12.03.2024", date(2024, 3, 12)),
        ("12. März 2024", date(2024, 3, 12)),
        ("2 January 2026", date(2026, 1, 2)),
        ("January 2nd, 2026", date(2026, 1, 2)),
        ("2026-01-02", date(2026, 1, 2)),
        ("2.1.26", date(2026, 1, 2)),
        ("1.5.51", date(1951, 5, 1)),
        ("25/12/2024", date(2024, 12, 25)),
        ("12/25/2024", date(2024, 12, 25)),
        ("29.02.2024", date(2024, 2, 29)),
        ("29.02.2023", None),
        ("1-0-1", None),
        ("13,5 - 17,5", None),
        ("120/80", None),
    ],
)
def test_a_date_is_read_as_printed_or_not_at_all(text, day):
    found = dates.parse(text)
    assert (found.day if found else None) == day


def test_every_number_has_the_meanings_it_may_have():
    assert units.numbers("4.500") == [Decimal("4.500"), Decimal(4500)]
    assert units.numbers("1.234,5") == [Decimal("1234.5")]
    assert units.numbers("12") == [Decimal(12)]
    assert units.numbers("12.03.2024") == units.numbers("x") == []


def test_the_tables_are_sound():
    known = set(units._spellings()) and {name for found in units._spellings().values() for name in found}
    for analyte in lexicon.analytes().values():
        assert analyte.units <= known, analyte.code
        assert analyte.plausible or analyte.pair, analyte.code
        assert lexicon.measured().code(analyte.name) == analyte.code
        for half in analyte.pair or ():
            assert half in lexicon.analytes()
    for table in (lexicon.medications(), lexicon.conditions()):
        for key, code in table._exact.items():
            assert lexicon.fold(key) == key
            assert table.code(lexicon.display(code)) == code


def test_no_name_is_taken_for_another_that_is_nearly_the_same():
    assert lexicon.conditions().code("Hyperthyroidism") == "hyperthyroidism"
    assert lexicon.conditions().code("Hypothyroidism") == "hypothyroidism"
    assert lexicon.medications().code("Prednisone") != lexicon.medications().code("Prednisolone")
    assert lexicon.measured().at(["Hämogloben", "1"]).code == "hemoglobin"
    # One letter from either of two: nobody guesses.
    both = lexicon.Lexicon({"a": ["abcdefgx"], "b": ["abcdefgy"]})
    assert both.code("abcdefgz") is None
    assert both.code("abcdefgx") == "a"


def entry(kind="lab_report", confidence=0.95, **facts):
    made = normalise.facts(
        Fact(source=HERE, confidence=0.95, **{"kind": "measurement", **given}) for given in facts.values()
    )
    return timeline.entry(Classification(kind, confidence), made)


POTASSIUM = {
    "name": "Potassium",
    "value": "5.9",
    "unit": "mmol/L",
    "low": "3.5",
    "high": "5.2",
    "date": "4 March 2025",
}
SODIUM = {
    "name": "Sodium",
    "value": "139",
    "unit": "mmol/L",
    "low": "135",
    "high": "145",
    "date": "4 March 2025",
}
SAMPLE = {"kind": "date", "name": "sample", "date": "4 March 2025"}
REPORT = {"kind": "date", "name": "report", "date": "6 March 2025"}


def test_a_laboratory_report_stands_under_the_day_of_its_sample():
    made = entry(a=REPORT, b=SAMPLE, c=POTASSIUM, d=SODIUM)
    assert (made.date, made.title) == (date(2025, 3, 4), "Laboratory report")
    assert made.summary == "Potassium high; 1 value within range"
    assert (made.needs_review, made.reasons, made.facts) == (False, (), 4)


def test_a_discharge_letter_stands_under_the_day_of_the_discharge():
    stay = [
        {"kind": "date", "name": name, "date": day}
        for name, day in (("admission", "1.3.2025"), ("discharge", "9.3.2025"))
    ]
    made = entry("discharge_letter", a=stay[0], b=stay[1], c={"kind": "condition", "name": "Gout"})
    assert made.date == date(2025, 3, 9)


@pytest.mark.parametrize(
    ("made", "reasons"),
    [
        (entry(a=SODIUM | {"date": None}), ("date_missing",)),
        (entry(a=SAMPLE), ("nothing_found",)),
        (entry("other", a=SAMPLE, b=SODIUM), ("unknown_kind",)),
        (entry(confidence=0.5, a=SAMPLE, b=SODIUM), ("unsure_kind",)),
        (entry(a=SAMPLE, b=SODIUM | {"value": "1390"}), ("doubtful_facts",)),
    ],
)
def test_a_person_is_asked_to_look_and_told_why(made, reasons):
    assert (made.needs_review, made.reasons) == (True, reasons)
