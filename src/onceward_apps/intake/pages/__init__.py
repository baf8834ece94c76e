"""The pages: those of the people whose documents these are, and one for operators."""

from __future__ import annotations

from pathlib import Path

from onceward.web.sections import Link, Section
from onceward_apps.intake import samples, store
from onceward_apps.intake.pages.console import Console
from onceward_apps.intake.pages.records import Records
from onceward_apps.intake.routes import Functions
from onceward_apps.intake.settings import Settings

_HERE = Path(__file__).parent.parent


def section(settings: Settings, database: store.Database) -> Section:
    functions = Functions(settings, database)

    def prepare(dsn: str) -> None:
        store.install(dsn)
        # `onceward up --dsn` knows better than the environment.
        database.dsn = dsn

    return Section(
        name="intake",
        title="Health intake",
        pages=Console(settings, database).routes,
        links=[Link("/intake/", "Health intake")],
        templates=_HERE / "templates",
        static=_HERE / "static",
        public=[*functions.routes, *Records(settings, database, functions).routes],
        prepare=prepare,
        samples=samples.filler(settings, database),
    )
