"""Reading does not get worse unnoticed: a handful of pictures, and the text of the whole corpus.

The whole corpus as pictures takes minutes: python -m tests.apps.intake.reading.benchmark
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pypdfium2
import pytest

from onceward_apps.intake.reading import extract, normalise, ocr, spatial
from onceward_apps.intake.reading.extract import embedded
from onceward_apps.intake.reading.model import Word
from tests.apps.intake import corpus
from tests.apps.intake.reading import benchmark

pytestmark = pytest.mark.slow

# Turned, noisy and photographed: a laboratory report, a medication plan and a vaccination record among them.
HANDFUL = (29, 46, 50)
OTHER_SEED = 4711


def printed(sample: corpus.Sample) -> list[Word]:
    """The words of a PDF with their boxes, as a perfect OCR would give them."""
    page = pypdfium2.PdfDocument(corpus.pdf(sample))[0]
    height = page.get_height()
    text = page.get_textpage()
    letters = text.get_text_range()
    words: list[Word] = []
    begun: list[int] = []
    for at, letter in enumerate(f"{letters} "):
        if not letter.isspace():
            begun.append(at)
        elif begun:
            boxes = [text.get_charbox(each, loose=True) for each in begun]
            left, bottom = min(box[0] for box in boxes), min(box[1] for box in boxes)
            right, top = max(box[2] for box in boxes), max(box[3] for box in boxes)
            place = [round(2 * each) for each in (left, height - top, right - left, top - bottom)]
            words.append(Word("".join(letters[each] for each in begun), *place, 1.0))
            begun = []
    return words


def perfect(sample: corpus.Sample) -> benchmark.Score:
    document = spatial.document([printed(sample)])
    classification = embedded.classify(document)
    found = {
        benchmark.key(fact) for fact in normalise.facts(embedded.extract(document, classification).facts)
    }
    return benchmark.Score(
        sample=sample,
        words=1,
        words_found=1,
        facts=len(sample.facts),
        facts_found=len(found),
        facts_right=len(found & sample.facts),
        kind_right=classification.kind == sample.kind,
        seconds=0,
        missed=tuple(sample.facts - found),
        invented=tuple(found - sample.facts),
    )


@pytest.mark.parametrize("seed", [corpus.SEED, OTHER_SEED])
def test_the_rules_find_what_the_corpus_says_when_every_letter_is_right(seed):
    scores = [perfect(sample) for sample in corpus.samples(seed=seed)]
    wrong = [
        (each.sample.name, each.missed, each.invented) for each in scores if each.missed or each.invented
    ]
    summary = benchmark.summary(scores)
    assert summary["fact_f1"] >= 0.99, wrong
    assert summary["kind_accuracy"] == 1


@pytest.mark.parametrize("number", HANDFUL)
def test_a_spoilt_page_is_read_well_enough(number):
    sample = corpus.samples()[number]
    reader, extractor = ocr.provider("rapidocr"), extract.provider("embedded")
    summary = benchmark.summary([asyncio.run(benchmark.score(sample, reader, extractor))])
    assert summary["word_recall"] >= 0.9
    assert summary["fact_f1"] >= 0.85
    assert summary["kind_accuracy"] == 1


def test_the_corpus_is_wide_enough():
    samples = corpus.samples()
    assert len(samples) >= 50
    assert {sample.language for sample in samples} == {"en", "de"}
    assert {sample.typeface for sample in samples} == set(corpus.TYPEFACES)
    crossed = {(sample.kind, sample.language, sample.disturbance) for sample in samples}
    assert len(crossed) == len(corpus.KINDS) * len(corpus.LANGUAGES) * len(corpus.DISTURBANCES)


def test_the_corpus_says_what_it_is_said_to_say():
    for sample in corpus.samples()[::7]:
        on_page = Counter(benchmark.plain(word.text for word in printed(sample)))
        assert on_page == Counter(benchmark.plain(corpus.contents(sample)))


def test_the_same_seed_gives_the_same_corpus():
    again = corpus.samples.__wrapped__()
    assert again == corpus.samples()
    assert corpus.picture(again[43]) == corpus.picture(corpus.samples()[43])
    assert corpus.samples(seed=OTHER_SEED) != again


def test_a_wrong_fact_lowers_the_score():
    sample = corpus.samples()[0]
    right = perfect(sample)
    assert (right.missed, right.invented) == ((), ())
    wrong = benchmark.summary([right, benchmark.Score(sample, 1, 0, 10, 10, 5, kind_right=False, seconds=0)])
    assert wrong["word_recall"] == 0.5
    assert wrong["kind_accuracy"] == 0.5
    assert wrong["fact_f1"] < 0.9
