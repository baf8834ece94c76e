"""The rules that need no database."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import jwt
import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from onceward_apps.meals import outside
from onceward_apps.meals.domain import BadQr, QrExpired, QrKeys, QrToken, parse_handle, trouble_of
from onceward_apps.meals.sealing import Seal
from onceward_apps.meals.settings import Settings, new_keys
from tests.apps.meals.place import SETTINGS, at_once, signature

NOON = datetime(2026, 11, 16, 20, 0, tzinfo=UTC)
TOKEN = QrToken(
    UUID(int=1), UUID(int=2), date(2026, 11, 16), NOON - timedelta(hours=6), datetime(2026, 11, 17, 8, tzinfo=UTC)
)  # fmt: skip
RAW = bytes(range(32))
EDDSA = f"a=eddsa:{base64.b64encode(RAW).decode()}"
HS256 = f"b=hs256:{base64.b64encode(RAW).decode()}"


@pytest.mark.parametrize("keys", [EDDSA, HS256])
def test_a_code_says_the_same_every_time_and_is_read_back(keys):
    ours = QrKeys.parse(keys)

    code = ours.sign(TOKEN)

    assert code == QrKeys.parse(keys).sign(TOKEN)
    assert ours.read(code, now=NOON) == TOKEN
    claims = jwt.decode(code, options={"verify_signature": False})
    assert set(claims) == {"iss", "aud", "sub", "jti", "service_date", "iat", "exp"}


def test_a_code_is_over_at_the_moment_it_expires():
    ours = QrKeys.parse(EDDSA)
    code = ours.sign(TOKEN)

    assert ours.read(code, now=TOKEN.expires_at - timedelta(seconds=1)) == TOKEN
    with pytest.raises(QrExpired):
        ours.read(code, now=TOKEN.expires_at)


def test_keys_can_be_changed_in_the_middle_of_a_day():
    old, both, new = QrKeys.parse(EDDSA), QrKeys.parse(f"{HS256}, {EDDSA}"), QrKeys.parse(HS256)

    assert both.read(old.sign(TOKEN), now=NOON) == TOKEN
    assert both.sign(TOKEN) == new.sign(TOKEN)
    with pytest.raises(BadQr):
        new.read(old.sign(TOKEN), now=NOON)


def forged() -> dict[str, str]:
    ours = QrKeys.parse(EDDSA)
    code = ours.sign(TOKEN)
    head, body, mac = code.split(".")
    claims = jwt.decode(code, options={"verify_signature": False})
    public = QrKeys.parse(EDDSA)._signer.secret.public_key()
    spki = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    other = QrKeys.parse(f"a=eddsa:{base64.b64encode(bytes(32)).decode()}")
    made = {
        "empty": "", "dots": "..", "text": "hello", "cut": code[:-5], "no signature": f"{head}.{body}.",
        "alg none": f"{part({'alg': 'none', 'kid': 'a'})}.{body}.",
        # The public key as the secret of another algorithm.
        "confused": jwt.encode(claims, spki, "HS256", headers={"kid": "a"}),
        "another key": other.sign(TOKEN), "unknown kid": jwt.encode(claims, RAW, "HS256", headers={"kid": "z"}),
        "no kid": jwt.encode(claims, RAW, "HS256"),
        "changed body": f"{head}.{part({**claims, 'jti': UUID(int=9).hex})}.{mac}",
    }  # fmt: skip
    secret = QrKeys.parse(EDDSA)._signer.secret
    for name in claims:
        less = {key: value for key, value in claims.items() if key != name}
        made[f"without {name}"] = jwt.encode(less, secret, "EdDSA", headers={"kid": "a"})
    for name, value in (
        ("aud", "other"),
        ("iss", "other"),
        ("exp", 1.5),
        ("jti", "x"),
        ("service_date", "today"),
    ):
        made[f"{name} is {value}"] = jwt.encode(
            {**claims, name: value}, secret, "EdDSA", headers={"kid": "a"}
        )
    return made


FORGED = forged()


@pytest.mark.parametrize("how", FORGED)
def test_a_code_that_is_not_ours_is_refused_without_repeating_it(how):
    with pytest.raises(BadQr) as raised:
        QrKeys.parse(EDDSA).read(FORGED[how], now=NOON)

    assert not FORGED[how] or FORGED[how] not in str(raised.value)


@given(st.text())
def test_whatever_is_scanned_is_a_code_or_refused(text):
    with pytest.raises(BadQr):
        QrKeys.parse(EDDSA).read(text, now=NOON)


@pytest.mark.parametrize(
    "keys",
    ["", "a", "a=rs256:AAAA", "a=eddsa:!", f"a=eddsa:{base64.b64encode(bytes(31)).decode()}", "=hs256:"],
)
def test_a_key_that_cannot_be_used_is_refused(keys):
    with pytest.raises(ValueError, match="key"):
        QrKeys.parse(keys)


@given(st.text(max_size=40))
def test_a_handle_is_an_at_sign_and_up_to_31_letters(text):
    handle = parse_handle(text)
    assert handle is None or (handle[0] == "@" and 2 <= len(handle) <= 32 and handle.isascii())


@pytest.mark.parametrize(
    ("given", "handle"),
    [
        ("@elena_g", "@elena_g"), (" https://t.me/elena_g ", "@elena_g"), ("t.me/elena_g/", "@elena_g"), ("T.me/" + "x" * 31, "@" + "x" * 31),
        ("elena_g", None), ("@" + "x" * 32, None), ("t.me/" + "x" * 32, None), ("https://t.me/elena_g?start=1", None), ("t.me/a/b", None),
        ("https://t.me.example/elena_g", None), ("txme/elena_g", None), ("@t.me/elena_g", None), ("t.me/@elena_g", None), ("t.me/", None),
    ],
)  # fmt: skip
def test_a_link_to_a_handle_is_the_handle(given, handle):
    assert parse_handle(given) == handle


def test_m10_a_cancelled_statement_is_not_a_lost_connection():
    assert trouble_of("57014") == "cancelled"
    assert [trouble_of(state) for state in ("08006", "08001", "57P01", "57P03", None)] == ["connection"] * 5
    assert (trouble_of("53300"), trouble_of("40P01"), trouble_of("23514")) == (
        "resources",
        "conflict",
        "other",
    )


# ------------------------------------------------------------ sealing


def test_what_is_sealed_shows_nothing_and_opens_with_any_key_of_the_ring():
    old, new = Fernet.generate_key().decode(), Fernet.generate_key().decode()
    content = {
        "to": "jane@example.com",
        "text": f"see {Seal([old]).text('https://t.me/x?start=abc')} and {Seal([old]).text('y')}",
        "attachments": [
            {"filename": "qr.png", "content": base64.b64encode(Seal([old]).data(b"png")).decode()},
            {"filename": "a.txt", "content": base64.b64encode(b"plain").decode()},
        ],
    }

    opened = Seal([new, old]).open(content)

    assert "start=abc" not in str(content)
    assert opened["text"] == "see https://t.me/x?start=abc and y"
    assert [base64.b64decode(item["content"]) for item in opened["attachments"]] == [b"png", b"plain"]


# ------------------------------------------------------------ settings


def test_settings_name_what_is_missing_and_show_no_secret():
    with pytest.raises(ValueError, match="not set: MEALS_QR_KEYS, MEALS_SEAL_KEYS, STRIPE_WEBHOOK_SECRET"):
        Settings.from_environ({"CRON_SECRET": "x" * 20})
    environ = {**new_keys(), "STRIPE_WEBHOOK_SECRET": "whsec_" + "x" * 20}
    settings = Settings.from_environ(environ)
    assert [value for value in environ.values() if value in repr(settings)] == []
    assert list(settings.kiosks) == ["counter-1"]


def test_without_any_secret_a_machine_has_keys_of_its_own_whoever_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("ONCEWARD_HOME", str(tmp_path))

    made = at_once([lambda: Settings.from_environ({"MEALS_BOT": "testbot"})] * 8)

    assert len({(each.qr_keys, each.seal_keys, each.stripe_secret, each.cron_secret) for each in made}) == 1
    assert (made[0].base_url, made[0].bot) == ("http://localhost:8080", "testbot")
    assert list(made[0].kiosks) == ["counter-1", "counter-2"]
    (file,) = tmp_path.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("meals.keys", 0o600)


def test_links_lead_to_where_the_pages_are(tmp_path, monkeypatch):
    monkeypatch.setenv("ONCEWARD_HOME", str(tmp_path))

    assert Settings.from_environ({"PORT": "8091"}).base_url == "http://localhost:8091"
    assert Settings.from_environ({"PORT": ""}).base_url == "http://localhost:8080"
    own = {"PORT": "8091", "MEALS_BASE_URL": "https://meals.example/"}
    assert Settings.from_environ(own).base_url == "https://meals.example"


@pytest.mark.parametrize(
    "changes",
    [
        {"cron_secret": ""},
        {"stripe_secret": "short"},
        {"kiosks": {"a": ""}},
        {"kiosks": {"a": "x" * 20, "b": "x" * 20}},
    ],
)
def test_an_empty_or_shared_secret_is_refused(changes):
    with pytest.raises(ValueError, match=r"must be at least 16|of its own"):
        replace(SETTINGS, **changes)


def test_who_writes_to_customers_is_a_setting():
    environ = {**new_keys(), "STRIPE_WEBHOOK_SECRET": "x" * 20, "MEALS_EMAIL_FROM": "Kitchen <k@example.com>"}
    assert Settings.from_environ(environ).sender == "Kitchen <k@example.com>"
    with pytest.raises(ValueError, match="MEALS_EMAIL_FROM must be an address"):
        Settings.from_environ({**environ, "MEALS_EMAIL_FROM": "Kitchen"})


# ------------------------------------------------------------ who calls


def test_a_body_that_stripe_signed_tells_when():
    header = signature(b"{}", 1_700_000_000)

    assert outside.signed_at(b"{}", header, SETTINGS.stripe_secret) == datetime.fromtimestamp(
        1_700_000_000, UTC
    )
    rolled = header.replace("v1=", "v1=00,v1=")
    assert outside.signed_at(b"{}", rolled, SETTINGS.stripe_secret) is not None


@pytest.mark.parametrize(
    "header",
    ["", "t=1", "v1=abc", "t=1,v1=abc", "t=x,v1=abc", signature(b"{} ", 1), signature(b"{}", 1, "other"),
     signature(b"{}", 1).replace("t=1", "t=2"), signature(b"{}", 1) + ",t=1", signature(b"{}", 1).replace("v1", "v0"),
     "t=1,v1=ü"],
)  # fmt: skip
def test_a_body_that_stripe_did_not_sign_is_refused(header):
    assert outside.signed_at(b"{}", header, SETTINGS.stripe_secret) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"{\xff",
        b'{"update_id": -1}',
        b'{"update_id": true}',
        b'{"update_id": 1e3}',
        b'{"update_id": "1"}',
    ],
)
def test_what_is_not_an_update_is_refused(body):
    with pytest.raises(ValueError, match=r"not an update|utf-8"):
        outside.TelegramUpdate.parse(body)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(
    st.sampled_from(["update_id", "message", "chat", "id", "type", "text", "data", "object", "created"]), s)))  # fmt: skip
def test_any_json_is_read_or_refused(value):
    body = json.dumps(value).encode()
    for parse in (outside.TelegramUpdate.parse, outside.StripeEvent.parse):
        try:
            parse(body)
        except ValueError as error:
            assert "not an" in str(error)
