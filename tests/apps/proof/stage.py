"""The proof system on a database of a test."""

from __future__ import annotations

import asyncio
from datetime import date

import psycopg
from psycopg.types.json import Jsonb

from onceward.deliveries import Smtp
from onceward.testing import Kit
from onceward.worker import Worker
from onceward_apps.kit.storage import Storage
from onceward_apps.proof.jobs import make_app
from onceward_apps.proof.settings import PUBLIC, Settings

SECRET = b"only for tests, and of no use elsewhere"
WORKER_SECRET = "a worker secret that only tests know"
DAY = date(2026, 3, 20)
PASSING = [
    {"parameter": "Salmonella", "method": "ISO 6579-1", "result": "Not detected", "limit": "Absent in 25 g", "passed": True},
    {"parameter": "Enterobacteriaceae", "method": "ISO 21528-2", "result": "< 10 cfu/g", "limit": "5000 cfu/g", "passed": True},
]  # fmt: skip


class Proof:
    """The proof system on one database, with a folder and sinks around it."""

    def __init__(self, dsn, folder, mail=None, chat=None):
        self.dsn = dsn
        self.folder = folder
        self.kit = Kit(dsn)
        self.conn = self.connect()
        self.clock = self.kit.clock
        hooks = {} if chat is None else {name: f"{chat.url}/{name}" for name in ("ops-alerts", "ops-urgent")}
        self.storage = Storage(folder.as_uri(), "http://127.0.0.1:8000/proof-assets", [SECRET], PUBLIC)
        self.settings = Settings(self.storage, "packer@example.com", slack=hooks)
        self.email = (
            Smtp("127.0.0.1", mail.port, "none", sender="x@example.com") if mail is not None else None
        )
        self.app = self.make_app()

    def make_app(self, **given):
        settings = given.pop("settings", self.settings)
        return make_app(settings, self.dsn, **{"email": self.email, **given})

    def run(self, statement, *params):
        self.conn.execute(statement, params)

    def connect(self, role=None):
        conn = psycopg.connect(self.dsn, autocommit=True)
        if role:
            conn.execute(f"set role {role}")
        return conn

    def one(self, statement, *params, conn=None):
        row = (conn or self.conn).execute(statement, params).fetchone()
        return row[0] if row else None

    def all(self, statement, *params):
        return self.conn.execute(statement, params).fetchall()

    def create(self, day=DAY, kg=500):
        answer = self.one("select raw_ops.fn_create_batch_v1(%s, %s)", day, kg)
        assert answer["success"], answer
        return answer

    def job(self, batch=None):
        cursor = self.conn.cursor(row_factory=psycopg.rows.namedtuple_row)
        where = "" if batch is None else "where batch_id = %(batch)s"
        return cursor.execute(
            f"select * from raw_ops.proof_jobs {where}", {"batch": batch and batch["batch_id"]}
        ).fetchone()

    def batch(self, batch):
        cursor = self.conn.cursor(row_factory=psycopg.rows.namedtuple_row)
        return cursor.execute("select * from raw_ops.batches where id = %s", [batch["batch_id"]]).fetchone()

    def claim(self, limit=10):
        cursor = self.conn.cursor(row_factory=psycopg.rows.namedtuple_row)
        return cursor.execute("select * from raw_ops.fn_claim_proof_jobs_v1(%s)", [limit]).fetchall()

    def fail(self, job, error="boom", category="pdf_generation", progress=None, epoch=None):
        return self.one(
            "select raw_ops.fn_mark_proof_job_failed_v1(%s, %s, %s, %s, %s)",
            job.id, error, category, Jsonb(progress or {}), epoch,
        )  # fmt: skip

    def set_qr(self, job, epoch=None):
        return self.one("select raw_ops.fn_set_batch_qr_assets_v1(%s, 'q', 'p', %s)", job.batch_id, epoch)

    def set_label(self, job, epoch=None):
        return self.one("select raw_ops.fn_set_batch_label_asset_v1(%s, 'l', %s)", job.batch_id, epoch)

    def finalize(self, job, epoch=None):
        return self.one("select raw_ops.fn_finalize_proof_job_v1(%s, 'q', 'l', 1234, %s)", job.id, epoch)

    def dead_letter(self, batch=None):
        """A job that has failed five times."""
        batch = batch or self.create()
        for _ in range(5):
            (job,) = self.claim()
            answer = self.fail(job)
            self.clock.advance("31 s")
        assert answer["new_state"] == "dead_letter"
        return self.job(batch)

    def record(self, batch, results=PASSING, *, lab="Eurofins", analysed=DAY, reason=None):
        return self.one(
            "select raw_ops.fn_record_lab_results_v1(%s, %s, %s, 'CERT-1', %s, 'lab-reports/a.pdf', %s)",
            batch["batch_id"], Jsonb(results), lab, analysed, reason,
        )  # fmt: skip

    def release(self, batch):
        return self.one("select raw_ops.fn_release_batch_v1(%s)", batch["batch_id"])

    def drain(self, app=None, **given):
        return asyncio.run(Worker(app or self.app, dsn=self.dsn, **given).drain())

    def close(self):
        self.conn.close()
        self.kit.close()
