"""RapidOCR: PaddleOCR's models on onnxruntime, in this process.  The models are in the wheel; nothing is fetched."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, TypeAlias

from PIL import Image

from onceward_apps.intake.reading.model import PageImage, Word

Point: TypeAlias = tuple[float, float]

# Below this a line is a stain or a piece of handwriting, not text.
_LEAST: Final = 0.5


class Rapid:
    """Reads pages one after the other in threads of its own, so that others' threads are never all taken by OCR."""

    name = "rapidocr"

    def __init__(self, *, threads: int = 2, concurrency: int = 1) -> None:
        self._readers = _readers(threads, concurrency)

    async def read(self, image: PageImage) -> list[Word]:
        return await asyncio.wrap_future(self._readers.pool.submit(self._readers.read, image))


class _Readers:
    def __init__(self, threads: int, concurrency: int) -> None:
        self.pool = ThreadPoolExecutor(concurrency, thread_name_prefix="rapidocr")
        self._threads = threads
        # An engine keeps notes while it reads: each thread has its own.
        self._own = threading.local()

    def read(self, image: PageImage) -> list[Word]:
        if not hasattr(self._own, "engine"):
            self._own.engine = _engine(self._threads)
        engine = self._own.engine
        with Image.open(io.BytesIO(image.png), formats=("PNG",)) as opened:
            picture = opened.convert("RGB")
        from onceward_apps.intake.reading.ocr.turning import Turned

        try:
            return list(_words(engine.upright(picture, believed=False), image, turns=0))
        except Turned as found:
            # Pillow turns the other way round.
            picture = picture.rotate(90 * found.turns, expand=True)
            return list(_words(engine.upright(picture, believed=True), image, turns=found.turns))


@cache
def _readers(threads: int, concurrency: int) -> _Readers:
    """The models take a second and 200 MB: once per process, when the first page is read."""
    return _Readers(threads, concurrency)


def _engine(threads: int) -> Any:
    from onceward_apps.intake.reading.ocr.turning import Engine

    return Engine(
        params={
            "Global.log_level": "critical",
            "Global.text_score": _LEAST,
            "EngineConfig.onnxruntime.intra_op_num_threads": threads,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
    )


def _words(result: Any, image: PageImage, *, turns: int) -> Iterator[Word]:
    """What was read on the picture, turned so many quarters to be upright, in places of the page image."""
    if result.txts is None:
        return
    by_line = result.word_results or ()
    for number, (text, score, box) in enumerate(zip(result.txts, result.scores, result.boxes, strict=True)):
        found = by_line[number] if number < len(by_line) else ()
        # Some lines come back without the places of their words.
        if found and "".join(word[0] for word in found).replace(" ", "") == text.replace(" ", ""):
            pieces = [(word, float(confidence), corners) for word, confidence, corners in found]
        else:
            pieces = [(text, float(score), box)]
        for piece, confidence, corners in pieces:
            for word, part in _split(piece, corners):
                yield _boxed(word, confidence, [_back(point, image, turns) for point in part], image)


def _split(text: str, corners: Any) -> Iterator[tuple[str, list[Point]]]:
    """The words of a piece of text, which share its box by their lengths, along the way that the text runs."""
    points = [(float(x), float(y)) for x, y in corners]
    length = len(text.strip()) or 1
    at = 0
    for word in text.split():
        start, end = at / length, (at + len(word)) / length
        at += len(word) + 1
        # The corners go round from the upper left of the text: along its top, back along its bottom.
        yield (
            word,
            [
                _between(points[0], points[1], start),
                _between(points[0], points[1], end),
                _between(points[3], points[2], end),
                _between(points[3], points[2], start),
            ],
        )


def _between(a: Point, b: Point, share: float) -> Point:
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


def _back(point: Point, image: PageImage, turns: int) -> Point:
    """From the upright picture to the page image, which is turned clockwise by so many quarters."""
    x, y = point
    match turns:
        case 1:
            return image.width - y, x
        case 2:
            return image.width - x, image.height - y
        case 3:
            return y, image.height - x
        case _:
            return x, y


def _boxed(text: str, confidence: float, points: Sequence[Point], image: PageImage) -> Word:
    left, right = _ends((x for x, _ in points), image.width)
    top, bottom = _ends((y for _, y in points), image.height)
    return Word(text, left, top, right - left, bottom - top, round(min(max(confidence, 0.0), 1.0), 4))


def _ends(values: Iterable[float], most: int) -> tuple[int, int]:
    held = [min(max(round(value), 0), most) for value in values]
    return min(held), max(held)
