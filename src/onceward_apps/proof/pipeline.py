"""The work on one batch: QR code, label, email.  Whatever is done stays done, whoever goes on with it.

Steps of the contract are `qr_generated`, `qr_uploaded`, `label_generated`, `label_uploaded` and `email_sent`; the others
keep what belongs to them: the addresses in the batch's row, the email in the ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from pydantic import BaseModel

from onceward import Job, LeaseLost, Onceward, PermanentFailure, Snooze
from onceward.dsn import resolve_dsn
from onceward.logs import get as get_log
from onceward.model import JobOutcome
from onceward_apps.proof import domain, drawing, outside, store
from onceward_apps.proof.domain import Batch
from onceward_apps.proof.settings import Settings

log = get_log("onceward_apps.proof")
# The email is on its way again; how often to look.
LOOK_AGAIN = timedelta(seconds=2)
ENDED = {"done", "dead_letter", "cancelled", "resolved"}


class Proof(BaseModel):
    """What a proof job returns."""

    qr_image_url: str
    label_pdf_url: str


class Picture:
    """A picture that is drawn when it is needed, and once per attempt.

    Drawing has no effect outside, so an attempt that goes on after a crash draws again instead of reading what was kept.
    """

    def __init__(self, draw: Callable[[], Awaitable[bytes]]) -> None:
        self._draw = draw
        self._bytes: bytes | None = None

    async def bytes(self) -> bytes:
        if self._bytes is None:
            self._bytes = await self._draw()
        return self._bytes

    async def digest(self) -> str:
        return hashlib.sha256(await self.bytes()).hexdigest()


class Pipeline:
    def __init__(self, app: Onceward, settings: Settings, renderer: outside.Renderer) -> None:
        self._app = app
        self._settings = settings
        self._storage = settings.storage
        self._renderer = renderer

    async def run(self, batch_id: UUID, job: Job) -> Proof | Snooze:
        try:
            return await self._steps(batch_id, job)
        except LeaseLost:
            raise
        except psycopg.Error as error:
            trouble = outside.DatabaseTrouble(
                f"{type(error).__name__}: {error.diag.message_primary or error}"
            )
            await self._tell_if_last(batch_id, job, trouble)
            raise trouble from error
        except Exception as error:
            await self._tell_if_last(batch_id, job, error)
            raise

    async def _steps(self, batch_id: UUID, job: Job) -> Proof | Snooze:
        # Anew in each attempt: a job that is requeued after somebody has mended a text draws the new one.
        async with await self._connect() as connection:
            batch = await store.get_batch(connection, batch_id)
        qr_url = await self._qr(batch, job)
        label_url = await self._label(batch, job)
        pause = await self._email(batch, label_url, job)
        return pause or Proof(qr_image_url=qr_url, label_pdf_url=label_url)

    async def _qr(self, batch: Batch, job: Job) -> str:
        async def draw() -> bytes:
            try:
                return drawing.qr_png(batch)
            except Exception as error:
                raise outside.QrGenerationFailed(f"the QR code cannot be drawn: {error}") from error

        picture = Picture(draw)
        await outside.QR.named(
            job.step("qr_generated", picture.digest, **outside.QR.options), "drawing the QR code"
        )
        address = await self._upload(job, "qr_uploaded", batch.qr_path, picture) or batch.qr_image_url
        address = address or self._storage.address(batch.qr_path)
        await job.transaction("qr_recorded", store.set_qr_assets, batch, address, job.epoch)
        return address

    async def _label(self, batch: Batch, job: Job) -> str:
        picture = Picture(lambda: self._renderer.label(batch))
        await outside.PDF.named(
            job.step("label_generated", picture.digest, **outside.PDF.options), "rendering the label"
        )
        # From here on the label says what it says, whatever becomes of the product.
        await job.transaction("label_texts_kept", store.keep_label_texts, batch)
        address = await self._upload(job, "label_uploaded", batch.label_path, picture) or batch.label_pdf_url
        address = address or self._storage.address(batch.label_path)
        await job.transaction("label_recorded", store.set_label_asset, batch, address, job.epoch)
        return address

    async def _upload(self, job: Job, step: str, path: str, picture: Picture) -> str | None:
        """The address: ours, or that of a program which has put the file elsewhere.  None when it did not say where."""
        kind = "image/png" if path.endswith(".png") else "application/pdf"

        async def write() -> str:
            return await outside.upload(self._storage, path, await picture.bytes(), kind)

        stored: str = await outside.STORAGE.named(
            job.step(step, write, **outside.STORAGE.options), f"writing {path}"
        )
        return stored if "://" in stored else None

    # ------------------------------------------------------------ the email

    async def _email(self, batch: Batch, label_url: str, job: Job) -> Snooze | None:
        """The ledger sends it; this waits for it without holding a slot.  A pause, when it is on its way once more."""
        delivery: UUID | None = await job.transaction(
            "email_entered", self._enter_email, batch, label_url, job.id
        )
        if delivery is not None:
            outcomes: list[JobOutcome] = await job.join("email_settled", [delivery], on_failure="ignore")
            if outcomes[0].state not in ENDED:
                return Snooze(LOOK_AGAIN, "the email is on its way")
            if outcomes[0].state != "done":
                await self._email_failed(batch, job)

        def sent() -> str:
            return str(delivery or "reported by a program")

        await job.step("email_sent", sent)
        return None

    async def _enter_email(
        self, connection: store.Connection, batch: Batch, label_url: str, job_id: UUID
    ) -> UUID | None:
        if await store.email_was_reported(connection, job_id):
            return None
        lasts = self._settings.link_lasts
        letter = domain.label_letter(batch, self._link(label_url, lasts), lasts.days)
        delivery = await self._app.async_client().deliveries.email(
            connection=connection,
            # One per batch, for ever.
            key=f"proof:label-email:{batch.batch_id}",
            to=self._settings.copacker_email,
            sender=self._settings.sender,
            subject=letter.subject,
            text=letter.text,
            html=letter.html,
            waits=[timedelta(seconds=wait) for wait in outside.EMAIL_WAITS],
        )
        return delivery.id

    def _link(self, label_url: str, lasts: timedelta) -> str:
        """Signed; what a program has put elsewhere, only its owner can sign."""
        try:
            path = self._storage.path_of(label_url)
        except ValueError:
            return label_url
        return self._storage.link(path, now=datetime.now(UTC), lasts=lasts)

    async def _email_failed(self, batch: Batch, job: Job) -> None:
        """Tier 2: the ledger has used up its tries.  It gets new ones, as long as this job has attempts left."""
        async with await self._connect() as connection:
            found = await store.email_state(connection, batch.batch_id, again=job.attempt < job.max_attempts)
        state, why = found["state"], found["message"] or "no reason given"
        if state == "sent":
            return
        if state == "abandoned" and found["can_pass_later"]:
            raise outside.EmailDeliveryFailed(f"the email could not be sent: {why}")
        hint = {
            "uncertain": "Ask the co-packer, settle it with `onceward delivery decide`, then requeue this job.",
            "abandoned": "Correct the address or the account, then requeue this job.",
        }.get(state, "Requeue the delivery, then this job.")
        raise outside.EmailDeliveryRefused(f"the email is {state}: {why}", hint=hint)

    # ------------------------------------------------------------ the alert

    async def _tell_if_last(self, batch_id: UUID, job: Job, error: Exception) -> None:
        """When this attempt was the last one, somebody has to know at once.

        A job that dies with its worker is told by the monitor, at most five minutes later.
        """
        if job.attempt < job.max_attempts and not isinstance(error, PermanentFailure):
            return
        try:
            async with await self._connect() as connection:
                code = (await store.get_batch(connection, batch_id)).batch_code
                alert = domain.dead_letter_alert(
                    code, attempts=job.attempt, error=str(error), category=outside.category(error)
                )
                await send_alert(
                    self._app,
                    self._settings,
                    connection,
                    alert,
                    key=f"proof:dead-letter:{job.id}:{job.epoch}",
                )
        except Exception as trouble:
            # The failure itself is what counts; the monitor tells of it, too.
            log.warning("dead_letter_not_told", job_id=str(job.id), error=type(trouble).__name__)

    async def _connect(self) -> store.Connection:
        return await psycopg.AsyncConnection.connect(resolve_dsn(self._app.dsn), autocommit=True)


async def send_alert(
    app: Onceward, settings: Settings, connection: store.Connection, alert: dict[str, Any], *, key: str
) -> None:
    """Put an alert into the ledger, once per key; without a webhook for its channel, into the log."""
    log.warning("alert", channel=alert["channel"], severity=alert["severity"], title=alert["title"])
    if alert["channel"] in settings.slack:
        await app.async_client().deliveries.slack(
            connection=connection, key=key, to=alert["channel"], text=domain.alert_text(alert)
        )
