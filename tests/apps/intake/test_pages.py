"""The pages: who gets to see what, and what works without scripts."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

from onceward_apps.intake import samples, store
from onceward_apps.intake.pages.records import COOKIE
from tests.apps.intake.stage import png


def test_a_form_without_scripts_uploads_too(intake, site):
    with site.visitor(intake.owner) as http:
        answer = http.post(
            "/records/upload",
            data={"profile_id": str(intake.profile)},
            files={"file": ("a.png", png(), "image/png")},
        )
        assert answer.status_code == 303
        assert (
            answer.headers["location"] == f"/records/files/{intake.one('select id from intake.shell_files')}"
        )
        refused = http.post(
            "/records/upload",
            data={"profile_id": str(intake.profile)},
            files={"file": ("a.pdf", png(), "application/pdf")},
        )
        assert refused.status_code == 415
        assert "not what its name says" in refused.text


def test_another_site_cannot_post_here(intake, site):
    with site.visitor(intake.owner) as http:
        for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}):
            query = {"profile_id": str(intake.profile), "filename": "a.png"}
            answer = http.post("/records/upload", params=query, content=png(), headers=headers)
            assert answer.status_code == 403
    assert intake.one("select count(*) from intake.shell_files") == 0


def test_pages_and_objects_by_who_asks(intake, site, door):
    door.upload(png("Glucose 5.4 mmol/L"))
    intake.drain()
    file = intake.one("select id from intake.shell_files")
    paths = [f"/records/files/{file}", f"/records/files/{file}/pages/1.png"]
    expected = {intake.owner: 200, intake.friend: 200, intake.helper: 200, intake.stranger: 404}
    for user, status in expected.items():
        with site.visitor(user) as http:
            for path in paths:
                assert http.get(path).status_code == status, path
            for path in ("/records/", "/records/timeline", "/records/usage", "/records/files"):
                assert http.get(path, params={"profile": str(intake.profile)}).status_code == status, path
                assert http.get(path, params={"profile": str(uuid4())}).status_code == 404
    with site.visitor() as http:
        for path in [*paths, "/records/", "/records/timeline", "/records/usage", "/records/files"]:
            assert http.get(path).status_code == 401, path
        assert http.post("/records/upload", content=png()).status_code == 401
        # The stored object has no address of its own.
        assert http.get(f"/records/objects/{intake.profile}/{file}.png").status_code in {303, 404}


def test_a_link_is_over_when_its_time_is_and_the_token_leaves_the_address(intake, site):
    with site.visitor() as http:
        over = intake.token(lasts=timedelta(seconds=-1))
        assert http.get("/records/enter", params={"token": over}).status_code == 401
        answer = http.get(site.link(intake.owner))
        assert answer.headers["location"] == "/records/"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert {"HttpOnly", "Path=/records", "SameSite=lax"} <= set(cookie.split("; "))
        page = http.get("/records/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        http.post("/records/leave")
        assert http.get("/records/").status_code == 401


def test_looking_at_a_result_is_in_the_audit_log_with_who_it_was(intake, site, door):
    said = door.upload(png()).json()
    with site.visitor(intake.friend) as http:
        http.get(f"/records/files/{said['shell_file_id']}")
    seen = intake.row_of("select * from intake.audit_log where reason = 'Result looked at'")
    assert (seen.record_id, seen.changed_by, seen.operation) == (
        said["shell_file_id"],
        str(intake.friend),
        "SELECT",
    )


def test_operators_see_queues_and_limits_and_no_name_of_a_file(intake, site, door):
    door.upload(png(), filename="HIV-result.png")
    with site.visitor() as http:
        page = http.get("/intake/")
        assert page.status_code == 200
        assert "openai" in page.text
        assert "HIV-result" not in page.text
        assert http.post(f"/intake/people/{intake.profile}/open").status_code == 403


def test_samples_are_there_once(intake, site):
    async def fill() -> None:
        database = store.Database(intake.dsn)
        await site.web.database.open()
        for _ in range(2):
            await samples.filler(intake.settings, database)(site.web)
        await database.close()

    asyncio.run(fill())
    assert intake.one("select count(*) from intake.shell_files") == len(samples.LETTERS)
    assert (
        intake.one(
            "select count(*) from intake.user_profiles where account_owner_id = %s", samples.MAYA.owner
        )
        == 2
    )
