"""The place of the proof system in the web: the portal for operators, pages for customers, routes for programs."""

from __future__ import annotations

from pathlib import Path

from onceward import Onceward
from onceward.web import Section, Web
from onceward.web.sections import Link
from onceward_apps.proof import sample, store
from onceward_apps.proof.pages import questions
from onceward_apps.proof.pages.batches import BatchPages
from onceward_apps.proof.pages.decisions import DecisionPages
from onceward_apps.proof.pages.functions import Functions
from onceward_apps.proof.pages.public import PREFIX, PublicPages
from onceward_apps.proof.settings import Settings

_HERE = Path(__file__).parent


def make_section(app: Onceward, settings: Settings) -> Section:
    async def fill(web: Web) -> None:
        await sample.fill(web.database.dsn, settings.storage)

    return Section(
        name="proof",
        title="Proof of safety",
        pages=[*BatchPages(settings).routes, *DecisionPages(settings).routes, *questions.ROUTES],
        links=[
            Link("/proof/batches", "Batches"),
            Link("/proof/dead-letters", "Dead letters"),
            Link("/proof/questions", "Health"),
            Link("/proof/products", "Products"),
            Link(f"{PREFIX}/", "Customers' page"),
        ],
        templates=_HERE / "templates",
        static=_HERE / "static",
        public=[*PublicPages(app, settings).routes, *Functions(app, settings).routes],
        prepare=store.install,
        samples=fill,
    )
