"""The pages of a person: upload, what became of it, the result with every word in its place, time line, usage.

They sign in by a link that holds once; the session is a token in a cookie, sent to these pages only.  Everything is read as that
user, so that row-level security decides what there is.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from onceward.errors import InvalidArgument
from onceward.web import auth, layout, words
from onceward.web.forms import read_form
from onceward_apps.intake import domain, store, tokens
from onceward_apps.intake.routes import Functions
from onceward_apps.intake.settings import Settings
from onceward_apps.intake.tokens import Unauthorized

COOKIE = "intake-records"
ROOT = "/records"
_FILE = (
    "select f.id, f.patient_id, f.filename, f.mime_type, f.file_size_bytes, f.status, f.page_count, f.document_kind, f.needs_review, "
    "f.refusal, f.created_at, f.processed_at, p.display_name, t.title, t.summary, t.provider, t.entry_date, t.is_dated, coalesce(t.reasons, '{}') as reasons, "
    "(select count(*) from intake.clinical_facts as c where c.shell_file_id = f.id) as facts "
    "from intake.shell_files as f join intake.user_profiles as p on p.id = f.patient_id "
    "left join intake.timeline_entries as t on t.shell_file_id = f.id "
)
Handler = Callable[[Request, "Visit"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Visit:
    """Who looks, at which of the profiles that they may see."""

    user: UUID
    profiles: list[dict[str, Any]]
    profile: dict[str, Any]
    now: datetime


class Records:
    def __init__(self, settings: Settings, database: store.Database, functions: Functions) -> None:
        self._settings = settings
        self._database = database
        self._functions = functions

    @property
    def routes(self) -> list[Route]:
        seen = self._visited
        return [
            Route(ROOT, self.begin),
            Route(f"{ROOT}/enter", self.ask),
            Route(f"{ROOT}/enter", _told(self.enter), methods=["POST"]),
            Route(f"{ROOT}/leave", _told(self.leave), methods=["POST"]),
            Route(f"{ROOT}/upload", _told(self.upload), methods=["POST"]),
            Route(f"{ROOT}/", seen(self.home)),
            Route(f"{ROOT}/files", seen(self.files)),
            Route(f"{ROOT}/files/{{file:uuid}}", seen(self.result)),
            Route(f"{ROOT}/files/{{file:uuid}}/pages/{{page:int}}.png", seen(self.picture)),
            Route(f"{ROOT}/timeline", seen(self.timeline)),
            Route(f"{ROOT}/usage", seen(self.usage)),
            # Whatever else is asked for below the root is answered here, and not by the pages of operators.
            Route(
                f"{ROOT}/{{rest:path}}",
                _told(self.nothing),
                methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            ),
        ]

    # ------------------------------------------------------------ coming and going

    async def begin(self, request: Request) -> Response:
        return RedirectResponse(request.url.replace(path=f"{ROOT}/", scheme="", netloc=""), 307)

    async def nothing(self, _request: Request) -> Response:
        raise HTTPException(404)

    async def ask(self, request: Request) -> Response:
        """The link from the mail.  Opening it changes nothing: programs that look through mails open links, too."""
        token = request.query_params.get("token", "")
        try:
            link = tokens.verify_link(self._settings, token)
        except Unauthorized:
            return self._closed(request, was_link=True)
        async with self._database.serving() as connection:
            used = await store.call(connection, "select true from intake.used_links where id = %s", link.id)
        if used:
            return self._closed(request, was_link=True)
        return layout.render(request, "intake/enter.html", None, asset=asset, token=token)

    async def enter(self, request: Request) -> Response:
        """The button of that page.  A link holds for one session, and leaves the address."""
        auth.check_origin(request)
        try:
            link = tokens.verify_link(self._settings, (await read_form(request)).text("token"))
        except (Unauthorized, InvalidArgument):
            return self._closed(request, was_link=True)
        async with self._database.serving() as connection:
            first = await store.call(
                connection, "select intake.use_link(%s, %s, %s)", link.id, link.user, link.until
            )
        if not first:
            return self._closed(request, was_link=True)
        return signed_in(request, self._settings, link.user)

    async def leave(self, request: Request) -> Response:
        auth.check_origin(request)
        response = RedirectResponse(f"{ROOT}/", 303)
        response.delete_cookie(COOKIE, path=ROOT)
        return response

    def _user(self, request: Request) -> UUID:
        caller = tokens.verify(self._settings, request.cookies.get(COOKIE, ""))
        if caller.user is None:
            raise Unauthorized
        return caller.user

    @staticmethod
    def _closed(request: Request, *, was_link: bool = False) -> Response:
        return layout.render(request, "intake/closed.html", None, 401, asset=asset, was_link=was_link)

    def _visited(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def visit(request: Request) -> Response:
            try:
                user = self._user(request)
            except Unauthorized:
                return self._closed(request)
            async with self._database.reading(user) as connection:
                profiles = await store.rows(
                    connection,
                    "select p.id, p.display_name, intake.has_profile_access(intake.uid(), p.id, 'write') as may_add "
                    "from intake.user_profiles as p order by p.created_at, p.id",
                )
                now = await store.call(connection, "select onceward.now()")
            wanted = request.query_params.get("profile", "")
            chosen = next((row for row in profiles if str(row["id"]) == wanted), None)
            if not profiles or (wanted and chosen is None):
                raise HTTPException(404)
            return await handler(request, Visit(user, profiles, chosen or profiles[0], now))

        return _told(visit)

    def _page(self, request: Request, template: str, visit: Visit, **context: Any) -> Response:
        return layout.render(
            request, f"intake/{template}", None,
            visit=visit, asset=asset, documents=domain.DOCUMENTS, progress=domain.PROGRESS, **context,
        )  # fmt: skip

    # ------------------------------------------------------------ upload and status

    async def home(self, request: Request, visit: Visit) -> Response:
        return self._page(
            request, "home.html", visit, files=await self._files(visit), most=self._settings.most_bytes
        )

    async def files(self, request: Request, visit: Visit) -> Response:
        """The list alone, which the page fetches again while something is on its way."""
        return self._page(request, "files.html", visit, files=await self._files(visit))

    async def _files(self, visit: Visit) -> list[dict[str, Any]]:
        async with self._database.reading(visit.user) as connection:
            return await store.rows(
                connection,
                _FILE + "where f.patient_id = %s order by f.created_at desc limit 50",
                visit.profile["id"],
            )

    async def upload(self, request: Request) -> Response:
        """From our own page, by its cookie; otherwise as shell-file-processor-v3."""
        auth.check_origin(request)
        by_script = _is_script(request)
        try:
            user = self._user(request)
        except Unauthorized:
            if by_script:
                return JSONResponse({"success": False, "error": {"message": "Sign in again."}}, 401)
            return self._closed(request)
        answer = await self._functions.answer(
            request, lambda correlation: self._functions.upload(request, user, correlation)
        )
        if by_script:
            return answer
        return await self._after_form(request, answer)

    @staticmethod
    async def _after_form(request: Request, answer: Response) -> Response:
        said = json.loads(bytes(answer.body))
        if said["success"]:
            already = "?already=yes" if said["duplicate"] else ""
            return RedirectResponse(f"{ROOT}/files/{said['shell_file_id']}{already}", 303)
        return layout.render(
            request,
            "intake/refused.html",
            None,
            answer.status_code,
            asset=asset,
            message=said["error"]["message"],
        )

    # ------------------------------------------------------------ the result

    async def result(self, request: Request, visit: Visit) -> Response:
        file_id = request.path_params["file"]
        async with self._database.reading(visit.user) as connection:
            found = await store.rows(connection, _FILE + "where f.id = %s", file_id)
            if not found:
                raise HTTPException(404)
            pages = await store.rows(
                connection,
                "select page_number as number, width, height, confidence from intake.file_pages "
                "where shell_file_id = %s order by page_number",
                file_id,
            )
            found_words = await store.rows(
                connection,
                "select page_number as page, word_number as number, content, x, y, width, height, confidence "
                "from intake.ocr_words where shell_file_id = %s order by page_number, word_number",
                file_id,
            )
            facts = await store.rows(
                connection,
                "select number, kind, name, value, unit, reference_low, reference_high, dose, fact_date, iso_date, page_number as page, "
                "first_word, last_word, confidence, needs_review, code, code_system, interpretation, doubts "
                "from intake.clinical_facts where shell_file_id = %s order by number",
                file_id,
            )
        await self._seen(visit, found[0])
        chosen = request.query_params.get("fact", "")
        by_page = {page: list(some) for page, some in groupby(found_words, key=lambda word: word["page"])}
        return self._page(
            request, "result.html", visit, file=found[0], pages=pages, words=by_page, facts=facts,
            is_repetition="already" in request.query_params, kinds=domain.FACTS, reasons=domain.REASONS, chosen=next((fact for fact in facts if str(fact["number"]) == chosen), None),
        )  # fmt: skip

    async def _seen(self, visit: Visit, file: dict[str, Any]) -> None:
        """Every touch is in the audit log, looking as well."""
        async with self._database.serving(visit.user) as connection:
            await store.call(
                connection,
                "select intake.log_audit_event('shell_files', %s, 'SELECT', null, %s, 'Result looked at', 'clinical_data', %s)",
                str(file["id"]), Jsonb({"status": file["status"]}), file["patient_id"],
            )  # fmt: skip

    async def picture(self, request: Request, visit: Visit) -> Response:
        async with self._database.reading(visit.user) as connection:
            path = await store.call(
                connection,
                "select image_path from intake.file_pages where shell_file_id = %s and page_number = %s",
                request.path_params["file"], request.path_params["page"],
            )  # fmt: skip
        if path is None:
            raise HTTPException(404)
        try:
            content = await self._settings.storage.get(path)
        except FileNotFoundError:
            raise HTTPException(404) from None
        return Response(content, media_type="image/png", headers={"cache-control": "private, max-age=300"})

    # ------------------------------------------------------------ time line, usage

    async def timeline(self, request: Request, visit: Visit) -> Response:
        async with self._database.reading(visit.user) as connection:
            entries = await store.rows(
                connection,
                "select t.*, f.filename, f.page_count from intake.timeline_entries as t join intake.shell_files as f on f.id = t.shell_file_id "
                "where t.patient_id = %s order by t.entry_date desc, t.created_at desc limit 200",
                visit.profile["id"],
            )
        years = [
            (year, list(some)) for year, some in groupby(entries, key=lambda entry: entry["entry_date"].year)
        ]
        return self._page(request, "timeline.html", visit, years=years, count=len(entries))

    async def usage(self, request: Request, visit: Visit) -> Response:
        async with self._database.serving(visit.user) as connection:
            account = await store.call(
                connection, "select intake.get_user_usage_status(%s)", visit.profile["id"]
            )
            touched = await store.rows(
                connection,
                "select reason, operation, changed_by, changed_at, changed_by = %s as is_self, "
                # Nothing else is done with a profile as a whole.
                "table_name = 'user_profiles' and operation = 'EXECUTE' as is_operator from intake.get_profile_audit(%s, 200) "
                "where compliance_category <> 'system' limit 20",
                str(visit.user), visit.profile["id"],
            )  # fmt: skip
        return self._page(
            request,
            "usage.html",
            visit,
            account=account,
            touched=touched,
            month=f"{visit.now:%B %Y}",
            bytes_text=bytes_text,
        )


def signed_in(request: Request, settings: Settings, user: UUID) -> Response:
    """To the pages of a person, with their session."""
    response = RedirectResponse(f"{ROOT}/", 303)
    response.set_cookie(
        COOKIE,
        tokens.issue(settings, user, lasts=settings.session),
        max_age=int(settings.session.total_seconds()),
        path=ROOT,
        secure=auth.is_https(request),
        httponly=True,
        samesite="lax",
    )
    return response


# What a person reads instead of the page that they asked for.
_TROUBLE = {
    403: (
        "This is not allowed",
        "The request came from another page than ours. Go back, and try it from there.",
    ),
    404: ("There is nothing here", "The page does not exist, or it belongs to somebody else."),
}


def _told(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """What a handler refuses is told in the words of these pages."""

    async def tell(request: Request) -> Response:
        try:
            return await handler(request)
        except HTTPException as error:
            if error.status_code not in _TROUBLE:
                raise
            title, message = _TROUBLE[error.status_code]
            if _is_script(request):
                return JSONResponse({"success": False, "error": {"message": message}}, error.status_code)
            return layout.render(
                request,
                "intake/trouble.html",
                None,
                error.status_code,
                asset=asset,
                title=title,
                message=message,
            )

    return tell


def _is_script(request: Request) -> bool:
    return "application/json" in request.headers.get("accept", "")


def bytes_text(count: int) -> str:
    """`512 B`, `1.5 MiB`."""
    text = words.size(count)
    digits = text.rstrip("BKMGTi")
    return f"{digits} {text[len(digits) :]}"


_STATIC = Path(__file__).parent.parent / "static"


def asset(name: str) -> str:
    """The address of a file of this section, which changes when the file does."""
    content = (_STATIC / name).read_bytes()
    return f"/static/intake/{name}?v={sha256(content).hexdigest()[:12]}"
