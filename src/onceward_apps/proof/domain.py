"""Batches, and what label, card, email and alerts say about them.  Nothing here touches a database or a network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel

STEPS = ("qr_generated", "qr_uploaded", "label_generated", "label_uploaded", "email_sent")
# A number and its unit stay on one line.
_UNIT = re.compile(r"(\d) (%|°C|g\b|kg\b|mg\b|IU\b)")
Status = Literal["QA_HOLD", "RELEASED", "REJECTED"]


class Product(BaseModel):
    sku: str
    name: str
    label_name: str
    description: str
    net_weight_g: int
    ingredients: str


class Formulation(BaseModel):
    version: str
    name: str


class Brand(BaseModel):
    brand_name: str = "PROTOCOL RAW"
    brand_tagline: str = "Proof, not promises"
    brand_promise: str = "Verified safe, batch by batch"
    made_in: str = "Made in the UK"
    company_details: str = ""


class Batch(BaseModel):
    """A batch as label and email show it: what `raw_ops.fn_get_batch_v1` returns."""

    batch_id: UUID
    batch_code: str
    public_batch_id: str
    status: Status
    produced_at: date
    expiry_date: date
    kg_produced: Decimal
    proof_url: str
    # Set when somebody worked on the batch before.
    qr_image_url: str | None = None
    label_pdf_url: str | None = None
    product: Product
    formulation: Formulation
    brand: Brand

    @property
    def qr_path(self) -> str:
        return f"qr-codes/{self.batch_code}.png"

    @property
    def label_path(self) -> str:
        return f"batch-labels/{self.batch_code}.pdf"


def label_texts(batch: Batch) -> dict[str, str]:
    """What the label says, for either renderer."""
    product, brand = batch.product, batch.brand
    texts = {
        "brand_name": brand.brand_name,
        "tagline": brand.brand_tagline,
        "product_name": product.label_name,
        "description": product.description,
        "net_weight": weight(product.net_weight_g),
        "batch_code": batch.batch_code,
        "produced": day(batch.produced_at),
        "best_before": day(batch.expiry_date),
        "ingredients": product.ingredients,
        "made_in": brand.made_in,
        "company": brand.company_details,
        "promise": brand.brand_promise,
    }
    return {name: _UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", text) for name, text in texts.items()}


@dataclass(frozen=True, slots=True)
class Letter:
    """An email, before it is in the ledger."""

    subject: str
    text: str
    html: str


def label_letter(batch: Batch, link: str, days: int) -> Letter:
    """What the co-packer reads: batch details, the download link, printing instructions."""
    from html import escape

    rows = [
        ("Batch", batch.batch_code),
        ("Production date", day(batch.produced_at)),
        ("Best before", day(batch.expiry_date)),
        ("Quantity", f"{batch.kg_produced.normalize():f} kg"),
        ("Product", f"{batch.product.name}, {weight(batch.product.net_weight_g)}"),
        ("Formulation", f"{batch.formulation.name} ({batch.formulation.version})"),
    ]
    instructions = [
        "Print at 100 % on 100 × 150 mm label stock; do not scale to fit.",
        "Use 300 dpi or more.",
        "Scan the QR code of the first label of the run before you go on; it must open the page of this batch.",
        "Use these labels for this batch only, and destroy what is left over.",
    ]
    text = "\n".join(
        [
            f"The label artwork of batch {batch.batch_code} is ready.",
            "",
            *(f"{name + ':':<17} {value}" for name, value in rows),
            "",
            f"Download the label (PDF; the link works for {days} days):",
            link,
            "",
            "Printing:",
            *(f"- {line}" for line in instructions),
            "",
            f"{batch.brand.brand_name} – {batch.brand.brand_promise}",
        ]
    )
    cells = "".join(
        f'<tr><td style="padding:4px 16px 4px 0;color:#4f7a5b">{escape(name)}</td>'
        f'<td style="padding:4px 0;font-weight:600">{escape(value)}</td></tr>'
        for name, value in rows
    )
    html = (
        '<div style="font-family:Montserrat,Helvetica,Arial,sans-serif;color:#36261d;max-width:560px">'
        f'<p style="letter-spacing:.12em;font-weight:700;color:#1d3b2a">{escape(batch.brand.brand_name)}</p>'
        f"<p>The label artwork of batch <b>{escape(batch.batch_code)}</b> is ready.</p>"
        f'<table style="border-collapse:collapse">{cells}</table>'
        f'<p style="margin:24px 0"><a href="{escape(link)}" style="background:#1d3b2a;color:#f7f1e3;padding:12px 20px;'
        'border-radius:6px;text-decoration:none;font-weight:600">Download the label</a></p>'
        f"<p>The link works for {days} days.</p><p><b>Printing</b></p><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in instructions)
        + f'</ul><p style="color:#4f7a5b">{escape(batch.brand.brand_promise)}</p></div>'
    )
    return Letter(f"Protocol Raw Batch {batch.batch_code} - Label Artwork", text, html)


def dead_letter_alert(batch_code: str, *, attempts: int, error: str, category: str) -> dict[str, Any]:
    """The alert of the contract, as `fn_mark_proof_job_failed_v1` returns it."""
    fields = [("Batch", batch_code, True), ("Attempts", str(attempts), True), ("Error", error[:200], False)]
    return {
        "channel": "ops-urgent",
        "severity": "critical",
        "title": f"Proof Job Dead Letter: {batch_code}",
        "message": f"Proof generation failed after {attempts} attempt{'s' if attempts != 1 else ''}. Manual intervention required.",
        "fields": [
            {"label": label, "value": value, "inline": inline}
            for label, value, inline in [*fields, ("Category", category, True)]
        ],
    }


def alert_text(alert: Mapping[str, Any]) -> str:
    """An alert as a chat message."""
    mark = ":rotating_light:" if alert["severity"] == "critical" else ":warning:"
    lines = [f"{mark} *{alert['title']}*", alert["message"]]
    lines += [f"• {field['label']}: {field['value']}" for field in alert["fields"]]
    return "\n".join(lines)


def day(moment: date) -> str:
    """20 March 2026, whatever the machine's locale."""
    months = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ]
    return f"{moment.day} {months[moment.month - 1]} {moment.year}"


def weight(grams: int) -> str:
    return f"{grams} g" if grams < 1000 else f"{grams / 1000:g} kg"
