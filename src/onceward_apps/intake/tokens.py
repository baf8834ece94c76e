"""Tokens of users and services, and links that sign somebody in: JWTs, signed with HS256 and nothing else, with an end and an audience."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID, uuid4

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


@dataclass(frozen=True, slots=True)
class Link:
    """Whom a link signs in, and its own id: it holds once, until its end."""

    user: UUID
    id: UUID
    until: datetime


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


def issue_link(settings: Settings, user: UUID, *, lasts: timedelta) -> str:
    """For the address of a link.  Its audience is its own: it is no token for functions, and a token is no link."""
    moment = datetime.now(UTC)
    claims = {"aud": _link_audience(settings), "sub": str(user), "jti": str(uuid4()), "exp": moment + lasts}
    return jwt.encode(claims, settings.jwt_secrets[0], algorithm=ALGORITHM)


def verify(settings: Settings, token: str) -> Caller:
    """Raises Unauthorized."""
    claims = _claims(settings, token, settings.audience, ["exp", "aud"])
    return _caller(claims.get("role"), claims.get("sub"))


def verify_link(settings: Settings, token: str) -> Link:
    """Raises Unauthorized.  Whether it was used is for the database to say."""
    claims = _claims(settings, token, _link_audience(settings), ["exp", "aud", "sub", "jti"])
    try:
        return Link(UUID(claims["sub"]), UUID(claims["jti"]), datetime.fromtimestamp(claims["exp"], UTC))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise Unauthorized from None


def _link_audience(settings: Settings) -> str:
    return f"{settings.audience}:link"


def _claims(settings: Settings, token: str, audience: str, required: list[str]) -> dict[str, Any]:
    for secret in settings.jwt_secrets:
        try:
            return jwt.decode(
                token, secret, algorithms=[ALGORITHM], audience=audience, options={"require": required}
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.InvalidTokenError:
            raise Unauthorized from None
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
