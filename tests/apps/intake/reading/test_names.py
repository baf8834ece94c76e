"""A document that bears another's name is doubted; one that bears the same in other words is not."""

from __future__ import annotations

import pytest

from onceward_apps.intake.reading import names, timeline
from onceward_apps.intake.reading.extract import people, rows
from onceward_apps.intake.reading.model import Classification, Entity, Span
from tests.apps.intake.reading import typed

SAME = [
    ("Maya Thompson", "Maya Thompson"), ("THOMPSON, Maya", "Maya Thompson"), ("Mrs. Maya Thompson", "Maya Thompson"),
    ("M. Thompson", "Maya Thompson"), ("Maya Rose Thompson", "Maya Thompson"), ("Maya Thompson", "Maya Rose Thompson"),
    ("Georg Mueller", "Georg Müller"), ("Zoe Strauß", "Zoë Strauss"), ("Frau Dr. Jutta Roth", "Jutta Roth"),
    ("Maya Thornpson", "Maya Thompson"), ("Ma1a Li", "Mala Li"), ("Hans-Peter Roth", "Hans Peter Roth"), ("Maya", "Maya Thompson"),
]  # fmt: skip
OTHERS = [
    ("Leo Thompson", "Maya Thompson"), ("Maya Brandt", "Maya Thompson"), ("Julian Brandt", "Julia Brandt"), ("Anne Roth", "Anna Roth"),
    ("L. Thompson", "Maya Thompson"), ("M. T.", "Maya Thompson"), ("Somebody Else", "Maya Thompson"),
]  # fmt: skip


@pytest.mark.parametrize(("printed", "known"), SAME)
def test_one_name_in_two_forms_is_one(printed, known):
    assert not names.differ([printed], known)


@pytest.mark.parametrize(("printed", "known"), OTHERS)
def test_another_name_is_another(printed, known):
    assert names.differ([printed], known)
    # One of several is enough: a letter names others, too.
    assert not names.differ([printed, known], known)


def test_a_document_without_a_name_is_nobody_elses():
    assert not names.differ([], "Maya Thompson")
    assert not names.differ(["–"], "Maya Thompson")
    assert not names.differ(["Maya Thompson"], "")


def test_the_entry_of_a_document_with_another_name_is_for_review():
    bears = Classification(
        "lab_report", 0.95, entities=(Entity("patient", "Leo Thompson", Span(1, 0, 1), 0.9),)
    )
    assert "name_differs" in timeline.entry(bears, [], person="Maya Thompson").reasons
    assert timeline.entry(bears, [], person="Maya Thompson").needs_review
    assert "name_differs" not in timeline.entry(bears, [], person="Leo Thompson").reasons
    assert "name_differs" not in timeline.entry(bears, []).reasons


def test_a_label_behind_a_name_is_no_part_of_it():
    document = typed.document("Patient: Maya Thompson Date: 12 March 2026")
    (patient,) = [one for one in people.entities(rows.rows(document)) if one.kind == "patient"]
    assert patient.text == "Maya Thompson"
