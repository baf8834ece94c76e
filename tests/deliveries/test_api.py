"""`client.deliveries` on both clients and on callers' own connections, and what the environment configures."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from datetime import timedelta

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict

from onceward import AsyncClient, Client, Onceward
from onceward.deliveries import (
    Attachment,
    Deliveries,
    DeliveryFilter,
    Outbox,
    Resend,
    Slack,
    Smtp,
    Telegram,
    Webhooks,
)
from onceward.errors import InvalidArgument, KeyConflict, UnknownJob, WrongState
from tests.deliveries.test_webhook import SECRET

MAIL = {"to": "Jane <jane@example.com>", "subject": "Welcome", "text": "Hello", "key": "welcome:42"}


class Blocking:
    """The ledger of an AsyncClient, called like that of a Client, so that one test serves both."""

    def __init__(self, ledger, runner: asyncio.Runner) -> None:
        self._ledger = ledger
        self._runner = runner

    def __getattr__(self, name):
        method = getattr(self._ledger, name)
        assert inspect.iscoroutinefunction(method)
        return lambda *args, **kwargs: self._runner.run(method(*args, **kwargs))


@pytest.fixture(params=["sync", "async"])
def ledger(request, onceward_database):
    if request.param == "sync":
        with Client(onceward_database) as client:
            yield client.deliveries
        return
    with asyncio.Runner() as runner:
        client = AsyncClient(onceward_database)
        yield Blocking(client.deliveries, runner)
        runner.run(client.close())


def test_every_kind(ledger):
    made = {
        "email": ledger.email(**MAIL, attachments=[Attachment("a.txt", b"hi", "text/plain")]),
        "slack": ledger.slack(text="Hi", key="s"),
        "telegram": ledger.telegram(chat_id=42, text="Hi", key="t"),
        "webhook": ledger.webhook(url="https://hooks.example/in", payload={"n": 1}, key="w"),
    }

    for kind, delivery in made.items():
        assert (delivery.created, delivery.state) == (True, "pending")
        assert ledger.get(delivery).kind == kind
    assert ledger.content(made["email"]) == {
        "to": "jane@example.com", "to_name": "Jane", "subject": "Welcome", "text": "Hello",
        "attachments": [{"filename": "a.txt", "type": "text/plain", "content": "aGk="}],
    }  # fmt: skip
    assert ledger.content(made["webhook"].id) == {"url": "https://hooks.example/in", "payload": {"n": 1}}
    assert [row.kind for row in ledger.list()] == ["webhook", "telegram", "slack", "email"]
    assert [row.key for row in ledger.list(DeliveryFilter(kind="slack", states=["pending"]))] == ["s"]


def test_the_same_key_gives_the_same_delivery_and_other_content_is_refused(ledger):
    first, again = ledger.email(**MAIL), ledger.email(**MAIL)

    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(KeyConflict):
        ledger.email(**{**MAIL, "text": "Goodbye"})


def test_a_delivery_can_wait_expire_and_be_cancelled(ledger, onceward_clock):
    later = ledger.email(**MAIL, delay=timedelta(hours=1), expires_in=timedelta(hours=1))

    assert ledger.get(later).next_try_at > onceward_clock.now() + timedelta(minutes=59)
    assert ledger.cancel(later, "not needed") == "cancelled"
    assert ledger.get(later).state == "cancelled"
    with pytest.raises(WrongState):
        ledger.decide(later, "sent", note="no")


def test_what_is_wrong_is_said_before_anything_is_written(ledger):
    for wrong, message in (
        ({**MAIL, "key": ""}, "key of the delivery is missing"),
        ({**MAIL, "subjekt": "x"}, "email has no option subjekt"),
        ({**MAIL, "to": "jane"}, "to of the delivery must be one address"),
        ({**MAIL, "delay": 5}, "delay must be a timedelta"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            ledger.email(**wrong)
    assert ledger.list() == []
    with pytest.raises(UnknownJob):
        ledger.get("00000000-0000-0000-0000-000000000000")


def test_a_client_of_a_tenant_delivers_for_it(onceward_database):
    with Client(onceward_database, tenant="acme") as client, Client(onceward_database, tenant="*") as all_:
        delivery = client.deliveries.email(**MAIL)

        assert all_.deliveries.get(delivery).tenant == "acme"
        assert all_.deliveries.list(DeliveryFilter(tenant="globex")) == []


def count(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select count(*) from onceward.deliveries").fetchone()[0]


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
def test_in_the_transaction_of_a_connection_of_ones_own(onceward_database, commit):
    dsn = onceward_database
    parts = conninfo_to_dict(dsn)

    def with_psycopg() -> None:
        with Client(dsn) as client, psycopg.connect(dsn) as conn:
            client.deliveries.email(**{**MAIL, "key": "a"}, connection=conn)
            conn.commit() if commit else conn.rollback()

    def with_sqlalchemy() -> None:
        engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
        with Client(dsn) as client, engine.connect() as conn:
            client.deliveries.email(**{**MAIL, "key": "b"}, connection=conn)
            conn.commit() if commit else conn.rollback()
        engine.dispose()

    async def with_asyncpg() -> None:
        conn = await asyncpg.connect(
            host=parts["host"], port=parts.get("port"), user=parts["user"], database=parts["dbname"],
            password=parts.get("password"),
        )  # fmt: skip
        async with AsyncClient(dsn) as client:
            transaction = conn.transaction()
            await transaction.start()
            await client.deliveries.email(**{**MAIL, "key": "c"}, connection=conn)
            await (transaction.commit() if commit else transaction.rollback())
        await conn.close()

    with_psycopg()
    with_sqlalchemy()
    asyncio.run(with_asyncpg())

    assert count(dsn) == (3 if commit else 0)


# ---------------------------------------------------------------- settings


def settings(**environ: str) -> Deliveries:
    return Deliveries(Onceward(), environ=environ)


def test_without_settings_mails_go_to_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("ONCEWARD_HOME", str(tmp_path))

    providers = settings().providers

    assert set(providers) == {"email"}
    assert providers["email"].folder == tmp_path / "outbox"


def test_the_environment_names_every_provider(tmp_path):
    made = settings(
        ONCEWARD_EMAIL=f"outbox:{tmp_path}/out",
        ONCEWARD_SLACK_WEBHOOK="https://hooks.slack.example/x",
        ONCEWARD_TELEGRAM_TOKEN="1:x",
        ONCEWARD_WEBHOOK_SECRET=SECRET,
        ONCEWARD_ALERTS_TO="telegram:42",
    )

    assert {kind: type(way) for kind, way in made.providers.items()} == {
        "email": Outbox, "slack": Slack, "telegram": Telegram, "webhook": Webhooks,
    }  # fmt: skip
    assert made.providers["email"].folder == tmp_path / "out"
    assert made.alerts_to == {"kind": "telegram", "content": {"chat_id": "42"}}


def test_smtp_and_resend_by_name():
    sender = {"ONCEWARD_EMAIL_FROM": "Shop <shop@example.com>"}

    smtp = settings(ONCEWARD_EMAIL="smtp://jane@mail.example.com", **sender).providers["email"]
    resend = settings(ONCEWARD_EMAIL="resend:", RESEND_API_KEY="key", **sender).providers["email"]

    assert isinstance(smtp, Smtp)
    assert isinstance(resend, Resend)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ONCEWARD_EMAIL": "fax:hunter2"}, "ONCEWARD_EMAIL cannot be read"),
        ({"ONCEWARD_EMAIL": "smtp://mail.example.com"}, "sender of an SMTP server is missing"),
        (
            {"ONCEWARD_EMAIL": "resend:", "ONCEWARD_EMAIL_FROM": "a@example.com"},
            "API key of Resend is missing",
        ),
        ({"ONCEWARD_ALERTS_TO": "hunter2"}, "alerts_to"),
        ({"ONCEWARD_WEBHOOK_SECRET": "hunter2"}, "webhook secret"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named_and_not_repeated(environ, message):
    with pytest.raises(InvalidArgument, match=message) as raised:
        settings(**environ)
    assert "hunter2" not in str(raised.value)


def test_waits_of_an_unknown_kind_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="unknown kind: fax"):
        Deliveries(Onceward(), email=Outbox(tmp_path), waits={"fax": []}, environ={})


def test_neither_producers_nor_settings_load_the_libraries_that_send():
    code = (
        "import sys, onceward, onceward.deliveries; onceward.Onceward; onceward.Client('x').deliveries\n"
        "print([m for m in ('httpx', 'aiosmtplib', 'onceward.worker') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    code = "import sys, onceward; onceward.Onceward; onceward.Client; print('onceward.deliveries' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
