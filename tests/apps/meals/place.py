"""The whole system on one database of a test, and people who use it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email import policy
from email.parser import BytesParser
from typing import Any, Self
from uuid import UUID

from PIL import Image

from onceward.deliveries import Provider, Smtp, Telegram
from onceward_apps.meals.domain import QrToken
from onceward_apps.meals.jobs import register
from onceward_apps.meals.routes import Answer, Request, Routes
from onceward_apps.meals.settings import Settings
from onceward_apps.meals.system import Meals
from tests.support.scanning import qr_codes

STRIPE, TELEGRAM, CRON, KIOSK = (
    "stripe-test-secret",
    "telegram-test-secret",
    "cron-test-secret-1",
    "kiosk-test-secret",
)
SETTINGS = Settings(
    base_url="https://meals.example",
    bot="frontiermealsbot",
    qr_keys=f"k1=eddsa:{base64.b64encode(bytes(range(32))).decode()}",
    seal_keys=(base64.urlsafe_b64encode(bytes(range(32))).decode(),),
    stripe_secret=STRIPE,
    telegram_secret=TELEGRAM,
    cron_secret=CRON,
    kiosks={"Counter 1": KIOSK, "Counter 2": KIOSK + "-2"},
    ops_chat="-100",
)
CRON_HEADERS = {"authorization": f"Bearer {CRON}"}


class Place:
    def __init__(
        self, kit, mail_sink, chat_sink, *, email: Provider | None = None, settings=SETTINGS, pool_size=10
    ) -> None:
        self.kit, self.mail_sink, self.chat_sink = kit, mail_sink, chat_sink
        self.clock = kit.clock
        self.meals = Meals(
            settings,
            dsn=kit.dsn,
            email=email or Smtp("127.0.0.1", mail_sink.port, "none", sender="others@example.com"),
            telegram=Telegram("1:bot", chat_sink.url),
            environ={},
            pool_size=pool_size,
        )
        self.meals.install()
        self.app = register(self.meals.app(), self.meals)
        self.routes = Routes(self.meals)
        self.conn = kit.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.meals.close()

    # ------------------------------------------------------------ the database

    def rows(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(statement, params or None).fetchall()

    def value(self, statement: str, *params: Any) -> Any:
        ((value,),) = self.rows(statement, *params)
        return value

    def customer(self, name: str = "Jane", *, email: str | None = None, status: str = "active") -> UUID:
        customer = self.value(
            "insert into meals.customers (email, name, stripe_customer_id) values (%s, %s, 'cus_' || %s) returning id",
            email or f"{name.lower()}@example.com", name, name,
        )  # fmt: skip
        self.conn.execute(
            "insert into meals.subscriptions (customer_id, stripe_subscription_id, status, status_at) "
            "values (%s, 'sub_' || %s, %s, onceward.now())",
            [customer, name, status],
        )
        return customer

    def customers(self, count: int) -> None:
        self.conn.execute(
            "with made as (insert into meals.customers (email, name, stripe_customer_id) "
            "  select 'test-' || n || '@example.com', 'Test Customer ' || n, 'cus_test_' || n from generate_series(1, %s) as n "
            "  returning id, stripe_customer_id) "
            "insert into meals.subscriptions (customer_id, stripe_subscription_id, status, status_at) "
            "select id, 'sub_' || stripe_customer_id, 'active', onceward.now() from made",
            [count],
        )

    # ------------------------------------------------------------ calls

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        return self.routes.answer(Request(method, path, headers or {}, raw))

    def cron(self, name: str) -> Answer:
        return self.call("POST", f"/api/cron/{name}", headers=CRON_HEADERS)

    def stripe(
        self, kind: str, about: dict[str, Any], *, event: str = "evt_1", created: int | None = None
    ) -> Answer:
        now = int(self.clock.now().timestamp())
        body = json.dumps(
            {"id": event, "type": kind, "created": created or now, "data": {"object": about}}
        ).encode()
        return self.call("POST", "/api/stripe/webhook", body, {"stripe-signature": signature(body, now)})

    def check_out(self, name: str = "Jane", handle: str = "@wronghandle", **more: Any) -> Answer:
        about = {
            "customer": f"cus_{name}", "subscription": f"sub_{name}",
            "customer_details": {"email": f"{name.lower()}@example.com", "name": name},
            "metadata": {"telegram_handle": handle},
        }  # fmt: skip
        return self.stripe("checkout.session.completed", about, **{"event": f"evt_{name}", **more})

    def consume(self, token: str, handle: str = "@correcthandle") -> Answer:
        return self.call("POST", "/api/handle/consume", {"token": token, "newHandle": handle})

    def telegram(self, text: str, *, update: int = 1, chat: int = 77, secret: str = TELEGRAM) -> Answer:
        body = {"update_id": update, "message": {"chat": {"id": chat, "type": "private"}, "text": text}}
        return self.call("POST", "/api/telegram/webhook", body, {"x-telegram-bot-api-secret-token": secret})

    def redeem(self, code: str, *, kiosk: str = KIOSK, scan: str | None = None) -> Answer:
        return self.call(
            "POST", "/api/qr/redeem", {"token": code, "scan_id": scan}, {"authorization": f"Bearer {kiosk}"}
        )

    # ------------------------------------------------------------ what arrives

    def work(self) -> int:
        return self.kit.drain(self.app)

    def work_in_a_thread(self) -> int:
        """Playwright keeps a loop in the thread of its tests."""
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self.work).result()

    def code_of(self, customer: UUID) -> QrToken:
        """The code of today of a customer, as the database has it."""
        ((jti, *rest),) = self.rows(
            "select jti, customer_id, service_date, issued_at, expires_at from meals.qr_of_customer(%s)",
            customer,
        )
        return QrToken(jti, *rest)

    def mails(self, to: str | None = None) -> list[Any]:
        return [mail for mail in self.mail_sink.kept if to is None or mail.to.startswith(to)]

    def chats(self) -> list[str]:
        """What the bot said; under a picture, its caption."""
        said = [form_of(hit) if hit.path.endswith("/sendPhoto") else hit.json for hit in self.chat_sink.kept]
        return [message["caption"].decode() if "caption" in message else message["text"] for message in said]

    def photos(self) -> list[bytes]:
        return [form_of(hit)["photo"] for hit in self.chat_sink.kept if hit.path.endswith("/sendPhoto")]


def form_of(hit) -> dict[str, bytes]:
    """The fields of a form with a file, read by somebody else's parser."""
    head = b"Content-Type: " + hit.headers["content-type"].encode() + b"\r\n\r\n"
    parts = BytesParser(policy=policy.HTTP).parsebytes(head + hit.body).iter_parts()
    return {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in parts
    }


def signature(body: bytes, at: int, secret: str = STRIPE) -> str:
    mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={mac}"


def text_of(mail) -> str:
    return mail.message.get_body(("plain",)).get_content()


def deep_token(text: str) -> str:
    return re.search(r"https://t\.me/frontiermealsbot\?start=([\w-]+)", text).group(1)


def correction_token(text: str) -> str:
    return re.search(r"https://meals\.example/handle/update/([\w-]+)", text).group(1)


def picture_of(mail) -> bytes:
    (part,) = [part for part in mail.message.walk() if part["Content-ID"] == "<qr>"]
    return part.get_content()


def scan(png: bytes) -> str:
    """What a scanner reads."""
    (code,) = qr_codes(Image.open(io.BytesIO(png)).convert("L"))
    return code.text


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Each in a thread of its own, released at one moment."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait(60)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
