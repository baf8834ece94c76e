"""Lab results, and what people decide: release, reject, requeue, resolve; label texts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward.web import layout, words
from onceward.web.forms import Form, Upload, read_form
from onceward.web.layout import Flash
from onceward_apps.proof import drawing, store
from onceward_apps.proof.pages.portal import changing, get_batch, id_of, looking, status_word
from onceward_apps.proof.settings import Settings

MOST_PDF = 10 * 1024 * 1024
# What labs write for each test, to begin with.
USUAL = {
    "Salmonella": ("ISO 6579-1", "Absent in 25 g"),
    "Enterobacteriaceae": ("ISO 21528-2", "5000 cfu/g"),
    "Listeria monocytogenes": ("ISO 11290-1", "Absent in 25 g"),
    "E. coli": ("ISO 16649-2", "500 cfu/g"),
}
FIELDS = ("lab_name", "certificate_reference", "analysis_date")


class DecisionPages:
    def __init__(self, settings: Settings) -> None:
        self._storage = settings.storage
        self._fonts = settings.fonts

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/batches/{id}/results", self.results, methods=["GET", "POST"]),
            Route("/batches/{id}/release", self.release, methods=["GET", "POST"]),
            Route("/batches/{id}/reject", self.reject, methods=["GET", "POST"]),
            Route("/dead-letters", self.letters),
            Route("/dead-letters/{id}", self.letter),
            Route("/dead-letters/{id}/requeue", self.requeue, methods=["POST"]),
            Route("/dead-letters/{id}/resolve", self.resolve, methods=["POST"]),
            Route("/products", self.products),
            Route("/products/{id}", self.change_product, methods=["POST"]),
        ]

    # ------------------------------------------------------------ lab results

    async def results(self, request: Request) -> Response:
        batch_id = id_of(request)
        if request.method != "POST":
            return await self._results_form(request, batch_id)
        form = await read_form(request)
        async with looking(request) as look:
            batch = await get_batch(look.connection, batch_id)
            parameters = await store.lab_parameters(look.connection)
        given, problem = read_results(form, [row.parameter for row in parameters])
        certificate = form.files.get("certificate")
        problem = problem or (certificate_problem(certificate) if certificate else None)
        try:
            analysed = date.fromisoformat(form.text("analysis_date"))
        except ValueError:
            problem = problem or "Enter the day of the analysis, as 2026-03-24."
        if problem:
            return await self._results_form(request, batch_id, form, problem)
        path = await self._keep(batch["batch_code"], certificate) if certificate else _known(batch)
        async with changing(request) as connection:
            answer = await store.call(
                connection, "select raw_ops.fn_record_lab_results_v1(%s, %s, %s, %s, %s, %s, %s)",
                batch_id, Jsonb(given), form.text("lab_name"), form.text("certificate_reference"), analysed, path,
                form.text("reason"),
            )  # fmt: skip
        if not answer["success"]:
            return await self._results_form(request, batch_id, form, answer["error"])
        said = (
            "It can be released."
            if answer["can_be_released"]
            else _why_not(answer["missing_results"], answer["failed_results"])
        )
        return layout.back(
            request,
            f"/proof/batches/{batch_id}",
            Flash(f"{words.counted(answer['recorded'], 'result')} recorded. {said}"),
        )

    async def _keep(self, batch_code: str, file: Upload) -> str:
        """Under a name of ours.  The same file again is the same name, so that nothing is left over by a repetition."""
        digest = hashlib.sha256(file.content).hexdigest()[:16]
        path = f"lab-reports/{batch_code}-{digest}.pdf"
        await self._storage.put(path, file.content, content_type="application/pdf")
        return path

    async def _results_form(
        self, request: Request, batch_id: UUID, form: Form | None = None, problem: str = ""
    ) -> Response:
        async with looking(request) as look:
            batch = await get_batch(look.connection, batch_id)
            parameters = await store.lab_parameters(look.connection)
            known = {result["parameter"]: result for result in batch["results"]}
            last = batch["results"][-1] if batch["results"] else {}
            today = {"analysis_date": look.frame.now.date().isoformat()}
            head = {name: form.text(name) if form else last.get(name, today.get(name, "")) for name in FIELDS}
            rows = [
                (
                    number,
                    row,
                    _shown(form, number, known.get(row.parameter), USUAL.get(row.parameter, ("", ""))),
                )
                for number, row in enumerate(parameters)
            ]
            return look.show(
                "results.html",
                422 if problem else 200,
                batch=batch,
                rows=rows,
                head=head,
                problem=problem,
                reason=form.text("reason") if form else "",
            )

    # ------------------------------------------------------------ release and reject

    async def release(self, request: Request) -> Response:
        note = ""
        if request.method == "POST":
            note = (await read_form(request)).text("note")
        return await self._decide(request, "release.html", "select raw_ops.fn_release_batch_v1(%s, %s)", note)

    async def reject(self, request: Request) -> Response:
        reason = ""
        if request.method == "POST":
            reason = (await read_form(request)).text("reason")
        return await self._decide(request, "reject.html", "select raw_ops.fn_reject_batch_v1(%s, %s)", reason)

    async def _decide(self, request: Request, template: str, statement: Any, text: str) -> Response:
        batch_id, problem = id_of(request), ""
        if request.method == "POST":
            async with changing(request) as connection:
                answer = await store.call(connection, statement, batch_id, text)
            if answer["success"]:
                word = status_word(answer["status"], recalled=answer.get("recalled", False))
                said = f"Batch {answer['batch_code']} is {word}. Its public page says so."
                return layout.back(request, f"/proof/batches/{batch_id}", Flash(said))
            problem = answer["error"]
        async with looking(request) as look:
            batch = await get_batch(look.connection, batch_id)
            verdict = batch["verdict"]
            return look.show(
                template, 409 if problem else 200, batch=batch, text=text, problem=problem,
                why_not=_why_not(verdict["missing_results"], verdict["failed_results"]),
            )  # fmt: skip

    # ------------------------------------------------------------ dead letters

    async def letters(self, request: Request) -> Response:
        async with looking(request) as look:
            return look.show("letters.html", letters=await store.dead_letters(look.connection))

    async def letter(self, request: Request, problem: str = "", note: str = "") -> Response:
        job_id = id_of(request)
        async with looking(request) as look:
            batch_id = await store.call(
                look.connection, "select p.batch_id from raw_ops.proof_jobs as p where p.id = %s", job_id
            )
            if batch_id is None:
                raise HTTPException(404)
            batch = await get_batch(look.connection, batch_id)
            return look.show("letter.html", 409 if problem else 200, batch=batch, problem=problem, note=note)

    async def requeue(self, request: Request) -> Response:
        form, job_id = await read_form(request), id_of(request)
        async with changing(request) as connection:
            answer = await store.call(
                connection, "select raw_ops.fn_requeue_proof_job_v1(%s, %s)", job_id, form.text("note")
            )
        return await self._settled(request, answer, form, "is in line again, and goes on where it stopped")

    async def resolve(self, request: Request) -> Response:
        form, job_id = await read_form(request), id_of(request)
        async with changing(request) as connection:
            answer = await store.call(
                connection, "select raw_ops.fn_resolve_proof_job_manually_v1(%s, %s, %s)",
                job_id, form.text("note"), form.checked("skip"),
            )  # fmt: skip
        return await self._settled(request, answer, form, "is resolved by hand")

    async def _settled(self, request: Request, answer: dict[str, Any], form: Form, word: str) -> Response:
        if answer["success"]:
            return layout.back(
                request, "/proof/dead-letters", Flash(f"The job of batch {answer['batch_code']} {word}.")
            )
        missing = answer.get("missing_assets")
        problem = (
            f"The batch is missing {', '.join(missing)}. Requeue the job, or tick the box and say where they are."
            if missing
            else f"{answer['error']}."
        )
        return await self.letter(request, problem, form.text("note"))

    # ------------------------------------------------------------ label texts

    async def products(self, request: Request, problem: str = "", given: Any = None) -> Response:
        async with looking(request) as look:
            return look.show(
                "products.html",
                422 if problem else 200,
                products=await store.products(look.connection),
                problem=problem,
                given=given or {},
            )

    async def change_product(self, request: Request) -> Response:
        form, product_id = await read_form(request), id_of(request)
        given = {
            name: form.text(name) for name in ("label_name", "description", "net_weight_g", "ingredients")
        }
        try:
            printed = [given[name] for name in ("label_name", "description", "ingredients")]
            await asyncio.to_thread(drawing.check_characters, printed, fonts=self._fonts)
        except drawing.MissingCharacter as error:
            return await self.products(
                request, f"These texts cannot be printed: {error}.", {product_id: given}
            )
        grams = int(given["net_weight_g"]) if given["net_weight_g"].isdecimal() else None
        async with changing(request) as connection:
            answer = await store.call(
                connection, "select raw_ops.fn_update_product_v1(%s, %s, %s, %s, %s)",
                product_id, given["label_name"], given["description"], grams if grams and grams < 2**31 else None, given["ingredients"],
            )  # fmt: skip
        if not answer["success"]:
            return await self.products(request, answer["error"], {product_id: given})
        said = f"The label texts of {answer['sku']} are changed. Labels drawn from now on have them."
        return layout.back(request, "/proof/products", Flash(said))


def read_results(form: Form, parameters: Sequence[str]) -> tuple[list[dict[str, Any]], str | None]:
    """The rows that were filled in, and what is wrong with them.  A row without result and verdict was not tested."""
    found: list[dict[str, Any]] = []
    for number, parameter in enumerate(parameters):
        result, verdict = form.text(f"result-{number}"), form.text(f"passed-{number}")
        if not result and not verdict:
            continue
        if verdict not in {"passed", "failed"}:
            return [], f"Say whether {parameter} has passed or failed."
        if not result:
            return [], f"Enter what the lab found of {parameter}."
        found.append(
            {
                "parameter": parameter,
                "method": form.text(f"method-{number}"),
                "result": result,
                "limit": form.text(f"limit-{number}"),
                "passed": verdict == "passed",
            }
        )
    return found, None if found else "Enter at least one result."


def certificate_problem(file: Upload) -> str | None:
    """What is wrong with an uploaded certificate, before anything is kept: it is a PDF, whole, and not too large."""
    if len(file.content) > MOST_PDF:
        return f"The certificate may have {MOST_PDF // 1024 // 1024} MiB."
    if not file.filename.lower().endswith(".pdf") or not file.content.startswith(b"%PDF-"):
        return "The certificate must be a PDF."
    if b"%%EOF" not in file.content[-2048:]:
        return "The certificate is cut off: its end is missing. Upload it again."
    return None


def _known(batch: dict[str, Any]) -> str | None:
    """The certificate that is there; corrected results keep it."""
    return next(
        (result["certificate_pdf_url"] for result in batch["results"] if result["certificate_pdf_url"]), None
    )


def _why_not(missing: Sequence[str], failed: Sequence[str]) -> str:
    parts = []
    if failed:
        parts.append(f"failed: {', '.join(failed)}")
    if missing:
        parts.append(f"still missing: {', '.join(missing)}")
    return f"It cannot be released; {'; '.join(parts)}." if parts else ""


def _shown(
    form: Form | None, number: int, known: dict[str, Any] | None, usual: tuple[str, str]
) -> dict[str, str]:
    if form is not None:
        return {name: form.text(f"{name}-{number}") for name in ("method", "result", "limit", "passed")}
    if known is not None:
        return {
            "method": known["method"],
            "result": known["result"],
            "limit": known["limit_value"],
            "passed": "passed" if known["passed"] else "failed",
        }
    return {"method": usual[0], "result": "", "limit": usual[1], "passed": ""}
