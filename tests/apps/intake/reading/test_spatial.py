"""Reading order: lines, columns, tables, and pages that lie otherwise."""

from __future__ import annotations

import math
import random

import pytest

from onceward_apps.intake.reading import spatial
from onceward_apps.intake.reading.model import Span, Word
from tests.apps.intake.reading.typed import document, words

LETTER = """
Northfield General Hospital
Patient: Margaret Hughes        born 4 May 1951
Haemoglobin      128       g/L      115 - 165
Sodium           139       mmol/L   135 - 145
Potassium        4.1       mmol/L   3.5 - 5.2
Signed by the doctor on duty
"""
COLUMNS = """
                     A heading over both of the columns
the first column holds some text       the second column has its own
that runs on from line to line         lines that have nothing to do
and never looks across the page        with those on the left of it
to where another text is printed       although they are at one height
until it comes to its last words       and so must be read afterwards
"""


def texts(found):
    return [line.text for line in spatial.layout(found)]


def plain(text):
    return [" ".join(line.split()) for line in text.strip("\n").splitlines()]


def turned(found, turns, width=1200, height=1600):
    """The boxes of a page that was turned clockwise by so many quarters."""
    for _ in range(turns):
        found = [
            Word(word.text, height - word.y - word.height, word.x, word.height, word.width, word.confidence)
            for word in found
        ]
        width, height = height, width
    return found


def tilted(found, degrees):
    """The upright boxes around words on a tilted page."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    made = []
    for word in found:
        corners = [
            (x * cos - y * sin + 300, x * sin + y * cos + 300)
            for x in (word.x, word.x + word.width)
            for y in (word.y, word.y + word.height)
        ]
        left, top = (round(min(corner[axis] for corner in corners)) for axis in (0, 1))
        right, bottom = (round(max(corner[axis] for corner in corners)) for axis in (0, 1))
        made.append(Word(word.text, left, top, right - left, bottom - top, word.confidence))
    return made


def test_the_rows_of_a_table_stay_together():
    assert texts(words(LETTER)) == plain(LETTER)


@pytest.mark.parametrize("turns", range(4))
def test_a_page_on_its_side_or_head_reads_the_same(turns):
    found = turned(words(LETTER), turns)
    assert spatial.quarter_turns(found) == turns
    assert texts(found) == plain(LETTER)


@pytest.mark.parametrize("degrees", [-5, -2, 0.5, 3, 5])
def test_a_tilted_page_reads_the_same(degrees):
    assert texts(tilted(words(LETTER), degrees)) == plain(LETTER)


def test_columns_of_running_text_are_read_one_after_the_other():
    lines = spatial.layout(words(COLUMNS))
    assert lines[0].text == "A heading over both of the columns"
    assert [line.column for line in lines] == [0] * 6 + [1] * 5
    assert lines[1].text == "the first column holds some text"
    assert lines[6].text == "the second column has its own"


def test_numbers_of_words_run_through_the_lines_without_a_gap():
    lines = spatial.layout(words(LETTER))
    count = 0
    for line in lines:
        assert (line.first, line.last) == (count, count + len(line.words) - 1)
        count = line.last + 1
    assert count == len(words(LETTER))


@pytest.mark.parametrize("text", [LETTER, COLUMNS])
def test_what_was_laid_out_is_laid_out_the_same_again(text):
    once = spatial.layout(words(text))
    assert spatial.layout([word for line in once for word in line.words]) == once


def test_no_word_is_lost_or_made_up_whatever_the_boxes_are():
    chance = random.Random(7)
    for _ in range(200):
        found = [
            Word(str(number), *(chance.randrange(0, 900) for _ in range(4)), 0.5)
            for number in range(chance.randrange(0, 60))
        ]
        laid = [word for line in spatial.layout(found) for word in line.words]
        assert sorted(map(id, laid)) == sorted(map(id, found))


def test_a_span_names_words_of_its_page_and_nothing_beyond():
    found = document("one two\nthree", "four")
    assert [word.text for word in found.words(Span(1, 1, 2))] == ["two", "three"]
    assert [word.text for word in found.words(Span(2, 0, 0))] == ["four"]
    for wrong in (Span(3, 0, 0), Span(1, 0, 3), Span(1, -1, 1), Span(1, 2, 1), Span(0, 0, 0)):
        assert list(found.words(wrong)) == []


def test_a_page_without_words_has_no_lines():
    assert spatial.layout([]) == []
    assert spatial.document([[]]).pages[0].words == []
