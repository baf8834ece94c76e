"""Email by SMTP.  One connection per message: none that was kept can turn out dead in the middle of the next one.

The final dot decides: before it was sent, the message certainly did not arrive; once it was, only the server's reply tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from onceward.deliveries.content import parse_address
from onceward.deliveries.message import build, message_id
from onceward.deliveries.outgoing import NotSent, Outgoing, Report, Sent
from onceward.errors import InvalidArgument

if TYPE_CHECKING:
    import aiosmtplib

Security = Literal["tls", "starttls", "none"]
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})\b")
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?")
GOODBYE = 2.0


class _Refused(Exception):
    def __init__(self, report: NotSent) -> None:
        self.report = report


@dataclass(frozen=True, slots=True)
class Smtp:
    """A mail server.  `security` is TLS from the start, STARTTLS (required, not hoped for), or none."""

    host: str
    port: int = 587
    security: Security = "starttls"
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sender: str = ""
    # Per command; the reply to the final dot may take twice as long, because giving up there is dear.
    timeout: timedelta = timedelta(seconds=30)
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)

    name = "smtp"
    # A second DATA is a second mail, although the Message-ID is the same.
    idempotent_for = None

    def __post_init__(self) -> None:
        if not self.sender:
            raise InvalidArgument("sender of an SMTP server is missing", hint="Set ONCEWARD_EMAIL_FROM.")
        parse_address("sender", self.sender)

    @classmethod
    def from_url(cls, url: str, *, sender: str, environ: Mapping[str, str] = os.environ) -> Smtp:
        """`smtp://user@host:587` (STARTTLS), `smtps://user@host:465` (TLS); `?security=none` for a server on this machine.

        The password is ONCEWARD_SMTP_PASSWORD, or part of the URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
            security = parse_qs(parts.query).get("security", [""])[0]
        except ValueError:
            parts, port, security = urlsplit(""), None, ""
        if parts.scheme not in {"smtp", "smtps"} or not parts.hostname or security not in {"", "none"}:
            raise InvalidArgument(
                "cannot read the URL of the SMTP server",
                hint="Write it like smtp://user@mail.example.com:587.",
            )
        kind: Security = "none" if security else "tls" if parts.scheme == "smtps" else "starttls"
        password = unquote(parts.password) if parts.password else environ.get("ONCEWARD_SMTP_PASSWORD")
        return cls(
            parts.hostname,
            port or (465 if kind == "tls" else 587),
            kind,
            unquote(parts.username) if parts.username else None,
            password,
            sender,
        )

    async def send(self, outgoing: Outgoing) -> Report:
        try:
            message = build(outgoing, parse_address("sender", self.sender))
            sender, _ = parse_address("sender", outgoing.content.get("from") or self.sender)
            body = _dotted(message.as_bytes())
        except (ValueError, KeyError, TypeError, InvalidArgument):
            return NotSent("content", "the content cannot be made into a message", permanent=True)
        client: aiosmtplib.SMTP | None = None
        transport: asyncio.BaseTransport | None = None
        try:
            client = await self._connected()
            transport = client.transport
            await self._envelope(client, sender, outgoing.content["to"])
            await self._body(client, body)
        except _Refused as refusal:
            return refusal.report
        else:
            with contextlib.suppress(Exception):
                await client.quit(timeout=GOODBYE)
            return Sent(message_id(outgoing, sender))
        finally:
            if client is not None:
                _close(client, transport)

    async def _connected(self) -> aiosmtplib.SMTP:
        """Nothing was said about the message yet, so that whatever goes wrong may pass later."""
        import aiosmtplib

        name = socket.gethostname()
        client = aiosmtplib.SMTP(
            hostname=self.host,
            port=self.port,
            timeout=self.timeout.total_seconds(),
            use_tls=self.security == "tls",
            start_tls=False,
            local_hostname=name if _HOSTNAME.fullmatch(name) else "localhost",
            tls_context=self.ssl_context or _default_context(),
        )
        category = "connection"
        try:
            await client.connect()
            if self.security == "starttls":
                category = "tls"
                await client.starttls()
            if self.user is not None:
                category = "auth"
                await client.login(self.user, self.password or "")
        except aiosmtplib.SMTPResponseException as error:
            _close(client)
            raise _Refused(NotSent(category, f"the server answered {_code(error)}")) from None
        except (aiosmtplib.SMTPException, OSError, TimeoutError, ValueError) as error:
            _close(client)
            raise _Refused(NotSent(category, f"could not open a session: {type(error).__name__}")) from None
        except BaseException:
            _close(client)
            raise
        return client

    async def _envelope(self, client: aiosmtplib.SMTP, sender: str, recipient: str) -> None:
        import aiosmtplib

        command = "MAIL"
        try:
            await client.mail(sender)
            command = "RCPT"
            await client.rcpt(recipient)
            command = "DATA"
            response = await client.execute_command(b"DATA")
        except aiosmtplib.SMTPResponseException as error:
            raise _Refused(_answered(command, error.code, error.message)) from None
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise _Refused(
                NotSent("connection", f"the connection broke at {command}: {type(error).__name__}")
            ) from None
        if response.code != 354:
            raise _Refused(_answered(command, response.code, response.message))

    async def _body(self, client: aiosmtplib.SMTP, body: bytes) -> None:
        import aiosmtplib

        try:
            async with asyncio.timeout(self.timeout.total_seconds()):
                await _flushed(client, body)
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise _Refused(
                NotSent("connection", f"the connection broke before the final dot: {type(error).__name__}")
            ) from None
        # From here on, the server may have taken the message.
        try:
            response = await client.execute_command(b".", timeout=2 * self.timeout.total_seconds())
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise _Refused(
                NotSent("no_reply", f"no reply to the final dot: {type(error).__name__}", unclear=True)
            ) from None
        if not 200 <= response.code < 300:
            raise _Refused(_answered("the message", response.code, response.message))


def _close(client: aiosmtplib.SMTP, transport: asyncio.BaseTransport | None = None) -> None:
    """At once: everything was said, and a server that hangs would keep a TLS connection half open.

    `transport`: what it was before the client may have closed it, which for TLS only begins to.
    """
    transport = client.transport or transport
    client.close()
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


async def _flushed(client: aiosmtplib.SMTP, body: bytes) -> None:
    """Write the message without its final dot, and wait until the operating system has all of it."""
    protocol, transport = client.protocol, client.transport
    if protocol is None or transport is None:
        raise ConnectionResetError
    protocol.write(body)
    while True:
        # One turn of the loop: a connection that was closed meanwhile is known as such.
        await asyncio.sleep(0)
        if transport.is_closing():
            raise ConnectionResetError
        if not isinstance(transport, asyncio.WriteTransport) or not transport.get_write_buffer_size():
            return
        await asyncio.sleep(0.01)


def _dotted(message: bytes) -> bytes:
    """As SMTP wants it: lines end in CRLF, and one that begins with a dot gets another."""
    lines = re.split(rb"\r\n|\n|\r", message)
    if lines[-1]:
        lines.append(b"")
    return b"\r\n".join(b"." + line if line.startswith(b".") else line for line in lines)


def _answered(what: str, code: int, text: str) -> NotSent:
    """4xx may pass later; anything else is an answer for good.  The server's words may repeat the address."""
    found = _ENHANCED.match(text)
    shown = f"{code} {found.group(1)}" if found else str(code)
    return NotSent("refused", f"the server answered {shown} to {what}", permanent=not 400 <= code < 500)


def _code(error: aiosmtplib.SMTPResponseException) -> int:
    return error.code


def _default_context() -> ssl.SSLContext:
    from onceward.deliveries.http import ssl_context

    return ssl_context()
