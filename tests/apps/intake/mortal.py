"""The system as processes of the load test run it: `onceward worker tests.apps.intake.mortal:app`, and the functions behind uvicorn."""

from __future__ import annotations

import os
from pathlib import Path

from starlette.applications import Starlette

from onceward_apps.intake import store
from onceward_apps.intake.jobs import make_app
from onceward_apps.intake.routes import Functions
from onceward_apps.intake.settings import Settings
from onceward_apps.kit.storage import Storage
from tests.apps.intake.provider import reading_by
from tests.apps.intake.stage import SECRET, SmallReading

# Without the variable the module can still be imported, by what looks through all of them.
FOLDER = Path(os.environ.get("INTAKE_LOAD_FOLDER", "."))
# A provider that counts, where the load test of limits names one.
PROVIDER = os.environ.get("INTAKE_LOAD_PROVIDER")
settings = Settings(
    storage=Storage(FOLDER.absolute().as_uri(), "/records/objects", [SECRET.encode()]),
    jwt_secrets=(SECRET,),
    extractor="openai" if PROVIDER else "embedded",
)
reading = reading_by(PROVIDER) if PROVIDER else SmallReading()
app = make_app(settings, reading=lambda: reading)


def functions() -> Starlette:
    """For uvicorn, as a factory: the processes of a test name the database."""
    return Starlette(routes=Functions(settings, store.Database(os.environ["ONCEWARD_DSN"], size=20)).routes)
