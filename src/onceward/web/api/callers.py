"""Who calls: a token with its scopes, and the rights that each scope has in the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Security
from fastapi.security import HTTPBearer, SecurityScopes
from starlette.requests import Request

from onceward.model_web import SCOPES
from onceward.web.api.problems import Field, Refused
from onceward.web.identity import ACTING, READ_ONLY

PRODUCING = "onceward_producer"
_ROLES = {"read": READ_ONLY, "enqueue": PRODUCING, "operate": ACTING}
# Described as a scheme; the guard has looked at the header long before.
_bearer = HTTPBearer(
    scheme_name="token",
    description='A token of "onceward token create": `Authorization: Bearer owt_…`.',
    auto_error=False,
)


@dataclass(frozen=True, slots=True)
class Rights:
    """What one request may do: no more than its scope needs, whatever else the token may."""

    name: str
    scope: str
    database_role: str


@dataclass(frozen=True, slots=True)
class Caller:
    """A token that was found."""

    name: str
    scopes: frozenset[str]
    tenant: str | None

    def has(self, scope: str) -> bool:
        return scope in self.scopes or (scope == "read" and "operate" in self.scopes)

    @property
    def reading(self) -> Rights:
        return self._rights("read", self.tenant or "*")

    @property
    def operating(self) -> Rights:
        return self._rights("operate", self.tenant or "*")

    def producing(self, tenant: str | None = None) -> Rights:
        """For one tenant: that of the token, else the one that the request names, else `default`.  Raises Refused."""
        return self._rights("enqueue", self.tenant_for(tenant) or "default")

    def tenant_for(self, named: str | None) -> str | None:
        """The tenant that a request is about, if it or the token names one.  Raises Refused."""
        if self.tenant is not None and named not in {None, self.tenant}:
            raise Refused(
                403,
                "wrong-tenant",
                "The token is bound to another tenant.",
                hint="Leave the tenant out, or use a token of that tenant.",
                errors=[Field("tenant", "body", "is not the tenant of the token", "Leave it out.")],
            )
        return self.tenant or named

    def check_shared(self, what: str) -> None:
        """Refuse to let one tenant change what all of them share."""
        if self.tenant is not None:
            raise Refused(
                403,
                "shared",
                f"{what} are shared by all tenants, and the token is bound to one.",
                hint="Use a token without a tenant.",
            )

    def _rights(self, scope: str, tenant: str) -> Rights:
        return Rights(f"token {self.name}", tenant, _ROLES[scope])


def allowed(wanted: SecurityScopes, request: Request, _header: Annotated[object, Depends(_bearer)]) -> Caller:
    """The caller, who has the scope; and the address, which has no parameter that nobody reads.  Raises Refused."""
    caller: Caller = request.state.caller
    for scope in wanted.scopes:
        if not caller.has(scope):
            raise Refused(
                403,
                "missing-scope",
                f"The token lacks the scope {scope}.",
                hint=f'Create one with "onceward token create NAME --scope {scope}".',
            )
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise Refused(
            422,
            "invalid-request",
            "The address has parameters that this operation does not take.",
            errors=[
                Field(
                    name[:100],
                    "query",
                    "is not a parameter of this operation",
                    f"Remove it; known: {', '.join(sorted(known)) or 'none'}.",
                )
                for name in unknown[:20]
            ],
        )
    return caller


assert set(_ROLES) == set(SCOPES)
Reader = Annotated[Caller, Security(allowed, scopes=["read"])]
Producer = Annotated[Caller, Security(allowed, scopes=["enqueue"])]
Operator = Annotated[Caller, Security(allowed, scopes=["operate"])]
