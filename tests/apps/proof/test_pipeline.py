"""The pipeline with a real worker, a real SMTP server, a real chat server and a real folder."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pypdfium2
import pytest
from PIL import Image

from onceward.deliveries import Smtp
from onceward_apps.proof import outside
from onceward_apps.proof.drawing import label_pdf
from onceward_apps.proof.routes import Routes
from tests.apps.proof.stage import DAY
from tests.apps.proof.test_work import FLAGS, flags
from tests.support.scanning import qr_codes

pytestmark = pytest.mark.slow


class Flaky:
    """A renderer that fails a number of times."""

    def __init__(self, failures, error=None):
        self.failures, self.calls = failures, 0
        self.error = error or outside.PdfGenerationRefused("the key is wrong")

    async def label(self, batch):
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return label_pdf(batch)


def mails(proof):
    return [mail.message for mail in proof.mail.kept]


def alerts(proof, title="Proof Job Dead Letter"):
    """Of one kind: the monitor may run meanwhile and tell its own."""
    told = [(hit.path, hit.json["text"]) for hit in proof.chat.kept]
    return [(path, text) for path, text in told if title in text]


def after_retry(proof, app=None):
    proof.clock.advance("31 s")
    proof.drain(app)


def test_a_batch_gets_its_qr_code_its_label_and_its_email(proof):
    batch = proof.create()

    proof.drain()

    job = proof.job(batch)
    assert (job.state, job.attempts, job.last_error, job.error_category) == ("done", 1, None, None)
    assert flags(job) == set(FLAGS)
    assert job.processing_duration_ms < 60_000
    code = batch["batch_code"]
    assert asyncio.run(proof.storage.names("")) == [f"batch-labels/{code}.pdf", f"qr-codes/{code}.png"]
    row = proof.batch(batch)
    assert row.qr_image_url == f"http://127.0.0.1:8000/proof-assets/qr-codes/{code}.png"
    assert row.label_pdf_url == f"http://127.0.0.1:8000/proof-assets/batch-labels/{code}.pdf"
    qr = Image.open(io.BytesIO(asyncio.run(proof.storage.get(f"qr-codes/{code}.png")))).convert("L")
    label = pypdfium2.PdfDocument(asyncio.run(proof.storage.get(f"batch-labels/{code}.pdf")))[0]
    for image in (qr, label.render(scale=300 / 72).to_pil()):
        assert [found.text for found in qr_codes(image)] == [batch["proof_url"]]
    messages = [row[0] for row in proof.all("select message from raw_ops.ops_events order by created_at")]
    assert messages[-3:] == [
        f"QR assets set for batch {code}",
        f"Label PDF set for batch {code}",
        "Proof job completed successfully",
    ]


def test_the_co_packer_reads_what_the_contract_lists_and_the_link_opens_the_label_until_it_expires__trap_p15(
    proof,
):
    batch = proof.create(DAY, 512)
    proof.drain()

    (mail,) = mails(proof)
    assert mail["Subject"] == "Protocol Raw Batch PR-260320-001 - Label Artwork"
    assert (mail["From"], mail["To"]) == ("production@protocolraw.co.uk", "packer@example.com")
    text = mail.get_body(("plain",)).get_content()
    for part in (
        "PR-260320-001", "20 March 2026", "512 kg", "Protocol Raw Complete", "Complete Adult (v2.1)", "100 × 150 mm",
    ):  # fmt: skip
        assert part in text
    (link,) = re.findall(r"http://\S+", text)
    assert link.replace("&", "&amp;") in mail.get_body(("html",)).get_content()
    path = urlsplit(link).path.removeprefix("/proof-assets/")
    query = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    routes = Routes(proof.app, proof.settings)
    opened = asyncio.run(routes.asset(path, **query))
    assert (opened.status, opened.content[:5], opened.content_type) == (200, b"%PDF-", "application/pdf")
    # The address alone, or another file with the same signature, opens nothing.
    assert asyncio.run(routes.asset(path)).status == 403
    assert asyncio.run(routes.asset(path.replace("001", "002"), **query)).status == 403
    assert not proof.storage.opens(
        path, **query, now=proof.clock.now() + proof.settings.link_lasts + timedelta(minutes=5)
    )
    # The QR code is public.
    assert asyncio.run(routes.asset(f"qr-codes/{batch['batch_code']}.png")).content_type == "image/png"


def test_a_retry_goes_on_after_the_last_finished_step__trap_p5(proof):
    renderer = Flaky(1, ConnectionError("no route"))
    app = proof.make_app(renderer=renderer)
    batch = proof.create()
    proof.drain(app)
    failed = proof.job(batch)
    assert (failed.state, flags(failed)) == ("failed", {"qr_generated", "qr_uploaded"})
    first = (proof.folder / "qr-codes/PR-260320-001.png").stat().st_mtime_ns

    after_retry(proof, app)

    assert proof.job(batch).state == "done"
    assert (proof.folder / "qr-codes/PR-260320-001.png").stat().st_mtime_ns == first
    assert renderer.calls == 2
    assert len(mails(proof)) == 1
    (partial,) = proof.all("select count(*) from raw_ops.ops_events where message like 'QR assets set%%'")[0]
    assert partial == 1


def test_what_cannot_pass_later_is_a_dead_letter_at_once_with_a_critical_alert__trap_p8(proof):
    app = proof.make_app(renderer=Flaky(99))
    batch = proof.create()
    proof.drain(app)

    job = proof.job(batch)
    assert (job.state, job.attempts, job.error_category) == ("dead_letter", 1, "pdf_generation")
    ((path, text),) = alerts(proof)
    assert path == "/ops-urgent"
    assert "Proof Job Dead Letter: PR-260320-001" in text
    assert "pdf_generation" in text


def test_five_attempts_and_then_a_dead_letter_told_once(proof):
    app = proof.make_app(renderer=Flaky(99, ConnectionError("down")))
    batch = proof.create()
    for attempt in range(1, 6):
        proof.drain(app)
        job = proof.job(batch)
        assert (job.attempts, job.state) == (attempt, "dead_letter" if attempt == 5 else "failed")
        assert len(alerts(proof)) == (attempt == 5)
        proof.clock.advance("31 s")
    # Requeued by a person, it goes on with the label.
    assert proof.one("select raw_ops.fn_requeue_proof_job_v1(%s, 'renderer mended')", job.id)["success"]
    proof.drain()
    assert (proof.job(batch).state, len(mails(proof))) == ("done", 1)


def test_a_label_whose_text_does_not_fit_is_not_printed(proof):
    proof.conn.execute("update raw_ops.products set ingredients = repeat('Beef (42 %%), ', 400)")
    batch = proof.create()
    proof.drain()
    job = proof.job(batch)
    assert (job.state, job.error_category) == ("dead_letter", "pdf_generation")
    assert "does not fit" in job.last_error


def test_a_storage_that_fails_is_tried_again_and_named(proof, monkeypatch):
    monkeypatch.setattr(outside, "STORAGE", dataclasses.replace(outside.STORAGE, waits=(0, 0)))
    proof.folder.mkdir()
    (proof.folder / "qr-codes").write_text("a file where a folder should be")
    batch = proof.create()
    proof.drain()
    job = proof.job(batch)
    assert (job.state, job.error_category, flags(job)) == ("failed", "storage_upload", {"qr_generated"})
    assert proof.one("select tries from onceward.steps where name = 'qr_uploaded'") == 3

    (proof.folder / "qr-codes").unlink()
    after_retry(proof)
    assert proof.job(batch).state == "done"


def test_a_renderer_that_hangs_is_given_up_in_time__trap_p8(proof, monkeypatch):
    class Hanging:
        async def label(self, batch):
            await asyncio.Event().wait()

    monkeypatch.setattr(outside, "PDF", outside.Policy(outside.PdfGenerationFailed, 0.05, (0, 0, 0)))
    batch = proof.create()
    proof.drain(proof.make_app(renderer=Hanging()))
    job = proof.job(batch)
    assert (job.state, job.error_category) == ("failed", "pdf_generation")
    assert job.last_error == "rendering the label took longer than 0.05 s"
    assert proof.one("select tries from onceward.steps where name = 'label_generated'") == 4


# ---------------------------------------------------------------- the email


def with_copacker(proof, address):
    return proof.make_app(settings=dataclasses.replace(proof.settings, copacker_email=address))


def pass_tier_one(proof, app):
    """The ledger's tries: at once, and after 1, 3 and 9 seconds."""
    for wait in ("0 s", "1 s", "3 s", "9 s"):
        proof.clock.advance(wait)
        proof.drain(app)


def test_an_email_that_is_put_off_is_sent_by_the_ledgers_own_tries(proof):
    app = with_copacker(proof, "packer+rcpt_450__3@example.com")
    batch = proof.create()
    proof.clock.pin()
    proof.drain(app)
    job = proof.job(batch)
    # On its way: the job waits for it and holds no slot.
    assert (job.state, job.attempts, job.email_sent, len(mails(proof))) == ("claimed", 1, False, 0)
    pass_tier_one(proof, app)
    assert (proof.job(batch).state, proof.job(batch).attempts, len(mails(proof))) == ("done", 1, 1)


def test_an_email_that_wears_out_its_tries_gets_new_ones_with_the_next_attempt(proof):
    app = with_copacker(proof, "packer+rcpt_450__6@example.com")
    batch = proof.create()
    proof.clock.pin()
    pass_tier_one(proof, app)
    job = proof.job(batch)
    assert (job.state, job.attempts, job.error_category, flags(job)) == (
        "failed", 1, "email_delivery", set(FLAGS) - {"email_sent"},
    )  # fmt: skip

    pass_tier_one(proof, app)
    proof.clock.advance("20 s")
    proof.drain(app)

    job = proof.job(batch)
    assert (job.state, job.attempts, len(mails(proof))) == ("done", 2, 1)


def test_an_email_that_never_goes_ends_as_a_dead_letter_after_five_attempts(proof):
    app = with_copacker(proof, "packer+rcpt_450@example.com")
    batch = proof.create()
    proof.clock.pin()
    for _ in range(40):
        proof.clock.advance("10 s")
        proof.drain(app)
        if proof.job(batch).state == "dead_letter":
            break
    job = proof.job(batch)
    assert (job.state, job.attempts, job.error_category) == ("dead_letter", 5, "email_delivery")
    assert [path for path, _ in alerts(proof)] == ["/ops-urgent"]

    proof.mail.healed = True
    assert proof.one("select raw_ops.fn_requeue_proof_job_v1(%s, 'mail server mended')", job.id)["success"]
    pass_tier_one(proof, app)
    assert (proof.job(batch).state, len(mails(proof))) == ("done", 1)


def test_an_address_that_is_refused_is_not_tried_again__trap_p8(proof):
    app = with_copacker(proof, "packer+rcpt_550@example.com")
    batch = proof.create()
    proof.drain(app)
    job = proof.job(batch)
    assert (job.state, job.attempts, job.error_category) == ("dead_letter", 1, "email_delivery")
    assert proof.one("select tries from onceward.deliveries where kind = 'email'") == 1


def test_an_email_that_may_have_arrived_waits_for_a_person_and_is_not_sent_twice(proof):
    app = with_copacker(proof, "packer+drop_after_dot@example.com")
    batch = proof.create()
    proof.drain(app)
    job = proof.job(batch)
    assert (job.state, job.error_category) == ("dead_letter", "email_delivery")
    assert "uncertain" in job.last_error
    assert len(mails(proof)) == 1

    delivery = proof.one("select id from onceward.deliveries where kind = 'email'")
    proof.one("select onceward.decide_delivery(%s, 'sent', 'she has it')", delivery)
    assert proof.one("select raw_ops.fn_requeue_proof_job_v1(%s, 'arrived')", job.id)["success"]
    proof.drain(app)

    assert (proof.job(batch).state, proof.job(batch).email_sent, len(mails(proof))) == ("done", True, 1)


def test_many_jobs_that_wait_for_their_emails_do_not_keep_the_emails_from_being_sent(proof):
    for _ in range(6):
        proof.create()
    # Two slots for both: a job that held its slot while it waits would stop everything.
    proof.drain(concurrency=2)
    assert proof.one("select count(*) from raw_ops.proof_jobs where state = 'done'") == 6
    assert len({mail["Subject"] for mail in mails(proof)}) == len(mails(proof)) == 6


# ---------------------------------------------------------------- programs in SQL


def test_a_worker_goes_on_where_a_program_stopped__trap_p5(proof):
    batch = proof.create()
    (job,) = proof.claim()
    proof.one(
        "select raw_ops.fn_set_batch_qr_assets_v1(%s, 'https://elsewhere.example/qr.png', %s)",
        job.batch_id, batch["proof_url"],
    )  # fmt: skip
    proof.fail(job)
    after_retry(proof)
    assert proof.job(batch).state == "done"
    # What the program has put elsewhere stays there.
    assert proof.batch(batch).qr_image_url == "https://elsewhere.example/qr.png"
    assert asyncio.run(proof.storage.names("")) == ["batch-labels/PR-260320-001.pdf"]


def test_a_worker_does_not_send_what_a_program_has_sent__trap_p5(proof):
    batch = proof.create()
    (job,) = proof.claim()
    proof.fail(job, "finalise failed", "db_error", dict.fromkeys(FLAGS, True))
    after_retry(proof)
    assert (proof.job(batch).state, mails(proof)) == ("done", [])


def test_a_program_gets_no_job_whose_email_is_in_the_ledger(proof):
    app = with_copacker(proof, "packer+rcpt_450@example.com")
    batch = proof.create()
    proof.clock.pin()
    pass_tier_one(proof, app)
    assert proof.job(batch).state == "failed"
    proof.clock.advance("31 s")
    attempts = proof.job(batch).attempts

    assert proof.claim() == []
    assert (proof.job(batch).state, proof.job(batch).attempts) == ("failed", attempts)


# ---------------------------------------------------------------- schedules


def test_the_schedules_of_the_contract(proof):
    proof.clock.pin()
    proof.drain()
    assert dict(proof.all("select name, spec from onceward.schedules")) == {
        "process-proof-jobs": "30 seconds",
        "monitor-proof-system-health": "*/5 * * * *",
        "proof-retention": "15 3 * * *",
    }
    proof.conn.execute("alter table raw_ops.batches disable trigger trigger_enqueue_proof_job")
    batch = proof.create()
    proof.clock.advance("30 s")
    proof.drain()
    assert proof.job(batch).state == "done"


def test_the_monitor_tells_of_a_dead_letter_once_an_hour(proof):
    proof.dead_letter()
    for _ in range(6):
        proof.clock.advance("5 min")
        proof.drain()
    told = alerts(proof, "Proof System: Dead Letter Jobs")
    # Half an hour touches at most two hours.
    assert 1 <= len(told) <= 2
    assert {path for path, _ in told} == {"/ops-urgent"}
    assert proof.one("select count(*) from raw_ops.monitoring_runs where alert_triggered") >= 5


def test_retention_removes_files_and_says_so__trap_p18(proof):
    batch = proof.create()
    proof.drain()
    proof.clock.advance("732 days")
    proof.drain()
    assert asyncio.run(proof.storage.names("")) == ["qr-codes/PR-260320-001.png"]
    assert proof.batch(batch).label_pdf_url is None
    assert proof.one("select result from onceward.jobs where task = 'proof.retention'") == {
        "proof_jobs": 1, "event_counters": 0, "label_pdfs": 1,
    }  # fmt: skip


def test_a_worker_with_least_privilege_is_enough(proof):
    proof.conn.execute("drop role if exists proof_worker")
    proof.conn.execute("create role proof_worker login in role onceward_worker")
    try:
        dsn = f"{proof.dsn} user=proof_worker"
        app = proof.make_app(email=Smtp("127.0.0.1", proof.mail.port, "none", sender="x@example.com"))
        app.dsn = dsn
        batch = proof.create()
        from onceward.worker import Worker

        asyncio.run(Worker(app, dsn=dsn).drain())
        assert (proof.job(batch).state, len(mails(proof))) == ("done", 1)
    finally:
        proof.conn.execute("drop role proof_worker")
