"""The tasks of the proof system, and their schedules."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any
from uuid import UUID

from onceward import Job, Onceward, Retry, Snooze
from onceward.deliveries import Deliveries, Provider, Slack
from onceward.errors import KeyConflict
from onceward_apps.proof import outside, store
from onceward_apps.proof.pipeline import Pipeline, Proof, send_alert
from onceward_apps.proof.settings import Settings

LANE = "proof"
# Of its own: systems that share a database send through different providers.
DELIVERIES = "proof-deliveries"
MONITORS = {"proof_system_health": store.check_health}


def make_app(
    settings: Settings,
    dsn: str | None = None,
    *,
    email: Provider | None = None,
    renderer: outside.Renderer | None = None,
) -> Onceward:
    """The application.  Emails go the way that ONCEWARD_EMAIL names, unless a provider is given."""
    app = Onceward(dsn, name="proof")
    Deliveries(app, lane=DELIVERIES, email=email, slack=Slack(settings.slack) if settings.slack else None)
    pipeline = Pipeline(app, settings, renderer or renderer_of(settings))

    @app.task(
        name="proof.generate",
        lane=LANE,
        max_attempts=5,
        retry=Retry(waits=[timedelta(seconds=30)]),
        timeout=timedelta(minutes=5),
    )
    async def generate(batch_id: UUID, job: Job) -> Proof | Snooze:
        return await pipeline.run(batch_id, job)

    @app.schedule("30 seconds", name="process-proof-jobs", missed="none", overlap="skip")
    @app.task(name="proof.sweep", lane=LANE, max_attempts=1)
    async def sweep(job: Job) -> int:
        """Workers claim by themselves; what is left for the cycle are batches that came without their job."""
        found: int = await job.transaction("swept", _sweep)
        return found

    @app.schedule("*/5 * * * *", name="monitor-proof-system-health", missed="latest", overlap="skip")
    @app.task(name="proof.monitor", lane=LANE, max_attempts=2)
    async def monitor(job: Job, check: str = "proof_system_health") -> dict[str, Any]:
        async def run(connection: store.Connection) -> dict[str, Any]:
            return await run_monitor(app, settings, connection, check)

        answer: dict[str, Any] = await job.transaction("checked", run)
        return answer

    @app.schedule("15 3 * * *", name="proof-retention", missed="latest", overlap="skip")
    @app.task(name="proof.retention", lane=LANE)
    async def retention(job: Job) -> dict[str, int]:
        return await _retain(job, settings)

    return app


def renderer_of(settings: Settings) -> outside.Renderer:
    if settings.renderer == "browserless":
        return outside.Browserless(settings.browserless_url, settings.browserless_key)
    return outside.Typst(settings.fonts)


async def run_monitor(
    app: Onceward, settings: Settings, connection: store.Connection, check: str
) -> dict[str, Any]:
    """Run a check and put its alert into the ledger, in one transaction: at most one an hour for the same trouble."""
    answer = await MONITORS[check](connection)
    alert = answer.get("alert_config")
    if alert:
        hour = await store.call(
            connection, "select to_char(onceward.now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24')"
        )
        # The same trouble in other figures conflicts with what was told before, and is not told again.
        with contextlib.suppress(KeyConflict):
            async with connection.transaction():
                await send_alert(
                    app, settings, connection, alert, key=f"proof:{check}:{alert['title']}:{hour}"
                )
    return answer


async def _sweep(connection: store.Connection) -> int:
    return int(await store.call(connection, "select raw_ops.fn_enqueue_missing_proof_jobs_v1()"))


async def _retain(job: Job, settings: Settings) -> dict[str, int]:
    """Jobs after 90 days, label PDFs after 2 years: first the file, then its address."""

    async def jobs(connection: store.Connection) -> dict[str, int]:
        answer: dict[str, int] = await store.call(connection, "select raw_ops.fn_apply_retention_v1()")
        return answer

    async def expired(connection: store.Connection) -> list[tuple[UUID, str]]:
        rows = await connection.execute("select batch_id, batch_code from raw_ops.fn_expired_labels_v1()")
        return [(batch, code) for batch, code in await rows.fetchall()]

    async def forget(connection: store.Connection, batch: UUID) -> bool:
        return bool(await store.call(connection, "select raw_ops.fn_forget_label_v1(%s)", batch))

    removed: dict[str, int] = await job.transaction("jobs", jobs)
    labels: list[tuple[UUID, str]] = await job.transaction("expired", expired)
    for batch, code in labels:
        await job.step(
            f"delete {code}", settings.storage.delete, f"batch-labels/{code}.pdf", tries=3, waits=(1, 3)
        )
        await job.transaction(f"forget {code}", forget, batch)
    return {**removed, "label_pdfs": len(labels)}
