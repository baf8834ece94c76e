"""The pages in a real browser: a real upload, the real reading, a phone, and what axe says."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from onceward_apps.intake import samples
from onceward_apps.intake.outside import Library
from tests.apps.intake.stage import png

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


@pytest.fixture
def window(chromium, site):
    contexts, complaints = [], []

    def open_(user=None, **options):
        options = {"viewport": {"width": 1280, "height": 800}, "base_url": site.address, **options}
        context = chromium.new_context(**options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: complaints.append(message.text) if "Security Policy" in message.text else None,
        )
        page.goto(site.link(user or site.intake.owner))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{site.address}/records/")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def check(page) -> None:
    found = Axe().run(page, options=RULES).response["violations"]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found] == []


def scan() -> bytes:
    """A lab report, as a PDF."""
    return samples.printed(samples.MAYA, samples.LETTERS[0][2])


@pytest.mark.browser
@pytest.mark.slow
def test_a_report_is_dropped_read_and_a_fact_shows_its_place(intake, window):
    intake.reading = Library.of(intake.settings)
    page = window()
    page.locator("#file").set_input_files(
        {"name": "report.pdf", "mimeType": "application/pdf", "buffer": scan()}
    )
    page.locator("a.file").wait_for()
    assert "Waiting" in page.locator("a.file").inner_text()
    check(page)
    intake.drain()
    page.get_by_text("Done").wait_for()
    page.locator("a.file").click()
    page.locator("[data-fact]", has_text="Total cholesterol").click()
    page.wait_for_url(re.compile("fact="))
    marked = page.locator(".word-chosen")
    words = [marked.nth(i).locator("title").text_content() for i in range(marked.count())]
    assert "6.1" in " ".join(words)
    assert "cholesterol" in " ".join(words).lower()
    check(page)
    # Without scripts the address says the same.
    page.reload()
    assert page.locator(".word-chosen").count() == len(words)
    assert page.locator(".sheet image").count() == 1
    page.emulate_media(color_scheme="dark")
    check(page)


@pytest.mark.browser
def test_every_page_is_accessible_on_a_phone_and_on_a_desk_in_both_themes(intake, window, door):
    door.upload(png("Glucose 5.4 mmol/L"))
    door.upload(png("EVIL"))
    intake.reading.extractor.confidence = 0.6
    intake.drain()
    file = intake.one("select id from intake.shell_files where status = 'completed'")
    refused = intake.one("select id from intake.shell_files where status = 'rejected'")
    for options in (
        {},
        {
            "color_scheme": "dark",
            "viewport": {"width": 390, "height": 844},
            "has_touch": True,
            "is_mobile": True,
        },
    ):
        page = window(**options)
        for path in (
            "/records/",
            f"/records/files/{file}",
            f"/records/files/{refused}",
            "/records/timeline",
            "/records/usage",
        ):
            page.goto(path)
            check(page)
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= page.viewport_size["width"], path
    page.goto("/records/")
    assert page.locator("label[for=camera]").is_visible()
    assert page.locator("#camera").get_attribute("capture") == "environment"


@pytest.mark.browser
def test_a_refused_upload_says_why_on_the_page_beside_its_name(window):
    page = window(viewport={"width": 390, "height": 844})
    page.locator("#file").set_input_files(
        {"name": "notes.png", "mimeType": "image/png", "buffer": b"this is no picture at all, sorry"}
    )
    said = page.get_by_text("Only PDF, JPEG, PNG, TIFF and HEIC files can be read.")
    said.wait_for()
    name = page.locator(".send-name")
    # All of it, above what is said of it.
    assert name.evaluate("element => element.clientWidth > 0 && element.scrollWidth <= element.clientWidth")
    assert name.bounding_box()["y"] < said.bounding_box()["y"]


@pytest.mark.browser
def test_the_same_file_chosen_twice_is_one_file(intake, window):
    page = window()
    for said in ("Uploaded", "Already here"):
        page.locator("#file").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": png()})
        page.locator("[data-sending]").get_by_text(said).wait_for()
    assert intake.one("select count(*) from intake.shell_files") == 1
    page.locator("#file").set_input_files(
        [{"name": f"{text}.png", "mimeType": "image/png", "buffer": png(text)} for text in ("b", "c")]
    )
    page.locator("a.file").nth(2).wait_for()


@pytest.mark.browser
def test_without_scripts_a_file_is_chosen_and_sent_and_its_page_comes_again(intake, window):
    page = window(java_script_enabled=False)
    chooser = page.get_by_label("Choose files")
    assert chooser.evaluate("input => getComputedStyle(input).opacity") == "1"
    assert not page.locator("label[for=file]").is_visible()
    chooser.set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": png()})
    page.get_by_role("button", name="Upload").click()
    page.get_by_text("shows the result by itself").wait_for()
    intake.drain()
    page.get_by_role("heading", name="Measurements").wait_for()
