"""How the web pages are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onceward.errors import InvalidArgument

if TYPE_CHECKING:
    from onceward.app import Onceward
    from onceward.web.sections import Section


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
class WebSettings:
    """Options of `onceward web`."""

    dsn: str | None = None
    # What adds its own pages, and whose tasks can be tried out.
    app: Onceward | None = None
    sections: Sequence[Section] = ()
    sso: Sso | None = None
    # Whoever comes from this machine may read without signing in.  Always so while there is no operator and no sso.
    local_reading: bool = False
    pool_size: int = 6
