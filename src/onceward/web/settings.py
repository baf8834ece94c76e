"""How the web pages are served."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onceward.errors import InvalidArgument

if TYPE_CHECKING:
    from onceward.app import Onceward
    from onceward.web.sections import Section

_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?")


@dataclass(frozen=True, slots=True)
class Sso:
    """Who vouches for people: a proxy or provider that sends a JWT with each request.

    `keys_url` serves its public keys (JWKS).  `header` names the header, or is `Authorization` for a bearer token.
    Cloudflare Access: issuer and keys_url are those of the team's domain, the audience is that of the application.
    """

    issuer: str
    audience: str
    keys_url: str
    header: str = "Cf-Access-Jwt-Assertion"
    algorithm: str = "RS256"
    # The claim that is the operator's name.
    claim: str = "email"

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> Sso | None:
        """ONCEWARD_SSO_ISSUER, _AUDIENCE, _KEYS_URL, and where they differ from the defaults _HEADER, _ALGORITHM, _CLAIM."""
        given = {
            name: environ[variable]
            for name in ("issuer", "audience", "keys_url", "header", "algorithm", "claim")
            if environ.get(variable := f"ONCEWARD_SSO_{name.upper()}")
        }
        if not given:
            return None
        missing = [
            f"ONCEWARD_SSO_{name.upper()}" for name in ("issuer", "audience", "keys_url") if name not in given
        ]
        if missing:
            raise InvalidArgument(
                f"single sign-on is set up in part: {', '.join(missing)} is missing",
                hint="Set issuer, audience and keys URL, or none of the ONCEWARD_SSO_ variables.",
            )
        return Sso(**given)


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """Bounds of `/api/v1`."""

    # Of pages elsewhere whose scripts may ask, as https://shop.example; none unless named.
    origins: Sequence[str] = ()
    # Requests a second of one token to this process, and how many at once after a pause.
    rate: float = 100.0
    burst: float = 200.0
    # Wrong tokens a second from one address before it has to wait; twenty times as many at once.
    guesses: float = 1.0
    # How large a request may be, and how long it may take to arrive.
    body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 15.0

    def __post_init__(self) -> None:
        for origin in self.origins:
            if not _ORIGIN.fullmatch(origin):
                raise InvalidArgument(
                    f"an origin is a scheme and a host, got {origin!r:.100}",
                    hint="Write it as https://shop.example, without a path. There is no origin that stands for all.",
                )
        for name in ("rate", "burst", "guesses", "body_bytes", "body_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidArgument(f"{name} of the API must be more than 0, got {getattr(self, name)}")

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> ApiSettings:
        """ONCEWARD_API_ORIGINS (separated by commas), _RATE (a second; twice as many at once), _BODY_BYTES."""
        given: dict[str, Any] = {}
        if named := environ.get("ONCEWARD_API_ORIGINS"):
            given["origins"] = tuple(origin.strip() for origin in named.split(",") if origin.strip())
        if rate := environ.get("ONCEWARD_API_RATE"):
            given["rate"] = _number("ONCEWARD_API_RATE", rate)
            given["burst"] = max(1.0, 2 * given["rate"])
        if most := environ.get("ONCEWARD_API_BODY_BYTES"):
            given["body_bytes"] = int(_number("ONCEWARD_API_BODY_BYTES", most))
        return ApiSettings(**given)


def _number(variable: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgument(f"the variable {variable} must be a number, got {text!r:.100}") from None


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Options of `onceward web`."""

    dsn: str | None = None
    # Whose tasks the API enqueues with their own defaults and schemas.
    apps: Sequence[Onceward] = ()
    sections: Sequence[Section] = ()
    sso: Sso | None = None
    api: ApiSettings = field(default_factory=ApiSettings)
    # Whoever comes from this machine may read without signing in.  Always so while there is no operator and no sso.
    local_reading: bool = False
    pool_size: int = 6
