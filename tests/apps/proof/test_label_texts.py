"""What labels say: what can be printed is kept, and stays with the label once it is drawn."""

from __future__ import annotations

import asyncio

import pypdfium2
from psycopg.types.json import Jsonb

from tests.apps.proof.test_portal import page_of


def test_a_label_that_is_drawn_and_its_page_keep_their_texts(proof, ana, public):
    old = proof.create()
    proof.drain()
    before = ana.http.get(page_of(old) + "/label.png").content
    product = proof.one("select id from raw_ops.products")
    texts = {"label_name": "OTHER", "description": "Other food.", "net_weight_g": "750"}
    ana.post(f"/proof/products/{product}", ingredients="Venison, swede.", **texts)
    new = proof.create()
    proof.drain()
    for batch in (old, new):
        proof.record(batch)
        proof.release(batch)

    assert ana.http.get(page_of(old) + "/label.png").content == before
    # Also when the file is past its retention.
    proof.run("update raw_ops.batches set label_pdf_url = null where id = %s", old["batch_id"])
    assert ana.http.get(page_of(old) + "/label.png").content == before
    assert ana.http.get(page_of(new) + "/label.png").content != before
    of_old, of_new = (
        public.get(f"/functions/v1/proof-page/batch/{batch['public_batch_id']}").text for batch in (old, new)
    )
    assert ("Venison" in of_new, "750 g" in of_new) == (True, True)
    assert ("Venison" in of_old, "500 g" in of_old, "beef liver" in of_old) == (False, True, True)


def test_an_attempt_that_goes_on_draws_with_the_texts_that_were_kept(proof):
    batch = proof.create()
    kept = {
        **proof.one("select raw_ops.fn_get_batch_v1(%s)", batch["batch_id"])["product"],
        "label_name": "KEPT",
    }
    proof.run("select raw_ops.fn_keep_label_texts_v1(%s, %s)", batch["batch_id"], Jsonb(kept))
    proof.run("select raw_ops.fn_keep_label_texts_v1(%s, %s)", batch["batch_id"], Jsonb({}))
    proof.drain()
    pdf = pypdfium2.PdfDocument(asyncio.run(proof.storage.get(f"batch-labels/{batch['batch_code']}.pdf")))
    assert "KEPT" in pdf[0].get_textpage().get_text_range()


def test_products_keep_texts_that_can_be_printed(proof, ana):
    product = proof.one("select id from raw_ops.products")
    for wrong in (
        {"net_weight_g": "heavy"}, {"label_name": " "}, {"ingredients": "x" * 5000}, {"ingredients": "日本"},
    ):  # fmt: skip
        given = {"label_name": "A", "description": "B", "net_weight_g": "500", "ingredients": "C", **wrong}
        ana.post(f"/proof/products/{product}", status=422, **given)
    assert proof.one("select label_name from raw_ops.products") == "PROTOCOL RAW COMPLETE"
