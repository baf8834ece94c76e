"""Documents for tests of rules: words as a perfect OCR would give them, from plain text."""

from __future__ import annotations

import asyncio
from typing import Any

from onceward_apps.intake.reading import spatial
from onceward_apps.intake.reading.model import Document, Word
from tests.deliveries.sinks import Hit, HttpSink

LETTER, LINE = 12, 40


def words(text: str, *, confidence: float = 1.0) -> list[Word]:
    """Line under line; more than one space between words is a gap of that width."""
    made = []
    for row, line in enumerate(text.strip("\n").splitlines()):
        at = 0
        for piece in line.split(" "):
            if piece:
                box = (50 + LETTER * at, 50 + LINE * row, LETTER * len(piece), 28)
                made.append(Word(piece, *box, confidence))
            at += len(piece) + 1
    return made


def document(*pages: str, confidence: float = 1.0) -> Document:
    return spatial.document([words(page, confidence=confidence) for page in pages])


class Double(HttpSink):
    """A provider on a real socket that gives the answers it is told to, and keeps what it was asked."""

    def __init__(self, *answers: tuple[int, bytes, str]) -> None:
        super().__init__()
        self.answers = list(answers)

    async def _answer(self, hit: Hit, writer: Any) -> None:
        self.hits.append(hit)
        status, body, more = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status == 0:
            writer.transport.abort()
        elif status == 1:
            await asyncio.sleep(3600)
        else:
            self._write(writer, status, body, more)
