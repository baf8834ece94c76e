"""The tasks of the intake system, and their schedules.

How often they are tried, how long they may take and which limits they use is decided where they are enqueued, in SQL: the same
for every program, with its numbers in system_configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from onceward import Job, Onceward, Snooze
from onceward.dsn import resolve_dsn
from onceward.logs import get as get_log
from onceward_apps.intake import store
from onceward_apps.intake.outside import Library, Reading
from onceward_apps.intake.pipeline import Pipeline
from onceward_apps.intake.settings import Settings
from onceward_apps.kit.streams import names_before

log = get_log("onceward_apps.intake")
FAST, AI, STANDARD = "fast_queue", "ai_queue", "standard_queue"


class FileJob(BaseModel):
    """The payload of every job about a file: ids and counts, nothing that stands in it."""

    model_config = ConfigDict(extra="ignore")
    shell_file_id: UUID
    estimated_tokens: int = 1000
    correlation_id: UUID | None = None


def make_app(
    settings: Settings, dsn: str | None = None, *, reading: Callable[[], Reading] | None = None
) -> Onceward:
    """The application.  `reading` stands in for the library, with its providers, when it is given."""
    app = Onceward(dsn, name="intake")
    database = LazyDatabase(app)
    pipeline = Pipeline(app, settings, database, reading or (lambda: Library.of(settings)))

    @app.task(name="intake.shell_file_processing", lane=FAST)
    async def shell_file_processing(payload: FileJob, job: Job) -> dict[str, Any] | Snooze:
        return await pipeline.process(payload.shell_file_id, job)

    @app.task(name="intake.ai_processing", lane=AI)
    async def ai_processing(payload: FileJob, job: Job) -> dict[str, Any] | Snooze:
        return await pipeline.interpret(payload.shell_file_id, payload.estimated_tokens, job)

    @app.task(name="intake.ai_queue_pass1", lane=AI)
    async def ai_queue_pass1(payload: FileJob, job: Job) -> dict[str, Any] | Snooze:
        return await pipeline.classify(payload.shell_file_id, payload.estimated_tokens, job)

    @app.task(name="intake.ai_queue_pass2", lane=AI)
    async def ai_queue_pass2(payload: FileJob, job: Job) -> dict[str, Any] | Snooze:
        return await pipeline.extract(payload.shell_file_id, payload.estimated_tokens, job)

    @app.task(name="intake.ai_queue_pass3", lane=AI)
    async def ai_queue_pass3(payload: FileJob, job: Job) -> dict[str, Any] | Snooze:
        return await pipeline.normalise(payload.shell_file_id, job)

    @app.schedule("1 minute", name="intake-reconcile", missed="none", overlap="skip")
    @app.task(name="intake.reconcile", lane=STANDARD, max_attempts=1)
    async def reconcile(job: Job) -> int:
        """Files whose job gave up without being able to say so are marked as failed."""
        marked: int = await job.transaction("marked", _reconcile)
        return marked

    @app.schedule("17 * * * *", name="intake-sweep-orphans", missed="latest", overlap="skip")
    @app.task(name="intake.sweep_orphans", lane=STANDARD, max_attempts=3)
    async def sweep(job: Job) -> int:
        """Objects that no row knows: of uploads that were cut, or whose transaction failed."""
        return await sweep_orphans(settings, database)

    return app


class LazyDatabase(store.Database):
    """Finds out where the database is when it is first used: importing an application must not start a server."""

    def __init__(self, app: Onceward) -> None:
        super().__init__("", size=16)
        self._app = app

    async def open(self) -> None:
        if not self.dsn:
            self.dsn = resolve_dsn(self._app.dsn)
        await super().open()


async def sweep_orphans(settings: Settings, database: store.Database, *, now: datetime | None = None) -> int:
    """How many objects were deleted.  An upload that is under way is younger than what is looked at."""
    async with database.serving() as connection:
        hours = await store.call(connection, "select intake.setting_number('storage.orphan_age_hours', 24)")
    before = (now or datetime.now(UTC)) - timedelta(hours=float(hours))
    swept = 0
    async for names in names_before(settings.storage, before):
        ids = {name: _file_of(name) for name in names}
        async with database.serving() as connection:
            orphans = set(
                await store.call(
                    connection, "select intake.orphans_among(%s)", list({i for i in ids.values() if i})
                )
            )
        for name in names:
            if ids[name] in orphans:
                await settings.storage.delete(name)
                swept += 1
    if swept:
        log.info("orphans_swept", objects=swept)
    return swept


def _file_of(name: str) -> UUID | None:
    """The file that an object belongs to, by its path: profile/file.pdf, profile/file/page-1.png."""
    parts = name.split("/")
    try:
        return UUID(parts[1].partition(".")[0]) if len(parts) > 1 else None
    except ValueError:
        return None


async def _reconcile(connection: store.Connection) -> int:
    return int(await store.call(connection, "select intake.reconcile_files()"))
