"""The navigation: groups by application, the right entry marked, and readable on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from starlette.responses import Response
from starlette.routing import Route

from onceward.web import layout
from onceward.web.navigation import navigation
from onceward.web.sections import Link, Section


async def page(request) -> Response:
    return await layout.page(request, "pages/doctor.html", findings=[], failed=0, warned=0)


def applications(count: int) -> list[Section]:
    return [
        Section(
            f"app{n}",
            f"Application {n}",
            pages=[Route("/", page), Route("/things", page), Route("/things/{id}", page)],
            links=[Link(f"/app{n}/", "Start"), Link(f"/app{n}/things", "Things")],
        )
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/", "Overview"), ("/jobs", "Jobs"), ("/jobs/1", "Jobs"), ("/channels", "Monitors"), ("/retention", "Audit"),
        ("/new-lane", "Lanes"), ("/app1/", "Start"), ("/app1/things", "Things"), ("/app1/things/7", "Things"),
        ("/app1/other", "Start"), ("/nowhere", None),
    ],
)  # fmt: skip
def test_a_page_is_marked_where_it_belongs(path, title):
    current = navigation(path, applications(3)).current
    assert (current.title if current else None) == title


def test_of_many_applications_only_the_one_that_is_looked_at_is_open():
    def open_ones(path: str, count: int) -> list[str]:
        return [group.name for group in navigation(path, applications(count)).groups if group.is_open]

    assert open_ones("/", 2) == ["daily", "engine", "section-app0", "section-app1"]
    assert open_ones("/", 5) == ["daily", "engine"]
    assert open_ones("/app3/things", 5) == ["daily", "engine", "section-app3"]


@pytest.mark.browser
@pytest.mark.slow
def test_five_applications_stay_readable(serve, chromium):
    site = serve(sections=applications(5))
    for size in ((1280, 800), (390, 844)):
        context = chromium.new_context(base_url=site.address, viewport={"width": size[0], "height": size[1]})
        window = context.new_page()
        window.goto(site.link(f"ana{size[0]}"))
        window.get_by_role("button", name="Sign in").click()
        things = window.get_by_role("navigation", name="Pages").get_by_role("link", name="Things")
        if size[0] < 760:
            # Behind one button, which says where one is.
            expect(window.get_by_role("navigation", name="Pages")).to_be_hidden()
            window.locator("label.nav-button", has_text="Overview").click()
        expect(things).to_have_count(0)
        window.get_by_text("Application 3").click()
        things.click()
        window.wait_for_url("**/app3/things")
        if size[0] >= 760:
            expect(things).to_have_attribute("aria-current", "page")
            nav = window.locator(".nav").bounding_box()
            assert nav["y"] + nav["height"] <= size[1]
        else:
            expect(window.locator("label.nav-button")).to_contain_text("Things")
        context.close()
