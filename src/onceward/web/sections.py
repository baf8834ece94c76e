"""Sections: how an application adds pages, routes, sample data and its place in the navigation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

from onceward.errors import InvalidArgument

if TYPE_CHECKING:
    from onceward.web.context import Web


RESERVED = frozenset(
    {"alerts", "api", "audit", "channels", "components", "dead_letters", "deliveries", "doctor", "healthz", "jobs", "lanes", "limits",
     "live", "metrics", "monitors", "onceward", "pages", "readyz", "retention", "schedules", "sign_in", "static", "v1",
     "workers", "workflows"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the navigation."""

    path: str
    title: str
    # A count to show beside it, by name; see layout.Frame.counts.
    count: str | None = None
    # The letter that leads here, after g; none for pages of sections.
    key: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """What one application adds.

    `name` is part of its addresses: pages lie under /name, routes of its API under /api/name.
    `templates` is a folder; a template "orders.html" of the section "shop" is rendered as "shop/orders.html" and begins with
    {% extends "page.html" %}.
    `public` routes stand at the root and are open to everybody: no sign-in and no CSRF token, so they check for themselves.
    `prepare` brings what the application needs of the database up to date, given its DSN: `onceward up` calls it before
    anything starts, at every start.
    `samples` fills in sample data; `onceward up` calls it at every start, and keys make the second call change nothing.
    """

    name: str
    title: str
    pages: Sequence[BaseRoute] = ()
    api: Sequence[BaseRoute] = ()
    links: Sequence[Link] = ()
    templates: Path | None = None
    static: Path | None = None
    public: Sequence[BaseRoute] = ()
    prepare: Callable[[str], object] | None = None
    samples: Callable[[Web], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower() or self.name in RESERVED:
            raise InvalidArgument(
                f"a section needs a name of its own in small letters, got {self.name!r}",
                detail=f"Taken: {', '.join(sorted(RESERVED))}.",
            )
        for route in (*self.pages, *self.api, *self.public):
            if not getattr(route, "path", "").startswith("/"):
                raise InvalidArgument(f'section "{self.name}": a route begins with /, got {route!r}')
