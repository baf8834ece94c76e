"""Webhooks: signed as the standard says, and never to an address that is not public."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl

import pytest
import trustme

from onceward.deliveries import Sent, Webhooks
from onceward.deliveries.webhook import is_public
from onceward.errors import InvalidArgument
from tests.deliveries.conftest import SHORT, outgoing, send
from tests.deliveries.sinks import HttpSink

KEY = bytes(range(24))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER = base64.b64encode(KEY[::-1]).decode()


def hook(url: str, **more):
    return {"url": url, "payload": {"type": "order.paid", "data": {"ä": 1}}, **more}


def local(**more) -> Webhooks:
    return Webhooks({"default": SECRET}, allow_private=True, **more)


def test_a_webhook_is_signed_as_standard_webhooks_says(http_sink):
    assert send(local(), hook(f"{http_sink.url}/in?x=1")) == Sent()

    (hit,) = http_sink.hits
    signed = f"{hit.headers['webhook-id']}.{hit.headers['webhook-timestamp']}.".encode() + hit.body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert hit.headers["webhook-signature"] == f"v1,{expected}"
    assert hit.headers["webhook-id"] == "00000000-0000-0000-0000-000000000007"
    assert hit.headers["webhook-timestamp"] == str(int(outgoing().sending_at.timestamp()))
    assert hit.body == '{"type":"order.paid","data":{"ä":1}}'.encode()
    assert hit.path == "/in?x=1"


def test_during_a_change_of_secrets_both_sign(http_sink):
    both = Webhooks({"default": [SECRET, OTHER]}, allow_private=True)

    send(both, hook(http_sink.url))

    signatures = http_sink.hits[0].headers["webhook-signature"].split(" ")
    assert len(set(signatures)) == 2
    assert all(signature.startswith("v1,") for signature in signatures)


def test_receivers_may_have_secrets_of_their_own(http_sink):
    several = Webhooks({"shop": SECRET}, allow_private=True)

    assert send(several, hook(http_sink.url, secret="shop")) == Sent()
    assert send(several, hook(http_sink.url)).category == "configuration"


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "whsec_not base64", "hunter2hunter2!!"])
def test_a_secret_that_is_none_is_refused_without_repeating_it(secret):
    with pytest.raises(InvalidArgument) as raised:
        Webhooks({"default": secret})
    assert not secret.removeprefix("whsec_") or secret.removeprefix("whsec_") not in str(raised.value)


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "255.255.255.255",
     "224.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1",
     "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "2001:db8::1",
     "2001:0:53aa:64c:0:0:80ff:fffe"],
)  # fmt: skip
def test_an_address_that_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"]
)
def test_an_address_that_is_public(address):
    assert is_public(address)


def resolving(*answers):
    """A resolver that gives each of these answers once, and what it was asked."""
    asked = []

    async def resolve(host, port):
        asked.append((host, port))
        return answers[len(asked) - 1]

    return resolve, asked


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:169.254.169.254"]]
)
def test_a_host_with_any_address_that_is_not_public_is_refused(addresses):
    resolve, _ = resolving(addresses)

    report = send(Webhooks({"default": SECRET}, resolve=resolve), hook("https://hooks.example/"))

    assert (report.category, report.permanent, report.unclear) == ("address", True, False)


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0", "[::1]", "[::ffff:7f00:1]"]
)
def test_this_machine_is_not_reached_under_any_name(http_sink, host):
    report = send(Webhooks({"default": SECRET}), hook(f"https://{host}:{http_sink.port}/"))

    assert report.category in {"address", "dns"}
    assert http_sink.hits == []


@pytest.mark.parametrize(
    "url", ["http://hooks.example/", "https://user@hooks.example/", "ftp://hooks.example/", "https://"]
)
def test_urls_of_other_kinds_are_refused(url):
    report = send(Webhooks({"default": SECRET}), hook(url))

    assert (report.category, report.permanent) == ("address", True)


def test_a_name_is_resolved_once_and_the_connection_goes_there(http_sink):
    """A second answer, which a rebinding name would give, is never asked for."""
    resolve, asked = resolving(["127.0.0.1"])

    assert send(local(resolve=resolve), hook(f"http://hooks.example:{http_sink.port}/")) == Sent()

    assert asked == [("hooks.example", http_sink.port)]
    assert http_sink.hits[0].headers["host"] == f"hooks.example:{http_sink.port}"


def test_the_certificate_has_to_be_that_of_the_name():
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("hooks.example").configure_cert(server)
    authority.configure_trust(client)
    with HttpSink(server) as sink:
        right, _ = resolving(["127.0.0.1"])
        wrong, _ = resolving(["127.0.0.1"])
        way = {"ssl_context": client}

        assert send(local(resolve=right, **way), hook(f"https://hooks.example:{sink.port}/")) == Sent()
        report = send(local(resolve=wrong, **way), hook(f"https://other.example:{sink.port}/"))

    assert (report.category, report.unclear) == ("connection", False)
    assert len(sink.hits) == 1


def test_a_redirect_is_not_followed(http_sink):
    report = send(local(), hook(f"{http_sink.url}/?do=redirect"))

    assert (report.category, report.permanent) == ("redirect", True)
    assert len(http_sink.hits) == 1


def test_a_name_that_does_not_resolve_is_tried_again():
    async def resolve(host, port):
        raise OSError(-2, "Name or service not known")

    report = send(Webhooks({"default": SECRET}, resolve=resolve), hook("https://hooks.example/"))

    assert (report.category, report.permanent, report.unclear) == ("dns", False, False)


def test_a_resolver_that_hangs_does_not_hang_us():
    async def resolve(host, port):
        await asyncio.Event().wait()

    way = Webhooks({"default": SECRET}, timeout=SHORT, resolve=resolve)

    assert send(way, hook("https://hooks.example/")).category == "dns"
