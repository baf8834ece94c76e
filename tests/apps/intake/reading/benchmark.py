"""How well documents are read: word recall and F1 of facts, per disturbance, kind and language, as JSON.

    python -m tests.apps.intake.reading.benchmark [--count 60] [--first 0] [--seed N] [--details] [--keep FOLDER]

With --keep, what OCR read is kept in a folder and used again: rules can be tried without reading everything anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from onceward_apps.intake.reading import extract, normalise, ocr, pages, scan, spatial, units
from onceward_apps.intake.reading.model import NormalFact, PageImage, Word
from tests.apps.intake import corpus


@dataclass(frozen=True, slots=True)
class Score:
    """Of one document."""

    sample: corpus.Sample
    words: int
    words_found: int
    facts: int
    facts_found: int
    facts_right: int
    kind_right: bool
    seconds: float
    missed: tuple[tuple[str, ...], ...] = ()
    invented: tuple[tuple[str, ...], ...] = ()
    words_missed: tuple[str, ...] = field(default=(), repr=False)


async def words_of(sample: corpus.Sample, reader: ocr.Provider) -> list[list[Word]]:
    return [await reader.read(image) for image in await asyncio.to_thread(images_of, sample)]


def images_of(sample: corpus.Sample) -> list[PageImage]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page" + corpus.suffix(sample))
        path.write_bytes(corpus.picture(sample))
        scanned = scan.check(path, declared_type=path.name)
        return list(pages.render(path, scanned.kind))


async def score(
    sample: corpus.Sample, reader: ocr.Provider, extractor: extract.Provider, keep: Path | None = None
) -> Score:
    started = time.perf_counter()
    kept = keep / f"{sample.name}.json" if keep else None
    if kept and kept.exists():
        words = [[Word(**word) for word in page] for page in json.loads(kept.read_text())]
    else:
        words = await words_of(sample, reader)
        if kept:
            kept.write_text(json.dumps([[asdict(word) for word in page] for page in words]))
    document = spatial.document(words)
    classification = await extractor.classify(document)
    extraction = await extractor.extract(document, classification)
    seconds = time.perf_counter() - started
    found = {key(fact) for fact in normalise.facts(extraction.facts)}
    wanted = Counter(plain(corpus.contents(sample)))
    seen = Counter(plain(word.text for page in words for word in page))
    both = wanted & seen
    return Score(
        sample=sample,
        words=wanted.total(),
        words_found=both.total(),
        facts=len(sample.facts),
        facts_found=len(found),
        facts_right=len(found & sample.facts),
        kind_right=classification.kind == sample.kind,
        seconds=seconds,
        missed=tuple(sorted(sample.facts - found)),
        invented=tuple(sorted(found - sample.facts)),
        words_missed=tuple((wanted - seen).elements()),
    )


def key(fact: NormalFact) -> tuple[str, ...]:
    """A fact as the corpus writes it down: everything of it has to be right."""
    printed = fact.fact
    match fact.kind:
        case "measurement":
            unit = units.symbol(printed.unit or "", _units(fact.code)) or ""
            figures = [(each or "").replace(",", ".") for each in (printed.value, printed.low, printed.high)]
            return "measurement", fact.code or fact.name, figures[0], unit, figures[1], figures[2]
        case "medication":
            vaccine = (fact.code or "").startswith("vaccine_")
            day = fact.date.isoformat() if fact.date and vaccine else ""
            amount = format(fact.dose, "f") if fact.dose is not None else ""
            return "medication", fact.code or fact.name, amount, fact.dose_unit or "", fact.text or "", day
        case "condition":
            return "condition", fact.code or fact.name
        case "date":
            return "date", fact.name, fact.date.isoformat() if fact.date else ""
        case "provider":
            return "provider", fact.name


def _units(code: str | None) -> Iterable[str]:
    from onceward_apps.intake.reading import lexicon

    return lexicon.analytes()[code].units if code else ()


def plain(words: Iterable[str]) -> Iterator[str]:
    """Case, and where spaces stand around dashes and marks, are not counted."""
    for word in words:
        yield from re.findall(
            r"[^\s.,:;()*•·–—−‐-]+(?:[.,][^\s.,:;()*•·–—−‐-]+)*", word.replace("μ", "µ").casefold()
        )


def summary(scores: Sequence[Score]) -> dict[str, Any]:
    """Word recall, precision, recall and F1 of facts, over all words and facts of some documents."""
    right = sum(each.facts_right for each in scores)
    wanted, found = sum(each.facts for each in scores), sum(each.facts_found for each in scores)
    return {
        "documents": len(scores),
        "word_recall": round(
            sum(each.words_found for each in scores) / sum(each.words for each in scores), 4
        ),
        "fact_precision": round(right / found, 4) if found else 0.0,
        "fact_recall": round(right / wanted, 4),
        "fact_f1": round(2 * right / (found + wanted), 4),
        "kind_accuracy": round(sum(each.kind_right for each in scores) / len(scores), 4),
        "seconds_per_page": round(sum(each.seconds for each in scores) / len(scores), 2),
    }


def report(scores: Sequence[Score], seed: int = corpus.SEED) -> dict[str, Any]:
    def split(attribute: str) -> dict[str, Any]:
        values = sorted({getattr(each.sample, attribute) for each in scores})
        return {
            value: summary([each for each in scores if getattr(each.sample, attribute) == value])
            for value in values
        }

    return {
        "seed": seed,
        "all": summary(scores),
        "by_disturbance": split("disturbance"),
        "by_language": split("language"),
        "by_kind": split("kind"),
    }


async def run(
    samples: Sequence[corpus.Sample], *, details: bool = False, keep: Path | None = None
) -> list[Score]:
    reader, extractor = ocr.provider("rapidocr"), extract.provider("embedded")
    scores = []
    for sample in samples:
        made = await score(sample, reader, extractor, keep)
        scores.append(made)
        line = (
            f"{sample.name:48} words {made.words_found}/{made.words}  facts {made.facts_right}/{made.facts}"
        )
        print(f"{line}  {made.seconds:.1f} s", file=sys.stderr, flush=True)
        if details:
            print(
                "   missed",
                made.missed,
                "\n   invented",
                made.invented,
                "\n  ",
                made.words_missed,
                file=sys.stderr,
            )
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=corpus.SEED, help="another corpus of the same manner")
    parser.add_argument("--details", action="store_true", help="name what was missed and what was invented")
    parser.add_argument("--keep", type=Path, help="a folder for what OCR read, to be used again")
    options = parser.parse_args()
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    chosen = corpus.samples(seed=options.seed)[options.first : options.first + options.count]
    scores = asyncio.run(run(chosen, details=options.details, keep=options.keep))
    print(json.dumps(report(scores, options.seed), indent=2))


if __name__ == "__main__":
    main()
