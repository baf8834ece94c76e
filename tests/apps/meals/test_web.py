"""The routes and the customers' pages over real HTTP: methods, answers, words, and what nobody gets without the right secret."""

from __future__ import annotations

import io
import json
import re
import struct
import zlib

import pytest
from PIL import Image

from onceward_apps.kit import qr
from onceward_apps.meals.messages import QR_PIXELS
from tests.apps.meals.place import (
    CRON_HEADERS,
    KIOSK,
    STRIPE,
    TELEGRAM,
    correction_token,
    deep_token,
    picture_of,
    scan,
    signature,
    text_of,
)

pytestmark = pytest.mark.slow
PAGE = {"accept": "text/html,application/xhtml+xml"}
BEARER = {"authorization": f"Bearer {KIOSK}"}


@pytest.fixture
def http(site):
    return site.visitor().http


@pytest.fixture
def correction(place):
    """A customer who mistyped the handle, and the token of the link in the welcome email."""
    place.check_out(handle="@wronghandle")
    place.work()
    return correction_token(text_of(place.mails("jane@")[0]))


@pytest.fixture
def code(place):
    """A customer's code of today."""
    place.customer("June")
    place.cron("issue-qr")
    place.work()
    return scan(picture_of(place.mails("june@")[0]))


# ------------------------------------------------------------ the documented routes


def test_each_route_takes_its_documented_method_and_says_so_for_others(http):
    documented = {
        "/api/health": "GET", "/api/stripe/webhook": "POST", "/api/telegram/webhook": "POST", "/api/handle/consume": "POST",
        "/api/qr/redeem": "POST", "/api/qr/read": "POST", "/api/cron/issue-qr": "POST", "/api/cron/process-email-retry": "POST",
    }  # fmt: skip
    for path, method in documented.items():
        for other in {"GET", "POST", "PUT", "DELETE", "PATCH"} - {method}:
            answer = http.request(other, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, method), (other, path)
            assert answer.json()["code"] == "METHOD_NOT_ALLOWED"
        assert http.request(method, path).status_code not in {404, 405}
    assert http.get("/api/health").json() == {"status": "ok", "database": "ok", "service_date": "2026-11-16"}


def test_forged_calls_are_refused_and_change_nothing(place, http, code):
    checkout = json.dumps({
        "id": "evt_9", "type": "checkout.session.completed", "created": int(place.clock.now().timestamp()),
        "data": {"object": {"customer": "cus_x", "subscription": "sub_x", "customer_details": {"email": "x@example.com"}}},
    }).encode()  # fmt: skip
    now = int(place.clock.now().timestamp())
    forged = [
        ("/api/stripe/webhook", {"stripe-signature": signature(checkout, now, "another-secret-of-16")}, checkout, 400),
        ("/api/stripe/webhook", {"stripe-signature": signature(checkout, now - 301)}, checkout, 400),
        ("/api/stripe/webhook", {"stripe-signature": signature(checkout + b" ", now)}, checkout, 400),
        ("/api/stripe/webhook", {}, checkout, 400),
        ("/api/telegram/webhook", {"x-telegram-bot-api-secret-token": TELEGRAM + "x"}, b'{"update_id": 1}', 401),
        ("/api/telegram/webhook", {}, b'{"update_id": 1}', 401),
        ("/api/cron/issue-qr", {"authorization": "Bearer wrong"}, b"", 401),
        ("/api/cron/process-email-retry", {"authorization": f"Basic {STRIPE}"}, b"", 401),
        ("/api/qr/redeem", {"authorization": "Bearer wrong"}, json.dumps({"token": code}).encode(), 401),
        ("/api/qr/redeem", {}, json.dumps({"token": code}).encode(), 401),
        ("/api/qr/read", {}, qr.png(code, pixels=QR_PIXELS), 401),
    ]  # fmt: skip
    before = place.rows("select (select count(*) from meals.customers), (select count(*) from meals.stripe_events), "
                        "(select count(*) from meals.telegram_updates), (select count(*) from meals.redemptions)")  # fmt: skip

    for path, headers, body, status in forged:
        assert http.post(path, headers=headers, content=body).status_code == status, (path, headers)

    after = place.rows("select (select count(*) from meals.customers), (select count(*) from meals.stripe_events), "
                       "(select count(*) from meals.telegram_updates), (select count(*) from meals.redemptions)")  # fmt: skip
    assert before == after
    # The same with the right secrets passes.
    right = {"stripe-signature": signature(checkout, now)}
    assert http.post("/api/stripe/webhook", headers=right, content=checkout).json()["outcome"] == "applied"
    assert http.post("/api/cron/issue-qr", headers=CRON_HEADERS).json()["issued"] == 1
    assert http.post("/api/qr/redeem", headers=BEARER, json={"token": code}).json()["success"] is True


def test_the_crons_of_places_without_a_worker_issue_and_send(place, http):
    place.customer()

    issued = http.post("/api/cron/issue-qr", headers=CRON_HEADERS)
    sent = http.post("/api/cron/process-email-retry", headers=CRON_HEADERS)

    assert (issued.status_code, issued.json()["issued"]) == (200, 1)
    assert sent.json() == {"processed": 1, "sent": 1, "failed": 0, "abandoned": 0}
    assert len(place.mails()) == 1


def test_a_body_that_is_too_large_is_not_read_to_its_end(http):
    answer = http.post("/api/handle/consume", content=b"x" * 2_000_000)

    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")


def test_8_2_1_over_http_from_the_page_to_a_connected_chat(place, http, correction):
    page = http.get(f"/handle/update/{correction}", headers=PAGE)
    done = http.post(f"/handle/update/{correction}", headers=PAGE, data={"newHandle": " @correcthandle "})

    assert page.status_code == 200
    assert "@wronghandle" in page.text
    assert done.status_code == 200
    assert place.rows("select telegram_handle from meals.customers") == [("@correcthandle",)]
    token = deep_token(done.text)
    update = {"update_id": 5, "message": {"chat": {"id": 77, "type": "private"}, "text": f"/start {token}"}}
    http.post("/api/telegram/webhook", json=update, headers={"x-telegram-bot-api-secret-token": TELEGRAM})
    assert place.rows("select chat_id from meals.telegram_links") == [(77,)]


# ------------------------------------------------------------ pages


def test_10_1_the_page_of_success_shows_the_documented_link_box(http, correction):
    text = http.post(f"/handle/update/{correction}", headers=PAGE, data={"newHandle": "@correcthandle"}).text

    assert "Handle updated! ✅" in text
    assert "Your Telegram handle has been updated to <strong>@correcthandle</strong>" in text
    box = re.search(r'<section class="telegram-link-box".*?</section>', text, re.DOTALL)[0]
    for words in ("Connect Your Telegram Account", "Click below to complete the connection:", "Open Telegram Bot →", "Copy Link",
                  "This link expires in 7 days"):  # fmt: skip
        assert words in box
    assert box.count("https://t.me/frontiermealsbot?start=") == 3


def test_10_1_error_messages_are_words_that_say_what_to_do(place, http, correction):
    wrong = http.post(f"/handle/update/{correction}", headers=PAGE, data={"newHandle": "no at <sign>"})
    assert wrong.status_code == 400
    assert "This is not a Telegram handle." in wrong.text
    assert "Handle must start with @ and be 2-32 characters" in wrong.text
    assert 'value="no at &lt;sign&gt;"' in wrong.text
    # The typing error has not cost the link.
    assert (
        http.post(f"/handle/update/{correction}", headers=PAGE, data={"newHandle": "@right"}).status_code
        == 200
    )

    for method in ("GET", "POST"):
        used = http.request(
            method, f"/handle/update/{correction}", headers=PAGE, data={"newHandle": "@right"}
        )
        assert used.status_code == 400
        assert "This link has already been used" in used.text
        assert "in the email that we sent you then" in used.text
        unknown = http.request(method, "/handle/update/guess", headers=PAGE, data={"newHandle": "@right"})
        assert "This link is not valid" in unknown.text
    place.check_out("Joe")
    place.work()
    other = correction_token(text_of(place.mails("joe@")[0]))
    place.clock.advance("7 days")
    assert "This link has expired" in http.get(f"/handle/update/{other}", headers=PAGE).text


def test_a_database_that_does_not_answer_is_a_page_that_says_the_link_is_still_good(place, http, correction):
    place.meals.close()

    answer = http.get(f"/handle/update/{correction}", headers=PAGE)

    assert answer.status_code == 500
    assert "Nothing was changed, and your link is still good." in answer.text
    assert http.get(f"/handle/update/{correction}").json()["code"] == "DATABASE_ERROR"
    assert http.get("/api/health").status_code == 503


def test_the_page_of_the_day_shows_the_code_and_later_when_and_where_it_was_used(place, http, code):
    before = http.get(f"/today/{code}", headers=PAGE).text
    place.clock.advance("3 hours 4 minutes")
    http.post("/api/qr/redeem", headers=BEARER, json={"token": code})
    after = http.get(f"/today/{code}", headers=PAGE).text

    assert "<svg" in before
    assert "Your meal today, June" in before
    assert "used at <strong>12:04 PM</strong> at <strong>Counter 1</strong>" in after
    assert "QR code for your meal" not in after
    place.clock.advance("1 day")
    over = http.get(f"/today/{code}", headers=PAGE)
    assert (over.status_code, "This code has expired" in over.text) == (400, True)
    assert "This is not a code of ours" in http.get("/today/guess", headers=PAGE).text


def test_public_pages_set_no_cookie_load_nothing_from_elsewhere_and_are_small(http, correction, code):
    done = f"/handle/update/{correction}"
    for path in ("/kiosk", f"/today/{code}", done):
        answer = http.get(path, headers=PAGE)
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'nonce-")
        assert "unsafe" not in policy
        files = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
        assert all(file.startswith("/static/") for file in files if not file.startswith("/kiosk"))
        total = len(answer.content) + sum(
            len(http.get(file).content) for file in files if file.startswith("/static/")
        )
        assert total < 60_000, path


# ------------------------------------------------------------ the counter


def test_a_picture_is_read_for_a_kiosk_and_redeems_nothing(place, http, code):
    photo = io.BytesIO()
    Image.open(io.BytesIO(qr.png(code, pixels=QR_PIXELS))).convert("RGB").rotate(
        12, expand=True, fillcolor="white"
    ).save(photo, "JPEG")

    for picture in (qr.png(code, pixels=QR_PIXELS), photo.getvalue()):
        assert http.post("/api/qr/read", headers=BEARER, content=picture).json() == {"token": code}
    assert place.value("select count(*) from meals.redemptions") == 0


@pytest.mark.parametrize("kind", ["nothing", "text", "blank", "truncated", "bomb", "gif", "svg"])
def test_what_is_no_picture_of_a_code_is_told_so(http, kind):
    blank = io.BytesIO()
    Image.new("L", (64, 64), 255).save(blank, "PNG")
    gif = io.BytesIO()
    Image.new("L", (64, 64), 255).save(gif, "GIF")

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    bomb = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 60000, 60000, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
    )
    given = {
        "nothing": b"", "text": b"hello", "blank": blank.getvalue(), "truncated": qr.png("x", pixels=200)[:120], "bomb": bomb,
        "gif": gif.getvalue(), "svg": qr.svg("x").encode(),
    }[kind]  # fmt: skip

    answer = http.post("/api/qr/read", headers=BEARER, content=given)

    said = "NO_CODE" if kind == "blank" else "NO_PICTURE"
    assert (answer.status_code, answer.json()["code"]) == (400, said)


def test_the_address_of_the_page_is_as_good_as_the_code_on_it(http, code):
    answer = http.post(
        "/api/qr/redeem", headers=BEARER, json={"token": f" https://meals.example/today/{code}\n"}
    )

    assert answer.json()["success"] is True


def test_the_counter_works_without_scripts(place, http, code):
    form = {"key": KIOSK, "code": code}
    first = http.post("/kiosk", data=form)
    place.clock.advance("1 minute")
    second = http.post("/kiosk", data=form)

    assert (first.status_code, "Enjoy your meal" in first.text, "June" in first.text) == (200, True, True)
    assert (second.status_code, "This code was used at 9:00 AM at Counter 1" in second.text) == (400, True)
    assert "Wrong key" in http.post("/kiosk", data={**form, "key": "guess"}).text
    assert "Not our code" in http.post("/kiosk", data={**form, "code": "guess"}).text


def test_telegram_shows_the_picture_of_todays_code(place, code):
    place.rows(
        "insert into meals.telegram_links (customer_id, chat_id) select id, 77 from meals.customers returning 1"
    )

    place.telegram("/today", update=9)
    place.work()

    (picture,) = place.photos()
    assert scan(picture) == code
    assert place.chats() == [f"Your QR code for Monday, November 16:\nhttps://meals.example/today/{code}"]


def test_no_token_of_a_request_is_in_any_log(place, http, correction, code, log, capfd):
    held = {"correction": correction, "code": code, "guess": "canary-of-a-guess-1", "kiosk": KIOSK}
    for path in (
        f"/handle/update/{correction}",
        f"/handle/update/{held['guess']}",
        f"/today/{code}",
        f"/today/{held['guess']}",
    ):
        http.get(path, headers=PAGE)
    done = http.post(f"/handle/update/{correction}", headers=PAGE, data={"newHandle": "@canaryhandle"})
    held["deep"] = deep_token(done.text)
    http.post("/api/qr/redeem", headers=BEARER, json={"token": code})
    http.post("/api/qr/read", headers=BEARER, content=qr.png(code, pixels=QR_PIXELS))
    place.meals.close()
    http.get(f"/handle/update/{correction}", headers=PAGE)
    http.get(f"/today/{code}", headers=PAGE)

    printed = capfd.readouterr()
    lines = [*log(), printed.out, printed.err]
    assert any("database_error" in line for line in lines)
    # Our own client logs what it asks; the server does not.
    said = [line for line in lines if not line.startswith("HTTP Request:")]
    assert [(name, line) for line in said for name, token in held.items() if token in line] == []
    assert not any("@canaryhandle" in line for line in said)
