"""Signed webhooks (Standard Webhooks), to public addresses only.

The name is resolved once, every address it has must be public, and the connection goes to one of those: a name that
resolves to something else a moment later changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from onceward.deliveries.http import TIMEOUT, Request, failed, post
from onceward.deliveries.outgoing import NotSent, Outgoing, Report, Sent
from onceward.errors import InvalidArgument

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
PREFIX = "whsec_"
_EMBEDDED_V4 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))


async def resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Signing secrets by name (`whsec_…`, several for a change of secrets); a webhook that names none uses `default`.

    `allow_private` lets webhooks go to private addresses and over plain http: for tests, and for networks of one's own.
    """

    secrets: Mapping[str, str | Sequence[str]] = field(repr=False)
    allow_private: bool = False
    timeout: timedelta = TIMEOUT
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    resolve: Resolve = field(default=resolve, repr=False)

    name = "webhook"
    # The receiver tells a repetition by its webhook-id.
    idempotent_for = timedelta.max

    def __post_init__(self) -> None:
        if not self.secrets:
            raise InvalidArgument("secret of webhooks is missing", hint="Set ONCEWARD_WEBHOOK_SECRET.")
        for name in self.secrets:
            self._keys(name)

    async def send(self, outgoing: Outgoing) -> Report:
        content = outgoing.content
        name = content.get("secret") or "default"
        if name not in self.secrets:
            return NotSent("configuration", "no secret of that name is configured")
        try:
            async with asyncio.timeout(self.timeout.total_seconds()):
                address = await self._address(content["url"])
        except (OSError, TimeoutError) as error:
            return NotSent("dns", f"could not resolve the host: {type(error).__name__}")
        if isinstance(address, NotSent):
            return address
        body = json.dumps(content["payload"], ensure_ascii=False, separators=(",", ":")).encode()
        headers = self._signed(name, str(outgoing.id), int(outgoing.sending_at.timestamp()), body)
        answer = await post(Request(content["url"], body, headers, self.timeout, address, self.ssl_context))
        if isinstance(answer, NotSent):
            return answer
        return failed(answer, now=outgoing.sending_at) or Sent()

    def _signed(self, name: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
        signed = f"{message_id}.{timestamp}.".encode() + body
        signatures = [
            "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
            for key in self._keys(name)
        ]
        return {
            "Content-Type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": " ".join(signatures),
        }

    def _keys(self, name: str) -> list[bytes]:
        given = self.secrets[name]
        listed = [given] if isinstance(given, str) else list(given)
        try:
            keys = [base64.b64decode(text.removeprefix(PREFIX), validate=True) for text in listed]
        except (binascii.Error, ValueError):
            keys = []
        if not keys or min(map(len, keys)) < 16:
            raise InvalidArgument(
                f'webhook secret "{name}" must be {PREFIX} and at least 16 bytes in base64',
                hint='Make one with: python -c "import base64, secrets; '
                "print('whsec_' + base64.b64encode(secrets.token_bytes(32)).decode())\"",
            )
        return keys

    async def _address(self, url: str) -> str | NotSent:
        """The address to connect to, or why not.  Never names it: the URL may be private."""
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").encode("idna").decode("ascii")
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except (ValueError, UnicodeError):
            return NotSent("address", "the URL cannot be read", permanent=True)
        if parts.scheme != "https" and not (self.allow_private and parts.scheme == "http"):
            return NotSent("address", "the URL is not https", permanent=True)
        if not host or parts.username is not None:
            return NotSent("address", "the URL has no host, or has a user name", permanent=True)
        found = await self.resolve(host, port)
        if not found:
            return NotSent("dns", "the host has no address")
        if not self.allow_private and not all(map(is_public, found)):
            return NotSent("address", "the host has an address that is not public", permanent=True)
        return found[0]


def is_public(text: str) -> bool:
    """Whether an address belongs to the public Internet, also when it wraps another one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and any(address in network for network in _EMBEDDED_V4):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast
