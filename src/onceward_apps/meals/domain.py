"""The rules that need no database: handles, what a QR code says, what an SQLSTATE means."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal
from uuid import UUID

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ISSUER, AUDIENCE = "frontier-meals", "meal-redemption"
HANDLE_RULE = "Handle must start with @ and be 2-32 characters"
# As it is written: with @, or as the link that Telegram gives for it.  The field of the form has the same rule.
HANDLE_FORM = r"(?:@|(?:[Hh]ttps?://)?[Tt]\.me/)([A-Za-z0-9_]{1,31})/?"
_HANDLE = re.compile(HANDLE_FORM)
_CLAIMS = ("iss", "aud", "sub", "jti", "service_date", "iat", "exp")


def parse_handle(given: object) -> str | None:
    """The handle with @ and without blanks around it; None when it is no handle."""
    if not isinstance(given, str):
        return None
    found = _HANDLE.fullmatch(given.strip())
    return f"@{found[1]}" if found else None


# ------------------------------------------------------------ QR codes


@dataclass(frozen=True, slots=True)
class QrToken:
    """One meal of one customer.  What is stored about it is not enough to make the code: that takes the key."""

    jti: UUID
    customer_id: UUID
    service_date: date
    issued_at: datetime
    expires_at: datetime


class BadQr(ValueError):
    """Not a code of ours.  Says why, and never repeats what was scanned."""


class QrExpired(BadQr):
    """A code of ours whose day is over."""


@dataclass(frozen=True, slots=True)
class QrKey:
    """A key and the one algorithm it is used with.  `kid` is its public name."""

    kid: str
    algorithm: Literal["EdDSA", "HS256"]
    secret: Ed25519PrivateKey | bytes

    @property
    def verifier(self) -> Ed25519PublicKey | bytes:
        return self.secret if isinstance(self.secret, bytes) else self.secret.public_key()


class QrKeys:
    """Signs with the first key, and knows codes signed with any of them: so keys can be changed in the middle of a day."""

    def __init__(self, keys: Sequence[QrKey]) -> None:
        if not keys:
            raise ValueError("at least one key is needed to sign QR codes")
        self._signer = keys[0]
        self._known = {key.kid: key for key in keys}

    @classmethod
    def parse(cls, text: str) -> QrKeys:
        """From `name=eddsa:BASE64` or `name=hs256:BASE64`, separated by commas; 32 bytes each, at least for hs256."""
        return cls([_parse_key(part.strip()) for part in text.split(",") if part.strip()])

    def sign(self, token: QrToken) -> str:
        """The same text for the same token and key, so that it need not be stored."""
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": token.customer_id.hex,
            "jti": token.jti.hex,
            "service_date": token.service_date.isoformat(),
            "iat": int(token.issued_at.timestamp()),
            "exp": int(token.expires_at.timestamp()),
        }
        signer = self._signer
        return jwt.encode(claims, signer.secret, algorithm=signer.algorithm, headers={"kid": signer.kid})

    def read(self, text: str, *, now: datetime) -> QrToken:
        """The token in a scanned code.  Raises BadQr, or QrExpired when its day is over at `now`."""
        try:
            key = self._known[str(jwt.get_unverified_header(text).get("kid"))]
            claims = jwt.decode(
                text,
                key.verifier,
                # The header's own opinion of the algorithm is not asked.
                algorithms=[key.algorithm],
                audience=AUDIENCE,
                issuer=ISSUER,
                # The database's clock decides, below.
                options={"require": list(_CLAIMS), "verify_exp": False, "verify_iat": False},
            )
            token = _token(claims)
        except (jwt.PyJWTError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise BadQr(f"not a code of ours ({type(error).__name__})") from None
        if token.expires_at <= now:
            raise QrExpired(f"the code was for {token.service_date}")
        return token


def _token(claims: Mapping[str, object]) -> QrToken:
    issued, expires = claims["iat"], claims["exp"]
    if not isinstance(issued, int) or not isinstance(expires, int):
        raise TypeError("iat and exp are whole seconds")
    return QrToken(
        jti=UUID(str(claims["jti"])),
        customer_id=UUID(str(claims["sub"])),
        service_date=date.fromisoformat(str(claims["service_date"])),
        issued_at=datetime.fromtimestamp(issued, UTC),
        expires_at=datetime.fromtimestamp(expires, UTC),
    )


def _parse_key(text: str) -> QrKey:
    hint = "Write it like name=eddsa:BASE64 or name=hs256:BASE64."
    kid, _, rest = text.partition("=")
    algorithm, _, encoded = rest.partition(":")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError(f"key of QR codes is not base64.  {hint}") from None
    if not kid or algorithm not in {"eddsa", "hs256"}:
        raise ValueError(f"key of QR codes cannot be read.  {hint}")
    if len(raw) < 32 or (algorithm == "eddsa" and len(raw) != 32):
        raise ValueError(f"key of QR codes must be 32 bytes, got {len(raw)}")
    if algorithm == "hs256":
        return QrKey(kid, "HS256", raw)
    return QrKey(kid, "EdDSA", Ed25519PrivateKey.from_private_bytes(raw))


# ------------------------------------------------------------ trouble with the database

Trouble = Literal["cancelled", "connection", "resources", "conflict", "other"]


def trouble_of(sqlstate: str | None) -> Trouble:
    """What a failed statement means for those that come after it.

    57014 is a cancelled statement (a time limit, say): the connection is fine, and the next customer may pass.  Class 08 and
    57P0x are lost connections; without an SQLSTATE, the server was not even reached.
    """
    if sqlstate is None or sqlstate[:2] == "08" or sqlstate[:4] == "57P0":
        return "connection"
    if sqlstate == "57014":
        return "cancelled"
    if sqlstate[:2] == "53":
        return "resources"
    if sqlstate[:2] == "40":
        return "conflict"
    return "other"
