"""Tesseract, by its command: a process per page, the page on its standard input, its table on the standard output."""

from __future__ import annotations

import asyncio
import csv
import io
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onceward_apps.intake.reading.errors import Rejected, Unavailable
from onceward_apps.intake.reading.model import PageImage, Word
from onceward_apps.intake.reading.ocr import Settings

_WORD: Final = "5"


@dataclass(frozen=True, slots=True)
class Tesseract:
    """Which command, in which languages, and how many seconds it gets for a page."""

    command: str
    languages: str
    timeout: float
    name: str = "tesseract"

    @classmethod
    def found(cls, settings: Settings) -> Tesseract:
        command = shutil.which(settings.tesseract_command)
        if command is None:
            raise Rejected("tesseract", "is not installed")
        return cls(command, settings.tesseract_languages, settings.timeout.total_seconds())

    async def read(self, image: PageImage) -> list[Word]:
        child = await asyncio.create_subprocess_exec(
            *(self.command, "stdin", "stdout", "-l", self.languages, "--psm", "3", "tsv"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"OMP_THREAD_LIMIT": "1", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        )
        try:
            async with asyncio.timeout(self.timeout):
                out, _ = await child.communicate(image.png)
        except TimeoutError:
            raise Unavailable(self.name, "did not finish in time") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            raise Unavailable(self.name, f"ended with {child.returncode}")
        return list(_words(out.decode("utf-8", "replace")))


def _words(table: str) -> Iterator[Word]:
    # It does not quote: a word that is a quotation mark is one.
    for row in csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE):
        text = (row.get("text") or "").strip()
        if row.get("level") != _WORD or not text:
            continue
        try:
            yield Word(
                text,
                int(row["left"]),
                int(row["top"]),
                int(row["width"]),
                int(row["height"]),
                round(min(max(float(row["conf"]) / 100, 0.0), 1.0), 4),
            )
        except (KeyError, ValueError):
            raise Unavailable("tesseract", "answered with something that is no table of words") from None
