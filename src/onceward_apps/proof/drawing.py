"""The pictures: QR code, label, insert card.  The same batch gives the same bytes, so drawing again changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from onceward_apps.kit import qr, typeset
from onceward_apps.proof.domain import Batch, Brand, label_texts

_ARTWORK = Path(__file__).parent / "artwork"
# The PNG of the contract: 25 mm at 300 dpi.
QR_PIXELS = 300
# Millimetres that a printer cuts off.
BLEED = 3


def qr_png(batch: Batch) -> bytes:
    return qr.png(batch.proof_url, pixels=QR_PIXELS)


def label_pdf(batch: Batch, *, fonts: Sequence[Path] = ()) -> bytes:
    """100 × 150 mm, the QR code 25 mm wide and drawn, not painted.  Raises typst.TypstError when a text does not fit."""
    data = {**label_texts(batch), "qr_svg": qr.svg(batch.proof_url)}
    return typeset.pdf(_ARTWORK / "label.typ", data, fonts=fonts)


def label_png(batch: Batch, *, fonts: Sequence[Path] = ()) -> bytes:
    """The label for a screen, drawn from the same template.  Raises typst.TypstError when a text does not fit."""
    data = {**label_texts(batch), "qr_svg": qr.svg(batch.proof_url)}
    return typeset.png(_ARTWORK / "label.typ", data, fonts=fonts, ppi=144)


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
