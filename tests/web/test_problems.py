"""What cannot be done is told where it was asked: on the page that the browser came from, and never on another host's word."""

from __future__ import annotations

import html
import re

import pytest


@pytest.fixture
def browse(ana):
    """Post as a browser does that is on a page of ours."""

    def post(path: str, on: str, **fields: str):
        headers = {"referer": f"{ana.site.address}{on}"}
        return ana.http.post(path, data={"csrf": ana.csrf, **fields}, headers=headers)

    return post


def toast(text: str) -> str:
    found = re.search(r'<div class="toast toast-trouble" role="alert">.*?<span>(.*?)</span>', text, re.DOTALL)
    assert found, text[:3000]
    return html.unescape(found[1])


@pytest.mark.parametrize(
    ("path", "on", "fields", "said"),
    [
        ("/limits/pause/api", "/limits/of/api", {"duration": "soon"}, "Duration must be a duration, got 'soon'. Write it as"),
        ("/retention/keep/dust", "/retention?all=1", {"keep": "1d"}, "Kind must be one of"),
        ("/retention/hold", "/retention", {"reason": " "}, "The reason is missing. It is kept with the hold: name the case."),
        ("/lanes/default/audit", "/lanes/default", {"mode": "loud"}, "Mode must be one of"),
    ],
)  # fmt: skip
def test_wrong_input_leads_back_to_the_page_it_was_typed_on(ana, db, browse, path, on, fields, said):
    db.call("set_limit", name="api", slots=1)
    answer = browse(path, on, **fields)

    assert (answer.status_code, answer.headers["location"]) == (303, on)
    assert said in toast(ana.get(on))
    assert "toast" not in ana.get(on).partition("<main")[0]


def test_what_another_window_has_done_already_leads_to_the_job(ana, db, browse):
    job = db.dead_letter("charge", {"card": 1})
    page = f"/jobs/{job}/requeue"
    assert browse(page, page, payload='{"card": 2}').headers["location"] == f"/jobs/{job}"
    ana.get(f"/jobs/{job}")

    answer = browse(page, page, payload='{"card": 3}')

    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job}")
    assert "ready" in toast(ana.get(f"/jobs/{job}"))
    assert db.value("select payload from onceward.jobs where id = %s", job) == {"card": 2}


@pytest.mark.parametrize(
    "page",
    ["http://elsewhere.test/limits", "http://localhost:1/limits", "javascript:alert(1)", ""],
)  # fmt: skip
def test_a_page_of_another_host_is_not_gone_back_to(ana, page):
    headers = {"referer": page}
    answer = ana.http.post("/limits/pause/api", data={"csrf": ana.csrf, "duration": "soon"}, headers=headers)

    assert answer.status_code == 400
    assert "elsewhere" not in answer.text
    assert ">Back<" not in answer.text


def test_an_address_that_a_browser_takes_for_another_host_leads_to_the_overview(browse):
    assert browse("/limits/pause/api", "//elsewhere.test", duration="soon").headers["location"] == "/"


def test_a_page_that_does_not_exist_leads_back(ana):
    answer = ana.http.get("/jobs/0", headers={"referer": f"{ana.site.address}/jobs?state=ready"})

    assert answer.status_code == 404
    assert '<a class="button button-strong" href="/jobs?state=ready">Back</a>' in answer.text


def test_who_is_not_signed_in_is_told_on_a_page(site):
    visitor = site.visitor()
    answer = visitor.http.post(
        "/sign-in", data={"link": "rubbish"}, headers={"referer": f"{site.address}/sign-in"}
    )

    assert answer.status_code >= 400
