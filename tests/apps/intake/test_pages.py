"""The pages: who gets to see what, and what works without scripts."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from uuid import uuid4

import pytest

from onceward_apps.intake import samples, store, tokens
from onceward_apps.intake.pages.records import COOKIE, bytes_text
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
        assert "Already here" not in http.get(answer.headers["location"]).text
        again = http.post(
            "/records/upload",
            data={"profile_id": str(intake.profile)},
            files={"file": ("b.png", png(), "image/png")},
        )
        assert again.headers["location"] == f"{answer.headers['location']}?already=yes"
        assert "Already here" in http.get(again.headers["location"]).text
        assert intake.one("select count(*) from intake.shell_files") == 1
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
            assert "Health records" in answer.text
            asked = http.post("/records/upload", headers={**headers, "accept": "application/json"})
            assert (asked.status_code, asked.json()["success"]) == (403, False)
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


def test_a_document_with_another_name_says_so_wherever_it_is_shown(intake, site, door):
    intake.reading.bears = "Leo Thompson"
    door.upload(png("Glucose 5.4 mmol/L"))
    intake.drain()
    file, review = intake.all("select id, needs_review from intake.shell_files")[0]
    assert review
    assert intake.one("select reasons from intake.timeline_entries") == ["name_differs"]
    with site.visitor(intake.owner) as http:
        assert "It bears another name than Maya Thompson" in http.get(f"/records/files/{file}").text
        for path in ("/records/", "/records/timeline"):
            assert "Name differs" in http.get(path, params={"profile": str(intake.profile)}).text
    # The name itself is in the profile's own rows, and in no message.
    assert not intake.all("select * from onceward.audit_log as a where a::text ilike '%%Leo%%'")


def test_an_operator_of_one_profile_sees_no_file_of_another(intake, site, door):
    door.upload(png("Glucose 5.4 mmol/L"))
    door.upload(png("Glucose 5.5 mmol/L"), user=intake.stranger, profile=intake.other)
    mine, theirs = (
        str(intake.one("select id from intake.shell_files where patient_id = %s", profile))
        for profile in (intake.profile, intake.other)
    )
    with site.operator(tenant=str(intake.profile)) as http:
        page = http.get("/intake/").text
        assert mine in page
        assert theirs not in page
    with site.operator() as http:
        assert {mine in (page := http.get("/intake/").text), theirs in page} == {True}


def test_a_link_is_over_when_its_time_is_and_the_token_leaves_the_address(intake, site):
    with site.visitor() as http:
        # Nor is a token for the functions a link.
        for wrong in (intake.link_token(lasts=timedelta(seconds=-1)), intake.token(), "", "x"):
            assert http.get("/records/enter", params={"token": wrong}).status_code == 401
            assert http.post("/records/enter", data={"token": wrong}).status_code == 401
        answer = http.post("/records/enter", data={"token": intake.link_token()})
        assert answer.headers["location"] == "/records/"
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{COOKIE}=")
        assert {"HttpOnly", "Path=/records", "SameSite=lax"} <= set(cookie.split("; "))
        page = http.get("/records/")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["cache-control"] == "no-store"
        left = http.post("/records/leave")
        assert (left.status_code, left.headers["location"]) == (303, "/records/")
        assert http.get("/records/").status_code == 401


def test_a_link_is_opened_any_number_of_times_and_signs_in_once_by_its_button(intake, site):
    token = intake.link_token()
    # Programs that look through mails open it first.
    for _ in range(2):
        with site.visitor() as http:
            page = http.get("/records/enter", params={"token": token})
            assert page.status_code == 200
            assert "set-cookie" not in page.headers
            assert http.get("/records/").status_code == 401
    hidden = re.search(r'name="token" value="([^"]+)"><button[^>]*>Sign in<', page.text)
    with site.visitor() as http:
        stolen = http.post(
            "/records/enter", data={"token": hidden[1]}, headers={"origin": "http://evil.example"}
        )
        assert stolen.status_code == 403
        assert http.post("/records/enter", data={"token": hidden[1]}).status_code == 303
        assert http.get("/records/").status_code == 200
    with site.visitor() as http:
        again = http.post("/records/enter", data={"token": token})
        assert again.status_code == 401
        assert "was used, or its time is over" in again.text
        assert "set-cookie" not in again.headers
        assert "Ask for a new one" in http.get("/records/enter", params={"token": token}).text
    # And it opens no function.
    with pytest.raises(tokens.Unauthorized):
        tokens.verify(intake.settings, intake.link_token())


def test_links_that_are_over_are_forgotten(intake):
    use = "select intake.use_link(gen_random_uuid(), %s, onceward.now() + %s::interval)"
    for until in ("-2 days", "1 hour"):
        assert intake.one(use, intake.owner, until)
    assert intake.one(use, intake.owner, "1 hour")
    assert intake.one("select count(*) from intake.used_links") == 2


def test_a_name_stands_once_and_a_refused_file_is_no_document(intake, site, door):
    door.upload(png(), filename="report-7.png")
    with site.visitor(intake.owner) as http:
        query = {"profile": str(intake.profile)}
        assert http.get("/records/", params=query).text.count("report-7.png") == 1
        assert "<b>1 of 50</b>" in http.get("/records/usage", params=query).text
        file = intake.one("select id from intake.shell_files")
        intake.conn.execute("select intake.refuse_file(%s, 'virus', 'a virus was found')", [file])
        assert "<b>0 of 50</b>" in http.get("/records/usage", params=query).text
    assert intake.one("select files_uploaded from intake.user_usage_tracking") == 1


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


@pytest.mark.parametrize(
    ("role", "is_bound", "may"),
    [("operator", False, True), ("admin", False, True), ("viewer", False, False), ("operator", True, False)],
)
def test_names_of_people_are_for_those_who_may_open_their_pages(intake, site, role, is_bound, may):
    with site.visitor() as http:
        page = http.get("/intake/")
        assert page.status_code == 200
        assert "Maya Thompson" not in page.text
        assert "Try the pages" not in page.text
    with site.operator(role, str(intake.profile) if is_bound else None) as http:
        page = http.get("/intake/")
        assert ("Maya Thompson" in page.text, "Open as" in page.text) == (may, may)
        form = re.search(r'name="csrf" value="(\w+)"', http.get("/_components").text)
        assert form
        opened = http.post(f"/intake/people/{intake.profile}/open", data={"csrf": form[1]})
        assert opened.status_code == (303 if may else 403)
        if not may:
            return
        assert opened.headers["location"] == "/records/"
        assert "Maya Thompson" in http.get("/records/").text
        # The person sees that it was no machine, and the audit log who it was.
        touched = http.get("/records/usage").text
        assert re.search(r"Opened by an operator</span>\s*<span[^>]*>an operator<", touched)
    made = intake.row("select new_values from intake.audit_log where reason = 'Opened by an operator'")
    assert made["new_values"] == {"operator": "ana"}


def test_a_meter_of_a_provider_says_what_its_bar_shows(intake, site):
    with site.visitor() as http:
        assert 'aria-label="Requests: 400 of 400 left"' in http.get("/intake/").text
        for _ in range(4):
            assert intake.one("select intake.acquire_api_capacity('anthropic', 'claude', 0)")
        bar = re.search(
            r'aria-label="Requests: 396 of 400 left".*?meter-level" width="([\d.]+)"',
            http.get("/intake/").text,
        )
        assert bar
        assert bar[1] == "99.0"


def test_what_is_not_there_is_told_by_the_pages_of_the_person(intake, site, door):
    file = door.upload(png()).json()["shell_file_id"]
    with site.visitor(intake.stranger) as http:
        for path in (
            f"/records/files/{file}",
            f"/records/?profile={intake.profile}",
            f"/records/files/{file}/pages/1.png",
            "/records/nothing",
            "/records/leave",
        ):
            answer = http.get(path)
            assert answer.status_code == 404, path
            assert "There is nothing here" in answer.text
            assert "Health records" in answer.text
            assert "Onceward" not in answer.text
        asked = http.get("/records", params={"profile": "x"})
        assert (asked.status_code, asked.headers["location"]) == (307, "/records/?profile=x")


def test_without_scripts_a_waiting_page_comes_again_and_one_file_is_chosen(intake, site, door):
    file = door.upload(png()).json()["shell_file_id"]
    again = '<noscript><meta http-equiv="refresh" content="5"></noscript>'
    with site.visitor(intake.owner) as http:
        assert again in http.get(f"/records/files/{file}").text
        home = http.get("/records/").text
        assert again not in home
        assert " multiple" not in home
        intake.drain()
        assert again not in http.get(f"/records/files/{file}").text


@pytest.mark.parametrize(
    ("count", "text"), [(512, "512 B"), (17101, "16.7 KiB"), (1024**2, "1 MiB"), (5 * 1024**4, "5.0 TiB")]
)
def test_a_size_has_a_space_before_its_unit(count, text):
    assert bytes_text(count) == text


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
