"""The page of operators: queues, limits, targets, and what became of files; nobody's documents."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.web import layout
from onceward.web.context import identity_of, web_of
from onceward_apps.intake import domain, store
from onceward_apps.intake.pages.records import asset, bytes_text, signed_in
from onceward_apps.intake.settings import Settings


class Console:
    def __init__(self, settings: Settings, database: store.Database) -> None:
        self._settings = settings
        self._database = database

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/", self.show),
            Route("/people/{profile:uuid}/open", self.open_as, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        async with web_of(request).database.acting(identity_of(request)) as db:
            shown = await layout.frame(db)
        # Names of people are for those who may open their pages; an account may have more profiles than one tenant.
        may_open = identity_of(request).acts_for_all
        tenant = identity_of(request).tenant
        async with self._database.serving() as connection:
            context: dict[str, Any] = {
                "limits": await store.rows(
                    connection, "select * from intake.api_rate_limits order by provider_name, api_endpoint"
                ),
                "lanes": await store.rows(
                    connection,
                    "select name, ready, running, scheduled, blocked, dead_letter, oldest_ready_at from onceward.lanes "
                    "where name in ('fast_queue', 'ai_queue', 'standard_queue') order by array_position(array['fast_queue', 'ai_queue', 'standard_queue'], name)",
                ),
                "targets": await store.rows(connection, "select * from intake.service_levels()"),
                "files": await store.rows(
                    connection,
                    "select id, status, document_kind, mime_type, file_size_bytes, page_count, needs_review, job_id, ai_job_id, created_at, "
                    "processed_at - created_at as took from intake.shell_files "
                    # Who acts for one profile sees no other's, not even an id.
                    "where %s::text is null or patient_id::text = %s order by created_at desc limit 15",
                    tenant,
                    tenant,
                ),
                "people": await _people(connection) if may_open else [],
                "flags": await store.rows(
                    connection,
                    "select config_key, config_value from intake.system_configuration order by config_key",
                ),
            }
        return layout.render(
            request, "intake/console.html", shown,
            asset_of=asset, bytes_text=bytes_text, may_open=may_open, progress=domain.PROGRESS, documents=domain.DOCUMENTS, **context,
        )  # fmt: skip

    async def open_as(self, request: Request) -> Response:
        """The pages of the owner of a profile, as they see them; that they were opened is in the audit log."""
        operator = identity_of(request)
        if not operator.acts_for_all:
            raise HTTPException(403, "an operator of one tenant cannot open the pages of an account")
        profile: UUID = request.path_params["profile"]
        async with self._database.serving() as connection:
            owner = await store.call(
                connection, "select account_owner_id from intake.user_profiles where id = %s", profile
            )
            if owner is None:
                raise HTTPException(404)
            await store.call(
                connection,
                "select intake.log_audit_event('user_profiles', %s, 'EXECUTE', null, %s, 'Opened by an operator', 'security', %s)",
                str(profile), Jsonb({"operator": operator.name}), profile,
            )  # fmt: skip
        return signed_in(request, self._settings, owner)


async def _people(connection: store.Connection) -> list[store.Row]:
    return await store.rows(
        connection,
        "select p.id, p.display_name, p.plan_type, count(f.id) as files from intake.user_profiles as p "
        "left join intake.shell_files as f on f.patient_id = p.id group by p.id order by p.created_at, p.id limit 20",
    )
