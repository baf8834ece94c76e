"""The pictures: QR code, label, insert card.  The same batch gives the same bytes, so drawing again changes nothing."""

from __future__ import annotations

import contextlib
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from string import Template
from threading import Lock
from typing import Any

import pypdfium2
import typst

from onceward_apps.kit import qr, typeset
from onceward_apps.proof.domain import Batch, Brand, label_texts

_ARTWORK = Path(__file__).parent / "artwork"
# The PNG of the contract: 25 mm at 300 dpi.
QR_PIXELS = 300
SCREEN_DPI = 144
# Millimetres that a printer cuts off.
BLEED = 3
_PDFIUM = Lock()
_MISSING = re.compile(r'the text `"(.+?)"` could not be displayed', re.DOTALL)


class MissingCharacter(ValueError):
    """No typeface at hand has a character of the text: a box would be printed in its place."""

    def __init__(self, character: str) -> None:
        super().__init__(character)
        self.character = character

    def __str__(self) -> str:
        first = self.character[:1]
        name = unicodedata.name(first, "") or "no name"
        return f"the typeface has no character {self.character} (U+{ord(first):04X}, {name})"


def check_characters(texts: Iterable[str], *, fonts: Sequence[Path] = ()) -> None:
    """Raises MissingCharacter.  An archive's PDF may have no boxes for characters, so typesetting one is the check."""
    try:
        typeset.pdf(_ARTWORK / "coverage.typ", {"texts": list(texts)}, fonts=fonts, archival=True)
    except typst.TypstError as error:
        missing = _MISSING.search(str(error))
        if missing is None:
            raise
        raise MissingCharacter(missing[1]) from None


def qr_png(batch: Batch) -> bytes:
    return qr.png(batch.proof_url, pixels=QR_PIXELS)


def label_pdf(batch: Batch, *, fonts: Sequence[Path] = ()) -> bytes:
    """100 × 150 mm, the QR code 25 mm wide and drawn, not painted.

    Raises typst.TypstError when a text does not fit, and MissingCharacter.
    """
    texts = label_texts(batch)
    check_characters(texts.values(), fonts=fonts)
    data = {**texts, "qr_svg": qr.svg(batch.proof_url)}
    return typeset.pdf(_ARTWORK / "label.typ", data, fonts=fonts)


def screen_png(pdf: bytes) -> bytes:
    """The first page for a screen.  Raises pypdfium2.PdfiumError when it is no PDF."""
    # PDFium does not know threads.
    with _PDFIUM, contextlib.closing(pypdfium2.PdfDocument(pdf)) as document:
        picture = document[0].render(scale=SCREEN_DPI / 72).to_pil()
    file = io.BytesIO()
    picture.save(file, "png", optimize=True)
    return file.getvalue()


@lru_cache(maxsize=256)
def share_png(brand_name: str, headline: str, product: str, batch: str, note: str) -> bytes:
    """What chats show beside a link to a proof page: 1200 × 630 pixels."""
    data = {"brand_name": brand_name, "headline": headline, "product": product, "batch": batch, "note": note}
    return typeset.png(_ARTWORK / "share.typ", data)


def certificate_pdf(data: Mapping[str, Any]) -> bytes:
    """A certificate for the sample data, as a lab would send it."""
    return typeset.pdf(_ARTWORK / "certificate.typ", data)


def label_html(batch: Batch) -> str:
    """The same label as a page, for a browser that prints it."""
    texts = {name: escape(text) for name, text in label_texts(batch).items()}
    page = Template((_ARTWORK / "label.html").read_text(encoding="utf-8"))
    return page.substitute(texts, qr_svg=qr.svg(batch.proof_url))


def card_pdf(
    transition_url: str, *, bleed: bool = False, brand: Brand | None = None, fonts: Sequence[Path] = ()
) -> bytes:
    """The insert card, A7, front and back; with bleed for a printer who trims."""
    brand = brand or Brand()
    data = {
        "brand_name": brand.brand_name,
        "tagline": brand.brand_tagline,
        "qr_svg": qr.svg(transition_url),
        "bleed": BLEED if bleed else 0,
    }
    return typeset.pdf(_ARTWORK / "card.typ", data, fonts=fonts)
