"""Single sign-on: somebody else has checked who it is, and says so in a signed token with every request.

Works with Cloudflare Access, and with any proxy or provider that sends a JWT and publishes its keys (OIDC).  The token
must be signed by one of those keys with the one algorithm that is set, for our audience, by that issuer, and not be over.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import httpx
from starlette.exceptions import HTTPException
from starlette.requests import Request

from onceward import logs
from onceward.calls import access
from onceward.errors import InvalidArgument, OncewardError
from onceward.web.database import Database
from onceward.web.identity import Identity
from onceward.web.settings import Sso

if TYPE_CHECKING:
    import jwt as pyjwt

log = logs.get("onceward.web")
ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
# Keys are fetched again when they are this old, and, no more often than this, when a token names one that is new.
KEEP, AT_LEAST = 3600.0, 30.0
MOST_BYTES = 256 * 1024
LEEWAY = 30


class SsoDoor:
    """Checks tokens.  Keys are kept; while they cannot be fetched, the old ones are used."""

    def __init__(self, settings: Sso, database: Database) -> None:
        if settings.algorithm not in ALGORITHMS:
            raise InvalidArgument(
                f"algorithm of single sign-on must be one of {', '.join(sorted(ALGORITHMS))}, got {settings.algorithm!r}",
                detail="One that is symmetric, or none, would let anybody sign.",
            )
        try:
            import jwt  # noqa: F401 - looked for at the start, not at the first request
        except ImportError:
            raise OncewardError(
                "single sign-on needs PyJWT", hint='Install it with: pip install "onceward[sso]"'
            ) from None
        self._settings = settings
        self._database = database
        self._keys: dict[str | None, pyjwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._fetching = asyncio.Lock()

    async def operator(self, request: Request) -> Identity | None:
        """Who it is; None when there is no token.  A token that does not hold is refused, not passed over."""
        token = self._token(request)
        if token is None:
            return None
        name = await self.verify(token)
        found = await self._database.serve(access.operator_named(name))
        if found is None:
            raise HTTPException(
                403, f'"{name}" is known to the sign-in provider, but is no operator here: an administrator adds one with '
                "onceward operator add",
            )  # fmt: skip
        return Identity(*found, method="sso")

    def _token(self, request: Request) -> str | None:
        value = request.headers.get(self._settings.header)
        if value and self._settings.header.lower() == "authorization":
            kind, _, value = value.partition(" ")
            if kind.lower() != "bearer":
                return None
        return value or None

    async def verify(self, token: str) -> str:
        """The name that the token vouches for.  Raises HTTPException 401."""
        import jwt

        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[self._settings.algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "aud", "iss", self._settings.claim]},
            )
        except jwt.PyJWTError as error:
            # What is wrong goes to the log; whoever guesses is told nothing.
            log.warning("sso_refused", reason=type(error).__name__)
            raise HTTPException(401, "the sign-in token does not hold") from None
        name = claims[self._settings.claim]
        if not isinstance(name, str) or not name:
            raise HTTPException(401, "the sign-in token does not hold")
        return name

    async def _key(self, key_id: str | None) -> pyjwt.PyJWK:
        import jwt

        age = None if self._fetched_at is None else time.monotonic() - self._fetched_at
        if age is None or age > KEEP or (key_id not in self._keys and age > AT_LEAST):
            await self._fetch(age)
        if key_id not in self._keys:
            raise jwt.InvalidKeyError
        return self._keys[key_id]

    async def _fetch(self, age: float | None) -> None:
        import jwt

        async with self._fetching:
            now = time.monotonic()
            if age is not None and self._fetched_at is not None and now - self._fetched_at < age:
                return
            try:
                async with httpx.AsyncClient(timeout=5, follow_redirects=False) as client:
                    answer = await client.get(self._settings.keys_url)
                answer.raise_for_status()
                found = jwt.PyJWKSet.from_dict(json.loads(answer.content[:MOST_BYTES])).keys
            except (httpx.HTTPError, ValueError, jwt.PyJWTError, AttributeError, TypeError) as error:
                log.warning("sso_keys_not_fetched", reason=type(error).__name__)
                if not self._keys:
                    raise HTTPException(
                        503, "the keys of the sign-in provider could not be fetched"
                    ) from None
                # Not again for a while: the provider may be down.
                self._fetched_at = now - KEEP + AT_LEAST
                return
            self._keys = {key.key_id: key for key in found}
            self._fetched_at = now
