"""Batches: the list, a new one, many new ones, and the page of one with its files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, get_args
from uuid import UUID, uuid4

import pypdfium2
import typst
from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from onceward.web import layout, tables, words
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.query import query_of
from onceward_apps.proof import bulk, drawing, store
from onceward_apps.proof.domain import STEPS, Batch, Status
from onceward_apps.proof.pages.portal import changing, get_batch, id_of, looking
from onceward_apps.proof.pages.public import PREFIX
from onceward_apps.proof.pages.serving import once
from onceward_apps.proof.settings import Settings

PAGE = 50
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A row of the list as CSV."""

    batch_code: str
    public_batch_id: str
    status: str
    recalled: bool
    produced_at: date
    expiry_date: date
    kg_produced: Decimal
    product_name: str
    formulation_version: str
    job_state: str | None
    attempts: int | None
    released_at: datetime | None
    created_at: datetime


class BatchPages:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._storage = settings.storage

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", lambda request: RedirectResponse("/proof/batches", 303)),
            Route("/batches", self.index),
            Route("/batches.csv", self.as_csv),
            Route("/batches/new", self.new, methods=["GET", "POST"]),
            Route("/batches/bulk", self.many, methods=["GET", "POST"]),
            Route("/batches/{id}", self.show),
            Route("/batches/{id}/qr.png", self.qr),
            Route("/batches/{id}/label.pdf", self.label),
            Route("/batches/{id}/label.png", self.label_preview),
            Route("/batches/{id}/certificate.pdf", self.certificate),
        ]

    # ------------------------------------------------------------ the list

    async def index(self, request: Request) -> Response:
        query = query_of(request)
        statuses, text = query.many("status", STATUSES), query.text("q")
        async with looking(request) as look:
            found = await store.find_batches(
                look.connection, status=statuses[0] if statuses else None, text=text,
                before=query.uuid("before"), limit=PAGE + 1,
            )  # fmt: skip
            counts = await store.count_batches(look.connection)
            letters = await store.dead_letters(look.connection)
            return look.show(
                "batches.html", query=query, batches=found[:PAGE], more=len(found) > PAGE, counts=counts, total=sum(counts.values()),
                chosen=statuses[0] if statuses else None, text=text or "", letters=letters, flags=STEPS, statuses=STATUSES,
            )  # fmt: skip

    async def as_csv(self, request: Request) -> Response:
        query = query_of(request)
        statuses = query.many("status", STATUSES)
        async with looking(request) as look:
            found = await store.find_batches(
                look.connection, status=statuses[0] if statuses else None, text=query.text("q"), before=None,
                limit=tables.MOST_ROWS,
            )  # fmt: skip
        return tables.csv_of("batches", BatchLine, found)

    # ------------------------------------------------------------ new ones

    async def new(self, request: Request) -> Response:
        if request.method != "POST":
            return await self._new_form(request)
        form = await read_form(request)
        given = {name: form.text(name) for name in ("production_date", "kg_produced", "key")}
        errors: dict[str, str] = {}
        try:
            produced = date.fromisoformat(given["production_date"])
        except ValueError:
            errors["production_date"] = "Enter the day of production, as 2026-03-20."
        try:
            kilograms = Decimal(given["kg_produced"].replace(",", "."))
            if not (kilograms.is_finite() and 0 < kilograms < 1_000_000):
                errors["kg_produced"] = "Enter more than 0 and less than 1,000,000 kg."
        except InvalidOperation:
            errors["kg_produced"] = "Enter kilograms as a number, as 512.5."
        if not errors and not form.checked("sure"):
            async with looking(request) as look:
                doubts = bulk.doubts(produced, kilograms, look.frame.now.date())
            if doubts:
                errors["sure"] = f"Is this right? {'; '.join(doubts)}."
        if not errors:
            async with changing(request) as connection:
                answer, _ = await once(
                    connection, f"proof:new-batch:{_key(given['key'])}", None,
                    lambda: store.call(connection, "select raw_ops.fn_create_batch_v1(%s, %s)", produced, kilograms),
                )  # fmt: skip
            if answer["success"]:
                said = f"Batch {answer['batch_code']} created. QR code, label and email follow by themselves."
                return layout.back(request, f"/proof/batches/{answer['batch_id']}", Flash(said))
            errors["form"] = answer["error"]
        return await self._new_form(request, given, errors, status=422)

    async def _new_form(
        self,
        request: Request,
        given: dict[str, str] | None = None,
        errors: dict[str, str] | None = None,
        status: int = 200,
    ) -> Response:
        async with looking(request) as look:
            today = look.frame.now.date().isoformat()
            shown = {**(given or {"production_date": today, "kg_produced": ""}), "key": str(uuid4())}
            return look.show("new.html", status, given=shown, errors=errors or {}, today=today)

    async def many(self, request: Request) -> Response:
        if request.method != "POST":
            return await self._bulk_form(request, "")
        form = await read_form(request)
        text = form.raw("table")
        async with looking(request) as look:
            today = look.frame.now.date()
        try:
            if file := form.files.get("file"):
                text = ""
                text = bulk.decode(file.content)
            read = bulk.read(text, today=today)
        except bulk.UnreadableTable as error:
            return await self._bulk_form(request, text, problem=str(error), status=422)
        if form.checked("create"):
            async with changing(request) as connection:
                answer, _ = await once(
                    connection,
                    f"proof:bulk:{_key(form.text('key'))}",
                    None,
                    lambda: _create(connection, read),
                )
            if answer["success"]:
                created = words.counted(len(answer["created"]), "batch", "batches")
                said = f"{created} created. Labels and emails follow by themselves."
                return layout.back(request, "/proof/batches", Flash(said))
        return await self._preview(request, text, read)

    async def _bulk_form(
        self, request: Request, text: str, *, problem: str = "", status: int = 200
    ) -> Response:
        # A browser stands still when it has to show megabytes in a field.
        text = text if len(text) <= bulk.MOST_BYTES else ""
        async with looking(request) as look:
            return look.show(
                "bulk.html",
                status,
                text=text,
                problem=problem,
                rows=[],
                expected={},
                wrong=0,
                looks=0,
                key="",
            )

    async def _preview(self, request: Request, text: str, read: Sequence[bulk.Row]) -> Response:
        """What would come of it: everything is done, and undone."""
        expected: dict[int, dict[str, Any]] = {}
        if not any(row.errors for row in read):
            async with changing(request) as connection:
                answer = await _create(connection, read)
                await connection.execute("rollback to savepoint tried")
            told = answer.get("created") or answer.get("errors") or []
            expected = {read[each["row"] - 1].line: each for each in told}
        wrong = [row for row in read if row.errors or "error" in expected.get(row.line, {})]
        looks = sum(1 for row in read if row.warning and row not in wrong)
        async with looking(request) as look:
            return look.show(
                "bulk.html", 422 if wrong else 200, text=text, problem="", rows=read, expected=expected, wrong=len(wrong),
                looks=looks, key=str(uuid4()),
            )  # fmt: skip

    # ------------------------------------------------------------ one of them

    async def show(self, request: Request) -> Response:
        async with looking(request) as look:
            batch = await get_batch(look.connection, id_of(request))
            moments = {
                name: datetime.fromisoformat(batch["steps"][name])
                for name in STEPS
                if batch["steps"].get(name)
            }
            for line in (*batch["history"], *batch["events"]):
                when = "changed_at" if "changed_at" in line else "created_at"
                line["at"] = datetime.fromisoformat(line[when])
            recall = next((line for line in batch["history"] if line["old_status"] == "RELEASED"), None)
            return look.show(
                "batch.html", batch=batch, moments=moments, public=f"{PREFIX}/batch/{batch['public_batch_id']}",
                created=datetime.fromisoformat(batch["created_at"]), recall=recall,
            )  # fmt: skip

    async def qr(self, request: Request) -> Response:
        return await self._file(request, "qr_image_url", "image/png")

    async def label(self, request: Request) -> Response:
        return await self._file(request, "label_pdf_url", "application/pdf")

    async def certificate(self, request: Request) -> Response:
        async with looking(request) as look:
            batch = await get_batch(look.connection, id_of(request))
        address = next((r["certificate_pdf_url"] for r in batch["results"] if r["certificate_pdf_url"]), None)
        return await self._stored(address, "application/pdf")

    async def label_preview(self, request: Request) -> Response:
        """A picture of the very label that is stored; as long as there is none, of what it would be."""
        async with looking(request) as look:
            found = await store.call(look.connection, "select raw_ops.fn_get_batch_v1(%s)", id_of(request))
        if found is None:
            raise HTTPException(404)
        batch = Batch.model_validate(found)
        try:
            pdf = await self._storage.get(self._storage.path_of(batch.label_pdf_url or ""))
        except (FileNotFoundError, ValueError):
            # Not drawn yet, past its retention, or put elsewhere by a program.
            pdf = await self._redrawn(batch)
        try:
            drawn = await asyncio.to_thread(drawing.screen_png, pdf)
        except pypdfium2.PdfiumError:
            raise HTTPException(409, "the stored label is no PDF") from None
        return Response(drawn, media_type="image/png", headers={"cache-control": "private, max-age=60"})

    async def _redrawn(self, batch: Batch) -> bytes:
        try:
            return await asyncio.to_thread(drawing.label_pdf, batch, fonts=self._settings.fonts)
        except typst.TypstError:
            raise HTTPException(409, "the texts do not fit on the label") from None
        except drawing.MissingCharacter as error:
            raise HTTPException(409, str(error)) from None

    async def _file(self, request: Request, column: str, kind: str) -> Response:
        async with looking(request) as look:
            batch = await get_batch(look.connection, id_of(request))
        return await self._stored(batch[column], kind)

    async def _stored(self, address: str | None, kind: str) -> Response:
        """From the storage; what a program has put elsewhere is found there."""
        if not address:
            raise HTTPException(404)
        try:
            path = self._storage.path_of(address) if "://" in address else address
        except ValueError:
            return RedirectResponse(address, 302)
        try:
            content = await self._storage.get(path)
        except (FileNotFoundError, ValueError):
            raise HTTPException(404) from None
        name = path.rpartition("/")[2]
        headers = {
            "content-disposition": f'inline; filename="{name}"',
            "cache-control": "private, max-age=60",
        }
        return Response(content, media_type=kind, headers=headers)


async def _create(connection: store.Connection, read: Sequence[bulk.Row]) -> dict[str, Any]:
    """In a savepoint of its own, which a preview goes back to."""
    await connection.execute("savepoint tried")
    given = Jsonb([row.to_json() for row in read])
    answer: dict[str, Any] = await store.call(connection, "select raw_ops.fn_create_batches_v1(%s)", given)
    return answer


def _key(text: str) -> UUID:
    """Of the form: sent twice, it creates once."""
    try:
        return UUID(text)
    except ValueError:
        return uuid4()
