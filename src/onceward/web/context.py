"""What every page needs, in one object that travels with the application."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from starlette.requests import Request

from onceward.web.database import Database
from onceward.web.identity import Identity
from onceward.web.settings import WebSettings

if TYPE_CHECKING:
    from jinja2 import Environment

    from onceward.web.live import Live
    from onceward.web.metrics import Gauges
    from onceward.web.sso import SsoDoor


@dataclass(slots=True)
class Web:
    """The pages of one process."""

    settings: WebSettings
    database: Database
    templates: Environment
    live: Live
    sso: SsoDoor | None
    gauges: Gauges
    # Held while the audit log is verified.
    verifying: threading.Lock = field(default_factory=threading.Lock)


def web_of(request: Request) -> Web:
    return cast("Web", request.app.state.web)


def identity_of(request: Request) -> Identity:
    """Who looks.  Pages behind the sign-in always have somebody."""
    return cast("Identity", request.state.identity)
