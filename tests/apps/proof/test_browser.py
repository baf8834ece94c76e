"""Portal and proof pages in a real Chromium: on a desk and on a phone, by day and by night."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pypdfium2
import pytest
from playwright.sync_api import expect

from onceward.web import WebSettings
from onceward_apps.proof import sample
from onceward_apps.proof.section import make_section
from tests.apps.proof.stage import Proof
from tests.apps.proof.test_portal import PDF
from tests.deliveries.sinks import MailSink
from tests.web.conftest import Site
from tests.web.looks import shoot, violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = "/functions/v1/proof-page"
SIZES = {"desk": (1280, 800), "phone": (390, 844)}
MOST_BYTES = 60_000


def in_a_thread(work):
    """Playwright keeps a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


class Demo:
    """The samples, worked on and served: for tests that look and change nothing that others look at."""

    def __init__(self, dsn, folder, mail):
        self.proof = Proof(dsn, folder, mail)
        in_a_thread(lambda: asyncio.run(sample.fill(dsn, self.proof.storage)))
        in_a_thread(self.proof.drain)
        section = make_section(self.proof.app, self.proof.settings)
        self.site = Site(self.proof, WebSettings(dsn=dsn, sections=[section]))
        # One of each status.
        self.ids = dict(
            self.proof.all("select status, public_batch_id from raw_ops.batches order by created_at")
        )


@pytest.fixture(scope="module")
def demo(onceward_server, proof_template, tmp_path_factory):
    database = onceward_server.create("demo", template=proof_template.name)
    with MailSink() as mail:
        demo = Demo(database.dsn, tmp_path_factory.mktemp("bucket"), mail)
        yield demo
        demo.site.close()
        demo.proof.close()
    onceward_server.drop(database)


@pytest.fixture
def open_window(chromium):
    """A window; what a page complains about fails the test, and so does a request to somebody else."""
    contexts, complaints = [], []

    def open_(site, *, signed_in=False, **options):
        context = chromium.new_context(base_url=site.address, **options)
        context.set_default_timeout(30_000)
        contexts.append(context)
        context.on(
            "request",
            lambda request: (
                None
                if urlsplit(request.url).netloc == f"localhost:{site.port}"
                or not request.url.startswith("http")
                else complaints.append(request.url)
            ),
        )
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: complaints.append(message.text) if "Security Policy" in message.text else None,
        )
        if signed_in:
            page.goto(site.link())
            page.get_by_role("button", name="Sign in as ana").click()
            page.wait_for_url(f"{site.address}/")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


def look_at(page, paths, theme, size):
    """Accessible, and no wider than the window; a picture of each for those who ask for it."""
    trouble = []
    for number, path in enumerate(paths):
        page.goto(path)
        page.wait_for_load_state("load")
        name = re.sub(r"[0-9a-f-]{36}|PR-\w+|\W+", "-", path.replace(PAGES, "public")).strip("-")
        shoot(page, f"proof-{number:02}-{name}.{theme}.{size[0]}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > size[0]:
            trouble.append(f"{path}: {wide} px wide")
        trouble += [f"{path}: {text}" for text in violations(page, only_colours=theme == "dark")]
    assert not trouble, "\n".join(trouble)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_every_page_is_accessible_and_fits_its_window(open_window, demo, theme, size):
    proof, site = demo.proof, demo.site
    width, height = SIZES[size]
    look = {"color_scheme": theme, "viewport": {"width": width, "height": height}}
    public = ["/", "/batch/sample", "/batch/PR-00000000", *(f"/batch/{each}" for each in demo.ids.values())]
    look_at(open_window(site, **look), [PAGES + path for path in public], theme, (width, height))

    ready, dead = proof.all(
        "select b.id, b.job_id from raw_ops.portal_batches as b where b.batch_code in (select batch_code from raw_ops.batches"
        " where status = 'QA_HOLD') order by (b.job_state = 'dead_letter'), b.created_at limit 1"
    )[0], proof.one("select id from raw_ops.proof_jobs where state = 'dead_letter'")  # fmt: skip
    batch = f"/proof/batches/{ready[0]}"
    portal = ["/proof/batches", batch, f"{batch}/results", f"{batch}/release", f"{batch}/reject", "/proof/batches/new",
              "/proof/batches/bulk", "/proof/dead-letters", f"/proof/dead-letters/{dead}", "/proof/questions",
              "/proof/products"]  # fmt: skip
    look_at(open_window(site, signed_in=True, **look), portal, theme, (width, height))


@pytest.mark.parametrize("kind", ["RELEASED", "QA_HOLD", "REJECTED", "home", "sample", "missing"])
def test_a_page_is_light_and_asks_nobody_else(chromium, demo, kind):
    """What the browser loads, headers and all, the first time."""
    site = demo.site
    path = {"home": "/", "sample": "/batch/sample", "missing": "/batch/PR-00000000"}.get(kind) or (
        f"/batch/{demo.ids[kind]}"
    )
    context = chromium.new_context(base_url=site.address, viewport={"width": 390, "height": 844})
    page = context.new_page()
    loaded, asked = [], []
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    wire.on("Network.loadingFinished", lambda event: loaded.append(event["encodedDataLength"]))
    page.on("request", lambda request: asked.append(request.url))
    # The page, its style sheet and its script; what a script sends afterwards answers in a few bytes.
    page.goto(PAGES + path, wait_until="load")

    assert len(loaded) >= 3
    assert sum(loaded) < MOST_BYTES, sum(loaded)
    assert {urlsplit(url).netloc for url in asked} == {f"localhost:{site.port}"}
    assert context.cookies() == []
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    context.close()


def test_the_search_of_batches_is_within_the_window_of_a_phone(open_window, demo):
    width, height = SIZES["phone"]
    page = open_window(demo.site, signed_in=True, viewport={"width": width, "height": height})
    page.goto("/proof/batches")
    expect(page.locator("#q")).to_be_in_viewport(ratio=1)


def test_a_customer_reads_the_evidence_without_scripts(open_window, demo):
    page = open_window(demo.site, java_script_enabled=False, viewport={"width": 390, "height": 844})
    page.goto(f"{PAGES}/")
    page.get_by_label("Batch code").fill(demo.ids["RELEASED"].lower())
    page.get_by_role("button", name="Find it").click()
    expect(page.get_by_role("heading", name="Tested and released")).to_be_visible()
    expect(page.get_by_role("row", name="Salmonella")).to_be_visible()
    expect(page.get_by_role("link", name="WhatsApp")).to_be_visible()
    expect(page.get_by_role("button", name="Copy the link")).to_be_hidden()
    with page.context.expect_event("response", lambda answer: "certificate" in answer.url) as answer:
        page.get_by_role("link", name="Open the certificate").click()
    assert answer.value.headers["content-type"] == "application/pdf"
    page.goto(f"{PAGES}/?code=PR-000000-000")
    expect(page.get_by_role("status")).to_contain_text("no published results")


def test_a_customer_searches_and_shares(open_window, demo):
    proof = demo.proof
    page = open_window(
        demo.site, viewport={"width": 390, "height": 844}, permissions=["clipboard-read", "clipboard-write"]
    )
    page.goto(f"{PAGES}/")
    page.get_by_label("Batch code").fill("PR-000000-000")
    page.get_by_role("button", name="Find it").click()
    expect(page.get_by_role("status")).to_contain_text("no published results")
    code = proof.one(
        "select batch_code from raw_ops.batches where status = 'RELEASED' order by released_at limit 1"
    )
    page.get_by_label("Batch code").fill(f" {code.lower()} ")
    page.get_by_role("button", name="Find it").click()
    expect(page.get_by_role("heading", name="Tested and released")).to_be_visible()
    # The visit is told in the same way, and its answer may come while the button is pressed.
    with page.expect_response(lambda answer: "share_copy" in (answer.request.post_data or "")):
        page.get_by_role("button", name="Copy the link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()").startswith(
        "https://proof.protocolraw.co.uk/batch/PR-"
    )
    counted = proof.all(
        "select event from raw_ops.proof_page_events where meta = '{}' and created_at > onceward.now() - interval '1 min'"
    )
    assert {("page_view",), ("share_copy",)} <= set(counted)


def test_a_customer_with_a_recalled_pouch_is_warned(open_window, proof, site):
    batch = proof.create()
    proof.record(batch)
    proof.release(batch)
    proof.one("select raw_ops.fn_reject_batch_v1(%s, 'glass')", batch["batch_id"])
    page = open_window(site, viewport={"width": 390, "height": 844})
    page.goto(f"{PAGES}/")
    page.get_by_label("Batch code").fill(batch["batch_code"])
    page.get_by_role("button", name="Find it").click()
    expect(page.get_by_role("heading", name="Recalled")).to_be_visible()
    expect(page.get_by_text("Do not feed it.", exact=True)).to_be_visible()


def test_an_operator_takes_a_batch_from_production_to_the_customer(open_window, proof, site):
    page = open_window(site, signed_in=True)
    page.goto("/proof/batches")
    page.get_by_role("link", name="New batch").first.click()
    page.get_by_label("Production date").fill("2026-03-20")
    page.get_by_label("Kilograms produced").fill("512.5")
    page.get_by_role("button", name="Create the batch").click()
    expect(page.get_by_role("heading", name="PR-260320-001")).to_be_visible()
    # The worker does its part, and the page follows without being reloaded.
    in_a_thread(proof.drain)
    expect(page.locator("[data-live=steps]")).to_contain_text("sent")
    expect(page.get_by_alt_text("The label of batch PR-260320-001")).to_be_visible()
    expect(page.get_by_alt_text("QR code that opens")).to_have_js_property("naturalWidth", 300)

    page.get_by_role("link", name="Lab results", exact=True).click()
    page.get_by_label("Laboratory").fill("Eurofins")
    page.get_by_label("Certificate number").fill("C-7")
    page.get_by_label("Analysed on").fill("2026-03-24")
    page.locator("#f-certificate").set_input_files(
        {"name": "report.pdf", "mimeType": "application/pdf", "buffer": PDF}
    )
    for number, found in enumerate(("Not detected", "120 cfu/g")):
        page.locator(f"#r-{number}").fill(found)
        page.locator(f"#p-{number}").select_option("passed")
    page.get_by_role("button", name="Record the results").click()
    expect(page.get_by_role("status").filter(has_text="It can be released")).to_be_visible()
    page.get_by_role("link", name="Release").click()
    page.get_by_role("button", name="Release the batch").click()
    expect(page.get_by_text("Released. Customers see its results.")).to_be_visible()
    page.get_by_role("link", name="Public page").click()
    expect(page.get_by_role("heading", name="Tested and released")).to_be_visible()
    expect(page.get_by_text("About 2 % of what is allowed.").first).to_be_visible()


def test_an_operator_creates_many_and_decides_a_dead_letter(open_window, proof, site):
    proof.dead_letter()
    page = open_window(site, signed_in=True)
    page.goto("/proof/batches/bulk")
    page.get_by_label("Or paste it here").fill("production_date,kg_produced\n2026-03-20,5\n2026-03-40,5")
    page.get_by_role("button", name="See what comes of it").click()
    expect(page.get_by_text("1 row of 2 is wrong")).to_be_visible()
    page.get_by_label("Or paste it here").fill("production_date,kg_produced\n2026-03-20,5\n2026-03-21,5")
    page.get_by_role("button", name="See what comes of it").click()
    page.get_by_role("button", name="Create 2 batches").click()
    expect(page.get_by_role("status").filter(has_text="2 batches created")).to_be_visible()

    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Dead letters").last.click()
    page.get_by_role("link", name="Decide").click()
    page.get_by_label("How was it settled?").fill("printed by the co-packer")
    page.get_by_role("button", name="Resolve the job").click()
    expect(page.get_by_role("alert")).to_contain_text("missing qr_image_url, label_pdf_url")
    page.get_by_label("The missing assets exist elsewhere").check()
    page.get_by_role("button", name="Resolve the job").click()
    expect(page.get_by_text("No dead letters")).to_be_visible()


def test_the_proof_page_prints_on_paper(open_window, demo, tmp_path):
    page = open_window(demo.site)
    page.goto(f"{PAGES}/batch/{demo.ids['RELEASED']}")
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    with pypdfium2.PdfDocument(tmp_path / "page.pdf") as printed:
        assert len(printed) <= 2
        text = "".join(each.get_textpage().get_text_range() for each in printed)
    for said in ("Tested and released", "Salmonella", "Not detected", demo.ids["RELEASED"]):
        assert said in text
    assert "WhatsApp" not in text
