"""The pipeline with a real worker, a real SMTP server and a real folder."""

from __future__ import annotations


def test_a_batch_gets_its_qr_code_its_label_and_its_email(proof):
    batch = proof.create()

    proof.drain()

    job = proof.job(batch)
    print(job)
    assert (job.state, job.attempts, job.last_error, job.error_category) == ("done", 1, None, None)
    assert job.qr_generated
    assert job.qr_uploaded
    assert job.label_generated
    assert job.label_uploaded
    assert job.email_sent
    assert [mail.message["Subject"] for mail in proof.mail.kept] == [
        f"Protocol Raw Batch {batch['batch_code']} - Label Artwork"
    ]
