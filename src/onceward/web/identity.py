"""Who looks at a page, and what they may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from onceward.model_web import ROLES

READ_ONLY, ACTING = "onceward_auditor", "onceward_operator"


class Actor(Protocol):
    """In whose name a transaction runs: what the records call them, for which tenant, with which rights."""

    @property
    def name(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def database_role(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody with a role.  `method` says how we know: link, sso, token, or local for a reader on this machine."""

    name: str
    role: str
    tenant: str | None
    method: str

    def may(self, role: str) -> bool:
        """Whether this role is theirs, or a lesser one."""
        return ROLES.index(self.role) >= ROLES.index(role)

    @property
    def acts(self) -> bool:
        return self.may("operator")

    @property
    def acts_for_all(self) -> bool:
        """Lanes and what else the tenants share is not changed by who is bound to one of them."""
        return self.acts and self.tenant is None

    @property
    def database_role(self) -> str:
        """Their rights in the database, which refuses whatever a page forgets to."""
        return ACTING if self.acts else READ_ONLY

    @property
    def scope(self) -> str:
        """The tenant to set; all of them for who is bound to none."""
        return self.tenant or "*"


def reader() -> Identity:
    """Somebody on this machine who has not signed in."""
    return Identity("reader", "viewer", None, "local")


def from_scopes(name: str, scopes: Sequence[str], tenant: str | None) -> Identity:
    return Identity(name, "operator" if "operate" in scopes else "viewer", tenant, "token")
