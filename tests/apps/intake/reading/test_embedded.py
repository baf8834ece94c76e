"""The rules: what they find, and what they must not."""

from __future__ import annotations

import asyncio

import pytest

from onceward_apps.intake.reading import extract
from onceward_apps.intake.reading.extract import embedded
from tests.apps.intake.reading.typed import document


def facts(text, kind=None, **options):
    found = document(text, **options)
    made = embedded.extract(found, embedded.classify(found)).facts
    return [fact for fact in made if kind in {None, fact.kind}]


def values(text):
    return [(fact.name, fact.value, fact.unit, fact.low, fact.high) for fact in facts(text, "measurement")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Hämoglobin 14,2 g/dl 13,5 - 17,5", ("Hämoglobin", "14,2", "g/dl", "13,5", "17,5")),
        ("Haemoglobin 128 L g/L (135–175)", ("Haemoglobin", "128", "g/L", "135", "175")),
        ("Sodium: 139 135-145 mmol/L", ("Sodium", "139", "mmol/L", "135", "145")),
        ("CRP <5,0 mg/l <5,0", ("CRP", "<5,0", "mg/l", None, "5,0")),
        ("eGFR > 90 ml/min/1,73m² > 60", ("eGFR", ">90", "ml/min/1,73m²", "60", None)),
        ("Leukozyten 12,1 + /nl 4,0-10,0", ("Leukozyten", "12,1", "/nl", "4,0", "10,0")),
        ("HbAlc 6.9 * %", ("HbAlc", "6.9", "%", None, None)),
        ("LDL-Cholesterin 161 mg/dl bis 115", ("LDL-Cholesterin", "161", "mg/dl", None, "115")),
        ("Vitamin D (25-OH) 18 ng/ml 30 - 70", ("Vitamin D (25-OH)", "18", "ng/ml", "30", "70")),
        ("The fasting glucose was 6.1 mmol/L", ("fasting glucose", "6.1", "mmol/L", None, None)),
        ("Kreatinln 0,92 mg/di 0,67 1,17", ("Kreatinln", "0,92", "mg/di", "0,67", "1,17")),
        ("INR 2.4 2.0 - 3.0", ("INR", "2.4", None, "2.0", "3.0")),
        ("Platelets 232 x10^9/L Ref: 150 - 400", ("Platelets", "232", "x10^9/L", "150", "400")),
    ],
)
def test_a_measurement_is_read_in_every_manner_it_is_printed_in(line, expected):
    assert values(line) == [expected]


def test_two_measurements_of_a_line_are_two_facts_and_blood_pressure_is_two():
    assert values("Blood pressure 138/84 mmHg, heart rate 72 /min") == [
        ("Blood pressure systolic", "138", "mmHg", None, None),
        ("Blood pressure diastolic", "84", "mmHg", None, None),
        ("heart rate", "72", "/min", None, None),
    ]


@pytest.mark.parametrize(
    "line", ["Sodium and potassium were normal", "Glucose 12.03.2024", "Calcium tablets", "Albumin negative"]
)
def test_a_name_without_a_value_is_no_measurement(line):
    assert values(line) == []


def test_a_number_without_unit_and_range_is_doubted():
    (fact,) = facts("Ferritin 97", "measurement")
    assert fact.confidence <= 0.5


def test_no_fact_is_surer_than_the_words_it_stands_on():
    (fact,) = facts("Sodium 139 mmol/L", "measurement", confidence=0.6)
    assert fact.confidence == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Metformin 500 mg 1-0-1", ("Metformin", "500 mg", "1-0-1")),
        ("• Ramipril 2,5 mg Tabletten 1 - 0 - 0 - 0", ("Ramipril", "2,5 mg", "1 - 0 - 0 - 0")),
        ("Levothyroxine 75 µg once daily in the morning", ("Levothyroxine", "75 µg", "once daily")),
        ("Ibuprofen 400mg bei Bedarf", ("Ibuprofen", "400mg", "bei Bedarf")),
        ("Salbutamol every 6 hours", ("Salbutamol", None, "every 6 hours")),
        ("Vitamin D3 1000 IE 1x täglich", ("Vitamin D3", "1000 IE", "1x täglich")),
        ("Pantoprazol 40 mg 1 0 0 0", ("Pantoprazol", "40 mg", "1 0 0 0")),
    ],
)
def test_a_medication_is_read_with_its_dose_and_how_often(line, expected):
    (fact,) = facts(line, "medication")
    assert (fact.name, fact.dose, fact.value) == expected


def test_a_substance_nobody_knows_is_found_in_a_list_of_medications_and_doubted():
    (fact,) = facts("Medication\nXyzopril 10 mg twice daily", "medication")
    assert (fact.name, fact.dose) == ("Xyzopril", "10 mg")
    assert fact.confidence < 0.75
    assert facts("Xyzopril 10 mg twice daily", "medication") == []


@pytest.mark.parametrize(
    "text",
    [
        "Allergies: Amoxicillin 500 mg",
        "Ibuprofen 400 mg stopped",
        "Metformin 500 mg wurde abgesetzt",
        "Allergien\nASS 100 mg",
    ],
)
def test_what_a_person_must_not_or_does_not_take_is_no_medication(text):
    assert facts(text, "medication") == []


@pytest.mark.parametrize(
    "text",
    [
        "No evidence of pneumonia",
        "Kein Hinweis auf Pneumonie",
        "There was no sign of stones or\npneumonia in any of the pictures",
        "Pneumonia was ruled out",
        "Family history\nType 2 diabetes",
        "Mutter: Schlaganfall",
        "Asthma?",
        "Pneumokokken-Impfung gegen Pneumonie empfohlen",
    ],
)
def test_a_condition_denied_asked_or_of_a_relative_is_none(text):
    assert facts(text, "condition") == []


def test_a_condition_is_found_in_both_languages_and_once():
    text = "Diagnosen\nArterielle Hypertonie\nDiabetes mellitus Typ 2\nVerlauf\nDie arterielle Hypertonie ist gut eingestellt."
    assert [fact.name for fact in facts(text, "condition")] == [
        "Arterielle Hypertonie",
        "Diabetes mellitus Typ 2",
    ]


def test_a_condition_that_begins_after_the_end_of_a_denial_is_one():
    assert [fact.name for fact in facts("No effusion. Pneumonia on the right.", "condition")] == ["Pneumonia"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Date of birth: 4 May 1951", [("birth", "4 May 1951")]),
        ("geb. 04.05.1951", [("birth", "04.05.1951")]),
        (
            "Probenentnahme: 04.11.2025 Befunddatum: 05.11.2025",
            [("sample", "04.11.2025"), ("report", "05.11.2025")],
        ),
        (
            "Admitted: 3 March 2025 Discharged: 9 March 2025",
            [("admission", "3 March 2025"), ("discharge", "9 March 2025")],
        ),
        (
            "stationär vom 03.03.2025 bis 09.03.2025",
            [("admission", "03.03.2025"), ("discharge", "09.03.2025")],
        ),
        ("Das Ergebnis: 12.03.2025", []),
    ],
)
def test_a_date_is_a_fact_by_the_role_that_stands_before_it(line, expected):
    assert [(fact.name, fact.date) for fact in facts(line, "date")] == expected


@pytest.mark.parametrize(
    "name", ["Dr. med. Anna Weber", "Prof. Dr. med. Ute Müller-Brandt", "Dr Sarah Collins"]
)
def test_a_provider_is_named_once(name):
    assert [fact.name for fact in facts(f"Signed: {name}\nand again {name}", "provider")] == [name]


def test_a_fact_names_the_words_it_stands_on():
    found = document("Riverside Laboratory\nTest Result Unit\nSodium 139 mmol/L 135-145\nPage 1")
    made = embedded.extract(found, embedded.classify(found)).facts
    (sodium,) = [fact for fact in made if fact.kind == "measurement"]
    assert [word.text for word in found.words(sodium.source)] == ["Sodium", "139", "mmol/L", "135-145"]


def test_measurements_hold_for_the_day_of_the_sample():
    text = "Report date: 6 March 2025\nCollected: 4 March 2025\nSodium 139 mmol/L"
    assert [fact.date for fact in facts(text, "measurement")] == ["4 March 2025"]


@pytest.mark.parametrize(
    ("text", "kind", "language"),
    [
        ("Laborbefund\nReferenzbereich der Werte\nProbenentnahme am", "lab_report", "de"),
        (
            "Medication plan\nSubstance Strength\nonce daily for the heart and the stomach",
            "medication_plan",
            "en",
        ),
        ("Entlassungsbrief\nAufnahme und Diagnosen der Patientin", "discharge_letter", "de"),
        ("Radiology report\nMRI of the knee with contrast\nImpression", "imaging_report", "en"),
        ("Impfpass\nImpfstoff Charge und Datum", "vaccination_record", "de"),
        ("Dear aunt, the weather is fine and the cat is well", "other", "en"),
    ],
)
def test_a_document_is_classified_by_its_words(text, kind, language):
    found = embedded.classify(document(text))
    assert (found.kind, found.language) == (kind, language)
    assert found.confidence < 0.5 if kind == "other" else found.confidence >= 0.75


def test_entities_are_named_with_their_places():
    found = document("Klinikum Südhöhe\nPatient: Max Mustermann geb. 12.03.1961\nDr. med. Anna Weber")
    entities = embedded.classify(found).entities
    assert {(entity.kind, entity.text) for entity in entities} == {
        ("organisation", "Klinikum Südhöhe"),
        ("patient", "Max Mustermann"),
        ("provider", "Dr. med. Anna Weber"),
        ("date", "12.03.1961"),
    }
    for entity in entities:
        assert " ".join(word.text for word in found.words(entity.source)).strip(".,:") == entity.text


def test_it_costs_nothing_and_answers_the_same_every_time():
    provider = extract.provider("embedded")
    found = document("Laborbefund\nNatrium 139 mmol/l 136 - 145")

    async def both():
        classification = await provider.classify(found)
        return classification, await provider.extract(found, classification)

    first, second = asyncio.run(both()), asyncio.run(both())
    assert first == second
    assert provider.estimate(found) == first[0].usage.total == first[1].usage.total == 0


def test_a_document_without_a_word_has_no_facts():
    empty = document("")
    classification = embedded.classify(empty)
    assert classification.kind == "other"
    assert embedded.extract(empty, classification).facts == ()
