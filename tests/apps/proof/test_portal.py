"""The portal: what operators see and do, by real HTTP and without scripts."""

from __future__ import annotations

import re
from uuid import uuid4

import pytest

from tests.apps.proof.stage import PASSING

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 40 + b"\r\n\n\r%%EOF\n"


def page_of(batch):
    return f"/proof/batches/{batch['batch_id']}"


def results_form(**changes):
    """As the form sends it."""
    form = {"lab_name": "Eurofins", "certificate_reference": "C-7", "analysis_date": "2026-03-24"}
    for number, result in enumerate(PASSING):
        form |= {f"method-{number}": result["method"], f"result-{number}": result["result"],
                 f"limit-{number}": result["limit"], f"passed-{number}": "passed"}  # fmt: skip
    return {**form, **changes}


def upload(ana, path, form, content=PDF, name="report.pdf"):
    return ana.http.post(
        path, data={"csrf": ana.csrf, **form}, files={"certificate": (name, content, "application/pdf")}
    )


# ---------------------------------------------------------------- new batches


def test_a_batch_is_created_and_shown(proof, ana):
    answer = ana.post(
        "/proof/batches/new", production_date="2026-03-20", kg_produced="512,5", key=str(uuid4())
    )
    text = ana.get(answer.headers["location"])
    assert "PR-260320-001" in text
    assert proof.one("select changed_by from raw_ops.batch_status_history") == "ana"
    assert "PR-260320-001" in ana.get("/proof/batches")


def test_a_form_that_is_sent_twice_creates_one_batch(proof, ana):
    key = str(uuid4())
    first, second = (
        ana.post("/proof/batches/new", production_date="2026-03-20", kg_produced="5", key=key).headers[
            "location"
        ]
        for _ in range(2)
    )
    assert first == second
    assert proof.one("select count(*) from raw_ops.batches") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"production_date": "soon", "kg_produced": "5"}, "Enter the day of production"),
        ({"production_date": "2026-03-20", "kg_produced": "much"}, "Enter kilograms as a number"),
        ({"production_date": "2026-03-20", "kg_produced": "0"}, "Enter more than 0"),
        (
            {"production_date": "2020-03-20", "kg_produced": "5"},
            "No active formulation found for date 2020-03-20",
        ),
    ],
)
def test_a_batch_that_cannot_be_created_says_why_at_its_field(proof, ana, given, said):
    assert said in ana.post("/proof/batches/new", status=422, key=str(uuid4()), **given).text
    assert proof.one("select count(*) from raw_ops.batches") == 0


@pytest.mark.parametrize("given", [{"production_date": "2099-03-20"}, {"kg_produced": "100001"}])
def test_a_batch_that_is_hardly_right_is_created_when_somebody_says_so(proof, ana, given):
    form = {"production_date": "2026-03-20", "kg_produced": "5", "key": str(uuid4()), **given}
    assert "Is this right?" in ana.post("/proof/batches/new", status=422, **form).text
    assert proof.one("select count(*) from raw_ops.batches") == 0
    ana.post("/proof/batches/new", sure="1", **form)
    assert proof.one("select count(*) from raw_ops.batches") == 1


# ---------------------------------------------------------------- lab results, release, reject


def test_results_with_a_certificate_lead_to_a_release(proof, ana, public):
    batch = proof.create()
    answer = upload(ana, page_of(batch) + "/results", results_form())
    assert answer.status_code == 303, answer.text
    assert ana.http.get(page_of(batch) + "/certificate.pdf").content == PDF
    # Under a name of ours, in the private folder.
    (kept,) = (proof.folder / "lab-reports").iterdir()
    assert re.fullmatch(r"PR-260320-001-[0-9a-f]{16}\.pdf", kept.name)
    path = f"/functions/v1/proof-page/batch/{batch['public_batch_id']}"
    assert public.get(path + "/certificate").status_code == 404

    assert "Every required result is there and has passed" in ana.get(page_of(batch))
    ana.get(page_of(batch) + "/release")
    ana.post(page_of(batch) + "/release", note="looks good")
    assert public.get(path + "/certificate").content == PDF
    assert "Tested and released" in public.get(path).text
    said = proof.all(
        "select kind, actor, message from onceward.audit_log where source = 'application' and kind <> 'proof.batch_created' order by seq"
    )
    assert said == [
        ("proof.lab_results_recorded", "ana", "Lab results of batch PR-260320-001 recorded: C-7"),
        ("proof.batch_released", "ana", "looks good"),
    ]


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (b"<html>not a PDF</html>", "report.pdf", "must be a PDF"),
        (b"MZ" + PDF, "report.pdf", "must be a PDF"),
        (PDF, "report.exe", "must be a PDF"),
        (PDF[:-10], "report.pdf", "cut off"),
        (b"%PDF-" + b"0" * 10 * 1024 * 1024 + b"%%EOF", "report.pdf", "may have 10 MiB"),
    ],
)
def test_what_is_no_certificate_is_refused_and_not_kept(proof, ana, content, name, said):
    batch = proof.create()
    answer = upload(ana, page_of(batch) + "/results", results_form(), content, name)
    assert (answer.status_code, said in answer.text) == (422, True)
    assert not (proof.folder / "lab-reports").exists()
    assert proof.one("select count(*) from raw_ops.lab_results") == 0


def test_an_upload_without_end_is_cut_off(proof, ana):
    batch = proof.create()
    answer = upload(ana, page_of(batch) + "/results", results_form(), b"%PDF-" + b"0" * 17 * 1024 * 1024)
    assert answer.status_code == 413


def test_a_name_cannot_lead_out_of_the_storage(proof, ana):
    batch = proof.create()
    assert (
        upload(ana, page_of(batch) + "/results", results_form(), PDF, "../../../evil.pdf").status_code == 303
    )
    assert [file.parent.name for file in proof.folder.rglob("*.pdf")] == ["lab-reports"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"passed-0": ""}, "Say whether Salmonella has passed or failed"),
        ({"result-0": ""}, "Enter what the lab found of Salmonella"),
        ({"analysis_date": "soon"}, "Enter the day of the analysis"),
        ({"analysis_date": "2026-03-01"}, "lies before the production date"),
        ({"lab_name": " "}, "lab_name is required"),
        ({"limit-0": ""}, "method, result and limit of Salmonella are required"),
    ],
)
def test_results_that_are_not_complete_say_what_is_missing(proof, ana, changes, said):
    batch = proof.create()
    answer = ana.post(page_of(batch) + "/results", status=422, **results_form(**changes))
    assert said in answer.text
    # What was typed is still there.
    assert 'value="ISO 21528-2"' in answer.text
    assert proof.one("select count(*) from raw_ops.lab_results") == 0


def test_a_batch_is_not_released_by_results_that_fail_or_are_missing(proof, ana):
    batch = proof.create()
    assert "there are no results" in ana.get(page_of(batch) + "/release") or "still missing" in ana.get(
        page_of(batch) + "/release"
    )
    answer = ana.post(page_of(batch) + "/release", status=409)
    assert "still missing: Salmonella, Enterobacteriaceae" in answer.text
    ana.post(page_of(batch) + "/results", **results_form(**{"passed-0": "failed"}))
    assert "failed: Salmonella" in ana.post(page_of(batch) + "/release", status=409).text
    assert proof.batch(batch).status == "QA_HOLD"


def test_a_failed_result_is_corrected_with_a_reason(proof, ana):
    batch = proof.create()
    ana.post(page_of(batch) + "/results", **results_form(**{"passed-0": "failed"}))
    assert "can only be rejected" not in ana.get(page_of(batch))
    again = page_of(batch) + "/results"
    assert "a reason is required" in ana.post(again, status=422, **results_form()).text
    ana.post(again, **results_form(reason="the lab mixed two samples up"))
    text = ana.get(page_of(batch))
    assert "the lab mixed two samples up" in text
    assert "It waits for somebody to release it" in text


def test_steps_of_a_worker_are_shown_as_the_engines(proof, ana):
    batch = proof.create()
    proof.drain()
    who = proof.all("select meta ->> 'by' from raw_ops.ops_events where message ~ ' set for batch '")
    assert who == [("engine",), ("engine",)]
    assert "Label PDF set for batch" in ana.get(page_of(batch))


def test_a_batch_is_rejected_and_a_released_one_recalled_with_a_reason(proof, ana, public):
    batch = proof.create()
    proof.record(batch)
    ana.post(page_of(batch) + "/release")
    assert "tells people not to feed it" in ana.get(page_of(batch) + "/reject")
    assert "reason is required" in ana.post(page_of(batch) + "/reject", status=409, reason=" ").text
    ana.post(page_of(batch) + "/reject", reason="a customer found glass")
    assert proof.batch(batch).status == "REJECTED"
    text = ana.get(page_of(batch))
    assert "a customer found glass" in text
    assert re.search(r"Recalled <time[^>]*>[^<]*</time> by ana\. Its public page says so", text)
    # The head and the history; what was rejected on hold is not called so.
    assert len(re.findall(r"</svg>\s*recalled", text)) == 2
    assert "rejected" not in text
    held = proof.create()
    ana.post(page_of(held) + "/reject", reason="Salmonella")
    assert "ecalled" not in ana.get(page_of(held))
    rows = ana.get("/proof/batches.csv").splitlines()
    assert sorted(line.split(",")[2:4] for line in rows) == [
        ["REJECTED", "false"], ["REJECTED", "true"], ["status", "recalled"],
    ]  # fmt: skip
    said = public.get(f"/functions/v1/proof-page/batch/{batch['public_batch_id']}").text
    assert f'href="mailto:hello@protocolraw.co.uk?subject=Batch%20{batch["public_batch_id"]}"' in said
    assert "already rejected" in ana.post(page_of(batch) + "/reject", status=409, reason="again").text


# ---------------------------------------------------------------- dead letters


def test_a_dead_letter_is_resolved_only_with_its_assets_or_on_the_record__trap_p17(proof, ana):
    proof.clock.pin()
    job = proof.dead_letter()
    path = f"/proof/dead-letters/{job.id}"
    assert "PR-260320-001" in ana.get("/proof/dead-letters")
    assert "qr_image_url, label_pdf_url" in ana.get(path)
    refused = ana.post(f"{path}/resolve", status=409, note="printed by hand")
    assert "The batch is missing qr_image_url, label_pdf_url" in refused.text
    assert 'value="printed by hand"' in refused.text
    assert "resolution_note must say" in ana.post(f"{path}/resolve", status=409, note="", skip="1").text
    ana.post(f"{path}/resolve", note="printed by hand", skip="1")
    assert proof.job().state == "resolved_manual"
    assert "No dead letters" in ana.get("/proof/dead-letters")
    after = proof.one("select after from onceward.audit_log where kind = 'proof.job_resolved'")
    assert (after["asset_check_skipped"], after["missing_assets"]) == (
        True,
        ["qr_image_url", "label_pdf_url"],
    )
    assert "not a dead letter any more" in ana.get(path)


@pytest.mark.slow
def test_a_label_that_does_not_fit_is_mended_and_tried_again__trap_p17(proof, ana):
    product = proof.one("select id from raw_ops.products")
    texts = {"label_name": "COMPLETE", "description": "Food.", "net_weight_g": "500"}
    ana.post(f"/proof/products/{product}", ingredients="Beef, " * 600 + "kale.", **texts)
    batch = proof.create()
    proof.drain()
    job = proof.job()
    assert (job.state, job.error_category, job.qr_uploaded) == ("dead_letter", "pdf_generation", True)
    assert "does not fit" in ana.get(page_of(batch))
    assert ana.http.get(page_of(batch) + "/label.png").status_code == 409

    ana.post(f"/proof/products/{product}", ingredients="Beef, kale.", **texts)
    ana.post(f"/proof/dead-letters/{job.id}/requeue", note="shorter ingredients")
    proof.drain()
    assert (proof.job().state, len(proof.mail.kept)) == ("done", 1)
    for file, kind in (("qr.png", "image/png"), ("label.png", "image/png"), ("label.pdf", "application/pdf")):
        answer = ana.http.get(f"{page_of(batch)}/{file}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)


# ---------------------------------------------------------------- who may


def test_lists_are_filtered_and_taken_away(proof, ana):
    batches = [proof.create() for _ in range(3)]
    proof.record(batches[0])
    proof.release(batches[0])
    assert ana.get("/proof/batches?status=RELEASED").count("<tr data-line>") == 1
    assert ana.get("/proof/batches?status=QA_HOLD").count("<tr data-line>") == 2
    assert ana.get(f"/proof/batches?q={batches[1]['public_batch_id'].lower()}").count("<tr data-line>") == 1
    assert ana.get("/proof/batches?q=%25").count("<tr data-line>") == 0
    assert ana.get("/proof/batches?status=ODD", status=400)
    assert ana.get("/proof/batches.csv").count("PR-260320-") == 3
    last = proof.one("select id from raw_ops.batches order by created_at desc, id desc limit 1")
    assert ana.get(f"/proof/batches?before={last}").count("<tr data-line>") == 2


@pytest.mark.parametrize(
    "path", ["/proof/batches", "/proof/questions", "/proof/dead-letters", "/proof/products"]
)
def test_the_portal_is_for_those_who_have_signed_in(site, path):
    site.link()
    assert site.visitor(host="ops.example").http.get(path).status_code == 303


def test_a_viewer_reads_and_changes_nothing(proof, site):
    batch = proof.create()
    proof.record(batch)
    ben = site.signed_in("ben", "viewer")
    text = ben.get(page_of(batch))
    assert "/release" not in text
    for path in ("/release", "/reject", "/results"):
        answer = ben.http.post(page_of(batch) + path, data={"csrf": "x", "reason": "no"})
        assert answer.status_code == 403
    assert proof.batch(batch).status == "QA_HOLD"


def test_another_tenants_people_see_nothing(proof, site):
    batch = proof.create()
    eve = site.signed_in("eve", "operator", "acme")
    for path in ("/proof/batches", page_of(batch), "/proof/questions"):
        eve.get(path, status=404)


def test_a_form_of_another_site_changes_nothing(proof, ana):
    batch = proof.create()
    for data in ({"reason": "x"}, {"reason": "x", "csrf": "forged"}):
        assert ana.http.post(page_of(batch) + "/reject", data=data).status_code == 403
    files = {"certificate": ("a.pdf", PDF, "application/pdf")}
    assert ana.http.post(page_of(batch) + "/results", data=results_form(), files=files).status_code == 403
    assert proof.batch(batch).status == "QA_HOLD"


def test_what_no_page_has_is_not_found(ana):
    for path in (f"/proof/batches/{uuid4()}", "/proof/batches/7", f"/proof/dead-letters/{uuid4()}",
                 f"/proof/batches/{uuid4()}/label.png", f"/proof/batches/{uuid4()}/qr.png"):  # fmt: skip
        ana.get(path, status=404)
