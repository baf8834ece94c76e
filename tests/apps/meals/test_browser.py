"""What people do, in a real Chromium: a customer on a phone, the counter with a camera, staff at a desk."""

from __future__ import annotations

import io
import re

import pytest
from PIL import Image
from playwright.sync_api import expect

from onceward_apps.kit import qr
from onceward_apps.meals import sample
from onceward_apps.meals.domain import parse_handle
from tests.apps.meals.place import KIOSK, correction_token, deep_token, picture_of, scan, text_of
from tests.web.conftest import browsers
from tests.web.looks import shoot, violations

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PHONE = {"width": 390, "height": 844}
SIZES = {"phone": PHONE, "desk": {"width": 1280, "height": 800}}
# Every sound that is made, by its pitch.
LISTEN = """
  window.heard = [];
  const make = AudioContext.prototype.createOscillator;
  AudioContext.prototype.createOscillator = function () {
    const tone = make.call(this);
    const start = tone.start;
    tone.start = (at) => { heard.push(tone.frequency.value); return start.call(tone, at); };
    return tone;
  };
"""


@pytest.fixture
def browse(site):
    """Open a window without any account, with a camera if there is a film for it; what a page complains about fails the test."""
    complaints = []
    with browsers() as start:
        opened = []

        def open_(film=None, **options):
            camera = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream",
                      f"--use-file-for-fake-video-capture={film}"]  # fmt: skip
            browser = start(*camera if film is not None else ())
            opened.append(browser)
            context = browser.new_context(**{"viewport": PHONE, "base_url": site.address, **options})
            context.set_default_timeout(30_000)
            page = context.new_page()
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on(
                "console",
                lambda message: (
                    complaints.append(message.text) if "Content Security Policy" in message.text else None
                ),
            )
            page.on(
                "request",
                lambda request: (
                    complaints.append(f"asked elsewhere: {request.url}")
                    if not request.url.startswith((site.address, "data:", "blob:"))
                    else None
                ),
            )
            return page

        yield open_
        for browser in opened:
            browser.close()
    assert complaints == []


@pytest.fixture
def code(place):
    place.customer("June Park", email="june@example.com")
    place.cron("issue-qr")
    place.work_in_a_thread()
    return scan(picture_of(place.mails()[0]))


def film(folder, *codes: str):
    """A film for the camera: each code for a second, on a table that is not quite white."""
    frames = b""
    for text in codes:
        frame = Image.new("RGB", (640, 480), (214, 206, 190))
        if text:
            frame.paste(Image.open(io.BytesIO(qr.png(text, pixels=420))).convert("RGB"), (110, 30))
        out = io.BytesIO()
        frame.save(out, "JPEG", quality=90)
        frames += out.getvalue() * 30
    path = folder / "film.mjpeg"
    path.write_bytes(frames)
    return path


def answer_of(page):
    """The answer at the counter, also when it has gone again: a slow machine may look too late."""
    return page.locator("[data-part=answer]")


def look(page, name: str) -> list[str]:
    """A picture to look at, and what axe finds, or a page that is wider than its window."""
    shoot(page, f"meals-{name}")
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return [f"{name}: {wide} px too wide"] * (wide > 0) + [f"{name}: {text}" for text in violations(page)]


# ------------------------------------------------------------ customers


def test_10_1_a_customer_corrects_the_handle_on_a_phone_and_copies_the_link(place, browse):
    place.check_out(handle="@wronghandle")
    place.work_in_a_thread()
    token = correction_token(text_of(place.mails()[0]))
    page = browse(permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"/handle/update/{token}")
    expect(page.get_by_text("@wronghandle")).to_be_visible()

    field = page.get_by_label("Your handle")
    for given in ("@not a handle", "noatsign", "@" + "x" * 32, " https://t.me/elena_g ", "@" + "x" * 31):
        field.fill(given)
        assert field.evaluate("field => field.checkValidity()") == (parse_handle(given) is not None)
    # The server says so as well, to a browser that does not.
    field.fill("@not a handle")
    field.evaluate("field => { field.form.noValidate = true }")
    page.get_by_role("button", name="Update my handle").click()
    expect(page.get_by_text("This is not a Telegram handle.")).to_be_visible()
    page.get_by_label("Your handle").fill("t.me/correcthandle")
    page.get_by_role("button", name="Update my handle").click()

    expect(page.get_by_role("heading", name="Handle updated!")).to_be_visible()
    link = page.get_by_role("link", name="Open Telegram Bot").get_attribute("href")
    page.get_by_role("button", name="Copy Link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == link
    assert place.rows("select telegram_handle from meals.customers") == [("@correcthandle",)]
    place.telegram(f"/start {deep_token(link)}")
    assert place.value("select count(*) from meals.telegram_links") == 1
    # Going back and forth costs nothing: the page says that the link was used.
    page.goto(f"/handle/update/{token}")
    expect(page.get_by_role("heading", name="This link has already been used")).to_be_visible()


def test_the_page_of_the_day_tells_by_itself_that_the_code_was_taken(place, browse, code):
    page = browse()
    page.goto(f"/today/{code}")
    drawn = scan(page.locator(".code").screenshot())

    assert drawn == code
    place.redeem(code)
    expect(page.get_by_role("heading", name="Enjoy your meal, June Park")).to_be_visible(
        # The page asks every five seconds.
        timeout=20_000
    )
    expect(page.get_by_text("Counter 1")).to_be_visible()


# ------------------------------------------------------------ the counter


def test_the_camera_reads_a_code_that_is_held_before_it_once(place, browse, code, tmp_path):
    """Chromium on Linux has no BarcodeDetector, so here the server reads the pictures; elsewhere the browser does."""
    page = browse(film(tmp_path, code))
    page.add_init_script(LISTEN)
    page.goto(f"/kiosk#{KIOSK}")
    # The key does not stay in the address.
    expect(page).to_have_url(re.compile(r"/kiosk$"))
    page.get_by_role("button", name="Start scanning").click()

    answer = answer_of(page)
    expect(answer).to_contain_text("Enjoy your meal")
    expect(answer).to_contain_text("June Park")
    expect(answer).to_have_class(re.compile("answer-good"))
    assert page.locator("main").get_attribute("data-reads") == "server"
    assert page.evaluate("heard") == [880, 1320]
    assert place.rows("select kiosk, scan_id is not null from meals.redemptions") == [("Counter 1", True)]
    shoot(page, "meals-kiosk-good", full_page=False)
    # It is still in view when the answer is gone, and is no second scan.
    expect(answer).to_be_hidden()
    assert page.evaluate("heard") == [880, 1320]

    # A hand scanner types it a second time.
    place.clock.advance("5 minutes")
    page.get_by_label("Code, from a hand scanner or typed").fill(code)
    page.keyboard.press("Enter")
    expect(answer).to_contain_text("Already used")
    expect(answer).to_contain_text("This code was used at 9:00 AM at Counter 1")
    expect(answer).to_have_class(re.compile("answer-bad"))
    assert page.evaluate("heard") == [880, 1320, 233, 185]
    shoot(page, "meals-kiosk-used", full_page=False)


def test_where_the_browser_reads_codes_the_server_sees_no_picture(place, browse, code, tmp_path):
    page = browse(film(tmp_path, ""))
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    # What Chromium has on Android, macOS and ChromeOS.
    page.add_init_script(
        f"""window.BarcodeDetector = class {{
          static async getSupportedFormats() {{ return ["qr_code"]; }}
          async detect() {{ return [{{ rawValue: "{code}" }}]; }}
        }};"""
    )
    page.goto(f"/kiosk#{KIOSK}")
    page.get_by_role("button", name="Start scanning").click()

    expect(answer_of(page)).to_contain_text("Enjoy your meal")
    assert page.locator("main").get_attribute("data-reads") == "here"
    assert not any(url.endswith("/api/qr/read") for url in asked)
    assert any(url.endswith("/api/qr/redeem") for url in asked)


def test_a_counter_without_a_camera_takes_photos_and_says_what_is_wrong(place, browse, code, tmp_path):
    page = browse()
    page.goto("/kiosk")
    page.get_by_label("Key").fill(KIOSK + "-2")
    page.get_by_role("button", name="Use this key").click()
    page.get_by_role("button", name="Start scanning").click()
    expect(page.get_by_text("No camera: use a hand scanner, a photo, or type the code")).to_be_visible()
    answer, photo = answer_of(page), page.locator("input[type=file]")

    blank, good = tmp_path / "blank.png", tmp_path / "good.png"
    Image.new("RGB", (300, 300), "white").save(blank)
    good.write_bytes(qr.png(code, pixels=900))
    photo.set_input_files(blank)
    expect(answer).to_contain_text("No code seen")
    photo.set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(answer).to_contain_text("Not a picture")
    photo.set_input_files(good)
    expect(answer).to_contain_text("Enjoy your meal")
    assert place.rows("select kiosk from meals.redemptions") == [("Counter 2",)]

    # The key is kept when the page is loaded again, and forgotten when it is locked, or wrong.
    page.reload()
    page.get_by_role("button", name="Lock: forget the key").click()
    page.get_by_label("Key").fill("a guess of somebody")
    page.get_by_role("button", name="Use this key").click()
    # Told at once, and not at the first customer.
    expect(answer).to_contain_text("Wrong key")
    expect(page.get_by_role("heading", name="Set up this counter")).to_be_visible()
    assert page.evaluate("localStorage.length") == 0
    # Nobody could say: it is not lost, and not taken either.
    page.route("**/api/qr/redeem", lambda route: route.abort())
    page.get_by_label("Key").fill(KIOSK)
    page.get_by_role("button", name="Use this key").click()
    expect(answer).to_contain_text("Could not check")
    expect(page.get_by_label("Key")).to_have_value(KIOSK)
    page.unroute("**/api/qr/redeem")
    answer.click()
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("button", name="Start scanning")).to_be_visible()
    # A link with a key that no counter has.
    page.goto("/kiosk?again#a-guess-of-somebody")
    expect(answer).to_contain_text("Wrong key")
    assert page.evaluate("localStorage.length") == 0


def test_a_scan_whose_answer_is_lost_is_asked_again_and_told_the_same(place, browse, code):
    page = browse()
    page.goto(f"/kiosk#{KIOSK}")
    lost = []

    def lose_the_first(route):
        if lost:
            route.continue_()
        else:
            lost.append(route.fetch().status)
            route.abort()

    page.route("**/api/qr/redeem", lose_the_first)
    page.get_by_role("button", name="Start scanning").click()
    page.get_by_label("Code, from a hand scanner or typed").fill(code)
    page.keyboard.press("Enter")

    expect(answer_of(page)).to_contain_text("Enjoy your meal")
    assert lost == [200]
    assert place.value("select count(*) from meals.redemptions") == 1


# ------------------------------------------------------------ every page


@pytest.mark.parametrize(("size", "theme"), [("desk", "light"), ("phone", "dark")])
def test_every_page_is_accessible_and_fits_its_window(place, site, browse, theme, size):
    sample.fill(place.meals)
    page = browse(color_scheme=theme, viewport=SIZES[size])
    page.goto(site.link())
    page.get_by_role("button", name="Sign in as ana").click()
    page.wait_for_url(f"{site.address}/")
    customer = place.value("select id from meals.customer_list where today = 'issued' order by name limit 1")
    code = place.meals.keys.sign(place.code_of(customer))
    links = {
        f"handle-{name}": f"/handle/update/{sample.link_of(place.meals, name)}"
        for name in ("open", "used", "expired")
    }
    pages = {
        "today": "/meals/", "customers": "/meals/customers", "customer": f"/meals/customers/{customer}", "emails": "/meals/emails",
        "calendar": "/meals/calendar", **links, "handle-unknown": "/handle/update/guess", "code": f"/today/{code}",
        "code-unknown": "/today/guess", "kiosk-key": "/kiosk", "kiosk-start": f"/kiosk?#{KIOSK}",
    }  # fmt: skip
    trouble = []
    for name, path in pages.items():
        page.goto(path)
        page.wait_for_load_state("load")
        trouble += look(page, f"{name}.{theme}.{size}")
    page.get_by_role("button", name="Start scanning").click()
    trouble += look(page, f"kiosk-scan.{theme}.{size}")
    for typed, shown in ((code, "good"), (code, "used")):
        page.get_by_label("Code, from a hand scanner or typed").fill(typed)
        page.keyboard.press("Enter")
        expect(answer_of(page)).to_contain_text("Enjoy" if shown == "good" else "Already used")
        # Held for the picture: it goes by itself.
        page.evaluate("document.querySelector('[data-part=answer]').hidden = false")
        trouble += look(page, f"kiosk-{shown}.{theme}.{size}")
        page.evaluate("document.querySelector('[data-part=answer]').hidden = true")
    page.goto(links["handle-open"])
    page.get_by_label("Your handle").fill("@somebody_else")
    page.get_by_role("button", name="Update my handle").click()
    trouble += look(page, f"handle-updated.{theme}.{size}")
    page.goto(f"/today/{code}")
    trouble += look(page, f"code-used.{theme}.{size}")
    assert not trouble, "\n".join(trouble)
