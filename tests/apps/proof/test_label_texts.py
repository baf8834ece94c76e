"""What labels say: what can be printed is kept, and stays with the label once it is drawn."""

from __future__ import annotations

import asyncio

import pypdfium2
from psycopg.types.json import Jsonb

from onceward_apps.proof import store
from tests.apps.proof.test_portal import page_of


def pdf_text(proof, batch):
    pdf = pypdfium2.PdfDocument(asyncio.run(proof.storage.get(f"batch-labels/{batch['batch_code']}.pdf")))
    return pdf[0].get_textpage().get_text_range()


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
    proof.run("delete from raw_ops.proof_job_links where batch_id = %s", old["batch_id"])
    assert "the file was removed after two years" in ana.http.get(page_of(old)).text
    of_old, of_new = (
        public.get(f"/functions/v1/proof-page/batch/{batch['public_batch_id']}").text for batch in (old, new)
    )
    assert ("Venison" in of_new, "750 g" in of_new) == (True, True)
    assert ("Venison" in of_old, "500 g" in of_old, "beef liver" in of_old) == (False, True, True)


def test_a_label_that_is_drawn_and_its_page_keep_the_brand_of_that_day(proof, ana, public):
    old = proof.create()
    proof.drain()
    before = ana.http.get(page_of(old) + "/label.png").content
    brand = {"brand_name": "OTHER RAW", "brand_tagline": "Other words", "brand_promise": "Other promise",
             "made_in": "Made in Ireland", "company_details": "Other Raw Ltd, Dublin"}  # fmt: skip
    for key, value in {**brand, "contact_email": "new@example.com"}.items():
        proof.run("update raw_ops.config set value = %s where key = %s", value, key)
    # Drawn again, because the file is past its retention.
    proof.run("update raw_ops.batches set label_pdf_url = null where id = %s", old["batch_id"])
    assert ana.http.get(page_of(old) + "/label.png").content == before

    new = proof.create()
    proof.drain()
    assert pdf_text(proof, new).count("Other") == 3
    seen = "OTHER RAW", "PROTOCOL RAW", "Made in Ireland", "Made in the UK", "Other promise", "Verified safe"
    old_page, new_page = "/batch/" + old["public_batch_id"], "/batch/" + new["public_batch_id"]

    def says(path):
        text = public.get(f"/functions/v1/proof-page{path}").text
        return [part in text for part in seen]

    # Being tested, released, rejected: a page of a batch says what its pouch says.
    assert says(old_page) == [False, True] * 3
    assert says(new_page) == says("/") == [True, False] * 3
    proof.record(old)
    proof.release(old)
    assert says(old_page) == [False, True] * 3
    proof.run("select raw_ops.fn_reject_batch_v1(%s, 'recalled')", old["batch_id"])
    # Except that no pouch of it is safe any more.
    assert says(old_page) == [False, True, False, True, False, False]
    # An address has to work today.
    assert "new@example.com" in public.get(f"/functions/v1/proof-page{old_page}").text


def test_labels_of_an_earlier_version_keep_what_is_so_at_the_upgrade(proof):
    drawn, made = proof.create(), proof.create()
    proof.run(
        "update raw_ops.batches set label_pdf_url = 'l', label_texts = null where id = %s", drawn["batch_id"]
    )
    proof.run("comment on schema raw_ops is 'an earlier version'")
    assert store.install(proof.dsn)
    proof.run("update raw_ops.config set value = 'OTHER RAW' where key = 'brand_name'")
    proof.run("update raw_ops.products set label_name = 'OTHER'")
    of = {
        batch["batch_id"]: proof.one("select raw_ops.fn_get_batch_v1(%s)", batch["batch_id"])
        for batch in (drawn, made)
    }
    names = [(found["brand"]["brand_name"], found["product"]["label_name"]) for found in of.values()]
    assert names == [("PROTOCOL RAW", "PROTOCOL RAW COMPLETE"), ("OTHER RAW", "OTHER")]


def test_an_attempt_that_goes_on_draws_with_the_texts_that_were_kept(proof):
    batch = proof.create()
    found = proof.one("select raw_ops.fn_get_batch_v1(%s)", batch["batch_id"])
    brand = {**found["brand"], "brand_name": "KEPT RAW", "company_details": "KEPT Ltd"}
    kept = {**found["product"], "label_name": "KEPT", "brand": brand}
    proof.run("select raw_ops.fn_keep_label_texts_v1(%s, %s)", batch["batch_id"], Jsonb(kept))
    proof.run("select raw_ops.fn_keep_label_texts_v1(%s, %s)", batch["batch_id"], Jsonb({}))
    proof.drain()
    assert pdf_text(proof, batch).count("KEPT") == 2
    # The email as well.
    assert "KEPT RAW" in proof.one("select onceward.delivery_content(id) ->> 'text' from onceward.deliveries")


def test_products_keep_texts_that_can_be_printed(proof, ana):
    product = proof.one("select id from raw_ops.products")
    for wrong in (
        {"net_weight_g": "heavy"}, {"label_name": " "}, {"ingredients": "x" * 5000}, {"ingredients": "日本"},
    ):  # fmt: skip
        given = {"label_name": "A", "description": "B", "net_weight_g": "500", "ingredients": "C", **wrong}
        ana.post(f"/proof/products/{product}", status=422, **given)
    assert proof.one("select label_name from raw_ops.products") == "PROTOCOL RAW COMPLETE"
