"""Where words stand becomes the order in which they are read.

Providers give words with boxes in some order of their own, of pages that may be tilted or on their side.  The layout
finds which way the text runs, turns the boxes upright (in numbers, not in pixels), puts words of one height on one
line, and separates columns of running text.  Boxes in the result are those of the page image, untouched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from onceward_apps.intake.reading.model import Document, Line, Page, Word

# A gutter between columns, in heights of a line; narrower gaps are those of tables and of justified text.
_GUTTER: Final = 2.0
# How many lines on either side make a column of it.
_COLUMN_LINES: Final = 4
# Beyond this a row of words is no tilted line but something else.
_STEEPEST: Final = math.radians(12)


@dataclass(frozen=True, slots=True)
class _Box:
    """A word in upright coordinates: centre, and half of its width and height."""

    word: Word
    x: float
    y: float
    half_width: float
    half_height: float

    @property
    def left(self) -> float:
        return self.x - self.half_width

    @property
    def right(self) -> float:
        return self.x + self.half_width


def layout(words: Sequence[Word]) -> list[Line]:
    """Lines in reading order, top to bottom and column by column.

    Laying out the words of the result again gives the same order.
    """
    boxes = _upright([word for word in words if word.text.strip()])
    lines = [_across(line) for line in _rows(boxes)]
    made: list[Line] = []
    count = 0
    for column, row in _columns(lines):
        made.append(Line(words=tuple(box.word for box in row), first=count, column=column))
        count += len(row)
    return made


def document(pages: Iterable[Sequence[Word]]) -> Document:
    """A document from the words of its pages, the first of which is number 1."""
    return Document(tuple(Page(number, tuple(layout(words))) for number, words in enumerate(pages, 1)))


def quarter_turns(words: Sequence[Word]) -> int:
    """How often the page was turned clockwise by 90 degrees: 0 to 3.

    Long words are wider than high unless the page lies on its side; and every provider gives the words of a line in the
    order in which they are read, so that the steps from word to word point along the text.
    """
    long = [word for word in words if len(word.text) >= 4]
    sideways = sum(word.height > word.width for word in long) > len(long) / 2
    onward = 0
    for before, after in pairwise(words):
        dx = (after.x + after.width / 2) - (before.x + before.width / 2)
        dy = (after.y + after.height / 2) - (before.y + before.height / 2)
        along, across = (dy, dx) if sideways else (dx, dy)
        size = min(before.width, after.width) if sideways else min(before.height, after.height)
        # The step to another line goes across as well, and has no say.
        if abs(across) < 0.7 * size:
            onward += 1 if along > 0 else -1
    return int(sideways) + 2 * (onward < 0)


def _upright(words: Sequence[Word]) -> list[_Box]:
    turns = quarter_turns(words)
    boxes = [_turned(word, turns) for word in words]
    tilt = _tilt(boxes)
    cos, sin = math.cos(-tilt), math.sin(-tilt)
    return [
        _Box(
            box.word,
            box.x * cos - box.y * sin,
            box.x * sin + box.y * cos,
            box.half_width,
            # The upright box around a tilted word is too high by what the tilt adds over its width.
            max(box.half_height - abs(math.tan(tilt)) * box.half_width, box.half_height * 0.4),
        )
        for box in boxes
    ]


def _turned(word: Word, turns: int) -> _Box:
    x, y = word.x + word.width / 2, word.y + word.height / 2
    half_width, half_height = word.width / 2, word.height / 2
    match turns:
        case 1:
            return _Box(word, y, -x, half_height, half_width)
        case 2:
            return _Box(word, -x, -y, half_width, half_height)
        case 3:
            return _Box(word, -y, x, half_height, half_width)
        case _:
            return _Box(word, x, y, half_width, half_height)


def _tilt(boxes: Sequence[_Box]) -> float:
    """The median slope from a word to the next one on its line, in radians."""
    slopes: list[float] = []
    for before, after in pairwise(boxes):
        dx, dy = after.x - before.x, after.y - before.y
        if dx > 0 and before.right < after.right and abs(dy) < math.tan(_STEEPEST) * dx:
            # A long step says more about the slope than a short one.
            slopes.extend([math.atan2(dy, dx)] * max(1, min(8, int(dx / (before.half_height + 1)))))
    return median(slopes) if len(slopes) >= 5 else 0.0


def _rows(boxes: Sequence[_Box]) -> list[list[_Box]]:
    """Words whose middles are at about one height, from top to bottom."""
    rows: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda box: (box.y, box.x)):
        for row in reversed(rows[-4:]):
            middle = sum(other.y for other in row) / len(row)
            height = min(box.half_height, median(other.half_height for other in row))
            if abs(box.y - middle) < max(height, 1.0) * 0.9 and not _covers(row, box):
                row.append(box)
                break
        else:
            rows.append([box])
    return rows


def _covers(row: Sequence[_Box], box: _Box) -> bool:
    """Whether the box stands above or below a word of the row, rather than beside it."""
    return any(
        min(box.right, other.right) - max(box.left, other.left)
        > 0.6 * 2 * min(box.half_width, other.half_width)
        for other in row
    )


def _across(row: Sequence[_Box]) -> list[_Box]:
    return sorted(row, key=lambda box: (box.left, box.y))


def _columns(lines: Sequence[list[_Box]]) -> list[tuple[int, list[_Box]]]:
    """Cut lines at a gutter that runs through several of them, and read one side after the other.

    A table has gutters too, but its rows belong together: what counts as running text is a gutter with several words
    on both sides of it in most of its lines.
    """
    out: list[tuple[int, list[_Box]]] = []
    at = 0
    while at < len(lines):
        gutter, end = _gutter(lines, at)
        if gutter is None:
            out.append((0, lines[at]))
            at += 1
            continue
        block = lines[at:end]
        for column in (0, 1):
            for line in block:
                side = [box for box in line if (box.x > gutter) == bool(column)]
                if side:
                    out.append((column, side))
        at = end
    return out


def _gutter(lines: Sequence[list[_Box]], start: int) -> tuple[float | None, int]:
    """The middle of a gutter that begins at this line, and the line after its last."""
    for gap in _gaps(lines[start]):
        end, left, right = start, gap[0], gap[1]
        full = 0
        while end < len(lines):
            line = lines[end]
            narrowed = _narrow(line, left, right)
            if narrowed is None:
                break
            left, right = narrowed
            middle = (left + right) / 2
            before = sum(1 for box in line if box.x < middle)
            full += before >= 3 and len(line) - before >= 3
            end += 1
        if (
            full >= _COLUMN_LINES
            and full >= 0.6 * (end - start)
            and _prose(lines[start:end], (left + right) / 2)
        ):
            return (left + right) / 2, end
    return None, start + 1


def _gaps(line: Sequence[_Box]) -> list[tuple[float, float]]:
    return [
        (before.right, after.left)
        for before, after in pairwise(line)
        if after.left - before.right > _GUTTER * 2 * min(before.half_height, after.half_height)
    ]


def _narrow(line: Sequence[_Box], left: float, right: float) -> tuple[float, float] | None:
    """What a line leaves of a gap; None when too little."""
    for box in line:
        if box.right <= left or box.left >= right:
            continue
        if box.x < (left + right) / 2:
            left = max(left, box.right)
        else:
            right = min(right, box.left)
    height = median(2 * box.half_height for box in line)
    return (left, right) if right - left > _GUTTER * 0.6 * height else None


def _prose(lines: Sequence[list[_Box]], middle: float) -> bool:
    """Whether both sides are mostly words rather than figures, and without further gutters of their own."""
    for column in (False, True):
        side = [[box for box in line if (box.x > middle) == column] for line in lines]
        words = [box for line in side for box in line]
        figures = sum(any(letter.isdigit() for letter in box.word.text) for box in words)
        gaps = sum(bool(_gaps(line)) for line in side if line)
        if figures > 0.3 * len(words) or gaps > 0.3 * len(lines):
            return False
    return True
