"""The work on one file.

Fast queue: security scan, page images, OCR, spatial map.  AI queue: pass 1 says what the document is, pass 2 finds the facts,
pass 3 brings them into their normal form and makes the entry of the time line.  Whatever is done stays done, whoever goes on.

Steps keep ids and counts; what stands in documents goes into the profile's own rows and objects, and nowhere else.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import UUID

import structlog

from onceward import Job, LeaseLost, Onceward, PermanentFailure, Snooze
from onceward.errors import JobsFailed, NoRoom, OncewardError, RateLimited
from onceward.limits import AsyncLimits
from onceward.logs import get as get_log
from onceward_apps.intake import domain, store
from onceward_apps.intake.outside import ProviderWaits, Reading, translated
from onceward_apps.intake.reading import errors, spatial
from onceward_apps.intake.reading.model import PageImage, Usage
from onceward_apps.intake.settings import Settings

log = get_log("onceward_apps.intake")
Row = dict[str, Any]
R = TypeVar("R")


def limit_of(provider: str, endpoint: str) -> str:
    """The engine's name for a provider's limit, as intake.api_providers has it."""
    return f"intake:{provider}:{endpoint}"


class Pipeline:
    def __init__(
        self, app: Onceward, settings: Settings, database: store.Database, reading: Callable[[], Reading]
    ) -> None:
        self._app = app
        self._settings = settings
        self._database = database
        self._storage = settings.storage
        self._make_reading = reading
        self._made: Reading | None = None

    @property
    def _reading(self) -> Reading:
        # Models are loaded by the process that reads, when it reads.
        if self._made is None:
            self._made = self._make_reading()
        return self._made

    # ------------------------------------------------------------ the fast queue

    async def process(self, file_id: UUID, job: Job) -> Row | Snooze:
        async with self._told(file_id, job, "shell_file_processing", reads=True) as pause:
            return await self._process(file_id, job)
        return pause.outcome

    async def _process(self, file_id: UUID, job: Job) -> Row:
        file: Row = await job.transaction("begun", store.begin_file, file_id)
        with tempfile.TemporaryDirectory(prefix="intake-") as folder:
            path = Path(folder) / "file"
            await self._fetch(file, path)
            try:
                scanned: Row = await job.step("security scan", quietly(self._scan), path, file["mime_type"])
                drawn: list[Row] = await job.step(
                    "pages drawn", quietly(self._draw), file, path, scanned["kind"]
                )
            except errors.Refused as refused:
                await job.transaction("refused", store.refuse_file, file_id, refused.code, refused.message)
                return {"refused": refused.code}
        read = await self._pages_read(file_id)
        for page in drawn:
            words = [] if page["number"] in read else await self._words(page)
            await job.transaction(f"page {page['number']}", store.store_page, file_id, page, words)
        document = domain.document_of(await self._document(file_id))
        tokens = max(1, self._reading.extractor.estimate(document))
        ai_job = await job.transaction(
            "handed on", store.finish_ocr, file_id, len(drawn), tokens, self._settings.extractor_endpoint
        )
        return {"pages": len(drawn), "ai_job_id": ai_job}

    async def _fetch(self, file: Row, path: Path) -> None:
        content = await self._storage.get(file["storage_path"])
        if hashlib.sha256(content).hexdigest() != file["sha256"]:
            raise PermanentFailure("the stored object is not what was uploaded")
        await asyncio.to_thread(path.write_bytes, content)

    async def _scan(self, path: Path, declared: str) -> Row:
        scanned = await asyncio.to_thread(self._reading.check, path, declared)
        return {"kind": scanned.kind, "findings": [finding.code for finding in scanned.findings]}

    async def _draw(self, file: Row, path: Path, kind: Any) -> list[Row]:
        """Every page as a picture beside the file.  Done again, it writes the same in the same places."""
        drawn: list[Row] = []
        images = self._reading.render(path, kind)
        while (image := await asyncio.to_thread(next, images, None)) is not None:
            place = f"{file['patient_id']}/{file['id']}/page-{image.number}.png"
            await self._storage.put(place, image.png, content_type="image/png")
            drawn.append(
                {"number": image.number, "width": image.width, "height": image.height, "path": place}
            )
        return drawn

    async def _words(self, page: Row) -> list[Row]:
        png = await self._storage.get(page["path"])
        image = PageImage(page["number"], page["width"], page["height"], png)
        async with self._capacity():
            words = await self._reading.words(image)
        return domain.numbered(spatial.layout(words))

    @contextlib.asynccontextmanager
    async def _capacity(self) -> AsyncIterator[None]:
        """One request of the OCR provider's limit, when it is somebody else's.  Raises ProviderWaits."""
        endpoint = self._settings.ocr_endpoint
        if endpoint is None:
            yield
            return
        limits = AsyncLimits(self._app.async_client(tenant="*"))
        name = limit_of(*endpoint)
        try:
            hold = await limits.acquire(name, wait=timedelta(seconds=1))
        except NoRoom:
            raise ProviderWaits(timedelta(seconds=5)) from None
        try:
            yield
        except errors.RateLimited as error:
            asked = ProviderWaits(error.retry_after)
            await limits.pause(name, asked.wait, reason="the provider asks to wait")
            raise asked from None
        finally:
            await limits.release(hold)

    # ------------------------------------------------------------ the AI queue

    async def interpret(self, file_id: UUID, tokens: int, job: Job) -> Row | Snooze:
        """Three passes, each a job of its own: it begins when the provider's limit has room for it."""
        async with self._told(file_id, job, "ai_processing", reads=False) as pause:
            for number in (1, 2, 3):
                begun = await job.transaction(
                    f"pass {number} begun",
                    store.enqueue_pass,
                    file_id,
                    number,
                    tokens,
                    self._settings.extractor_endpoint,
                )
                try:
                    await job.join(f"pass {number}", [UUID(begun)])
                except JobsFailed:
                    raise PermanentFailure(
                        f"pass {number} has failed", hint="Requeue that pass, then this job."
                    ) from None
            return {"passes": 3}
        return pause.outcome

    async def classify(self, file_id: UUID, estimated: int, job: Job) -> Row | Snooze:
        async def ask(row: Row) -> tuple[Usage, Row]:
            found = await self._reading.extractor.classify(domain.document_of(row))
            return found.usage, domain.classification_row(found)

        async with self._told(file_id, job, "ai_queue_pass1", reads=False) as pause:
            return await self._pass(file_id, estimated, job, ask, store.store_classification)
        return pause.outcome

    async def extract(self, file_id: UUID, estimated: int, job: Job) -> Row | Snooze:
        async def ask(row: Row) -> tuple[Usage, list[Row]]:
            found = await self._reading.extractor.extract(
                domain.document_of(row), domain.classification_of(row)
            )
            return found.usage, domain.fact_rows(found.facts)

        async with self._told(file_id, job, "ai_queue_pass2", reads=False) as pause:
            return await self._pass(file_id, estimated, job, ask, store.store_facts)
        return pause.outcome

    async def _pass(
        self,
        file_id: UUID,
        estimated: int,
        job: Job,
        ask: Callable[[Row], Awaitable[tuple[Usage, Any]]],
        keep: Callable[..., Awaitable[Any]],
    ) -> Row:
        """Ask the provider, settle what it has used, and keep the answer together with the account of it.

        If the worker dies after the answer and before it is kept, the provider is asked again, and both calls are charged.
        """
        endpoint = self._settings.extractor_endpoint
        used: Row = {**endpoint, "estimated_tokens": estimated}
        found: Any = None
        if not await self._is_kept(job):
            row = await self._document(file_id)
            began = time.monotonic()
            try:
                usage, found = await ask(row)
            except errors.RateLimited as error:
                raise RateLimited(
                    "the provider asks to wait",
                    limit=limit_of(**_named(endpoint)),
                    retry_after=ProviderWaits(error.retry_after).wait,
                ) from None
            except errors.ProviderError as error:
                # An answer that is of no use has been charged for, too.
                if error.tokens:
                    await job.settle(limit_of(**_named(endpoint)), tokens=error.tokens)
                raise
            used |= {"actual_tokens": usage.total, "seconds": round(time.monotonic() - began)}
            await job.settle(limit_of(**_named(endpoint)), tokens=usage.total)
        await job.transaction("kept", keep, file_id, job.id, found, used)
        return {"tokens": used.get("actual_tokens", 0)}

    async def normalise(self, file_id: UUID, job: Job) -> Row | Snooze:
        async with self._told(file_id, job, "ai_queue_pass3", reads=False) as pause:
            row = await self._document(file_id)
            async with self._database.serving() as connection:
                facts = [domain.fact_of(fact) for fact in await store.read_facts(connection, file_id)]
            normal = self._reading.normalise(facts)
            entry = self._reading.entry(domain.classification_of(row), normal, row["person"])
            await job.transaction(
                "kept",
                store.store_timeline,
                file_id,
                job.id,
                domain.normal_rows(normal),
                domain.entry_row(entry, row["uploaded_on"]),
            )
            return {"facts": len(normal)}
        return pause.outcome

    # ------------------------------------------------------------ how

    async def _document(self, file_id: UUID) -> Row:
        async with self._database.serving() as connection:
            return await store.read_document(connection, file_id)

    async def _pages_read(self, file_id: UUID) -> set[int]:
        async with self._database.serving() as connection:
            found = await store.rows(
                connection, "select page_number from intake.file_pages where shell_file_id = %s", file_id
            )
        return {row["page_number"] for row in found}

    async def _is_kept(self, job: Job) -> bool:
        async with self._database.serving() as connection:
            return bool(
                await store.call(
                    connection, "select exists (select from intake.api_calls where job_id = %s)", job.id
                )
            )

    def _told(self, file_id: UUID, job: Job, job_type: str, *, reads: bool) -> _Told:
        return _Told(self._database, file_id, job, job_type, reads=reads)


def _named(endpoint: dict[str, str]) -> dict[str, str]:
    return {"provider": endpoint["provider_name"], "endpoint": endpoint["api_endpoint"]}


def quietly(read: Callable[..., Awaitable[R]]) -> Callable[..., Awaitable[R]]:
    """For steps, whose errors the engine records as they are: only words of ours get there."""

    @functools.wraps(read)
    async def reading(*args: Any) -> R:
        try:
            return await read(*args)
        except errors.Refused:
            raise
        except Exception as error:
            raise translated(error, reads=True) from None

    return reading


class _Told:
    """Around the work of an attempt: ids on every log line, and errors in the file's row, in words of ours.

    A provider that asks to wait ends the attempt without an error: `outcome` then says for how long.
    """

    def __init__(
        self, database: store.Database, file_id: UUID, job: Job, job_type: str, *, reads: bool
    ) -> None:
        self._database = database
        self._file_id = file_id
        self._job = job
        self._job_type = job_type
        self._reads = reads
        self._began = time.monotonic()
        self.outcome = Snooze(timedelta(0))

    async def __aenter__(self) -> Self:
        payload = self._job.payload
        correlation = payload.get("correlation_id") if isinstance(payload, dict) else None
        structlog.contextvars.bind_contextvars(
            job_id=self._job.ref, correlation_id=correlation, job_type=self._job_type
        )
        log.info("work_begun", attempt=self._job.attempt)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if error is None:
            log.info("work_done", took_ms=self._took)
            return False
        if not isinstance(error, Exception) or isinstance(error, LeaseLost):
            # Suspended, stopped, or somebody else's by now.
            return False
        ours = translated(error, reads=self._reads)
        log.warning("work_failed", error=type(ours).__name__, took_ms=self._took)
        if isinstance(ours, RateLimited):
            raise ours from None
        if isinstance(ours, ProviderWaits):
            self.outcome = Snooze(ours.wait, "the provider asks to wait")
            return True
        await self._record(ours)
        raise ours from None

    @property
    def _took(self) -> int:
        return round((time.monotonic() - self._began) * 1000)

    async def _record(self, error: OncewardError) -> None:
        job = self._job
        is_last = job.attempt >= job.max_attempts or isinstance(error, PermanentFailure)
        told = {
            "job_type": self._job_type,
            "job_id": str(job.id),
            "error_type": getattr(error, "error_type", "ocr_failure" if self._reads else "api_error"),
            "error_message": error.message,
            "retry_count": job.attempt - 1,
            "duration_ms": self._took,
        }
        try:
            async with self._database.serving() as connection:
                await store.record_error(connection, self._file_id, told, is_last=is_last)
        except Exception as trouble:
            # The failure itself is what counts, and the engine records it.
            log.warning("error_not_recorded", error=type(trouble).__name__)
