"""Tokens of users and services: JWTs, signed with HS256 and nothing else, with an end and an audience."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

import jwt

from onceward_apps.intake.settings import Settings

# Fixed: what a token says about its own algorithm is not asked.
ALGORITHM: Final = "HS256"
Role = Literal["authenticated", "service_role"]


class Unauthorized(Exception):
    """The token is missing, wrong, over, or for somebody else.  Which of these is not told."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a token speaks for.  A service has no user."""

    role: Role
    user: UUID | None


def issue(
    settings: Settings,
    user: UUID | None,
    *,
    lasts: timedelta,
    role: Role = "authenticated",
    now: datetime | None = None,
) -> str:
    moment = now or datetime.now(UTC)
    claims = {"aud": settings.audience, "role": role, "iat": moment, "exp": moment + lasts}
    if user is not None:
        claims["sub"] = str(user)
    return jwt.encode(claims, settings.jwt_secrets[0], algorithm=ALGORITHM)


def verify(settings: Settings, token: str) -> Caller:
    """Raises Unauthorized."""
    for secret in settings.jwt_secrets:
        try:
            claims = jwt.decode(
                token,
                secret,
                algorithms=[ALGORITHM],
                audience=settings.audience,
                options={"require": ["exp", "aud"]},
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.InvalidTokenError:
            raise Unauthorized from None
        return _caller(claims.get("role"), claims.get("sub"))
    raise Unauthorized


def _caller(role: object, subject: object) -> Caller:
    if role == "service_role" and subject is None:
        return Caller("service_role", None)
    if role != "authenticated" or not isinstance(subject, str):
        raise Unauthorized
    try:
        return Caller("authenticated", UUID(subject))
    except ValueError:
        raise Unauthorized from None
