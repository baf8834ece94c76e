"""The intake system on a database of a test: people, a folder, and something small that reads."""

from __future__ import annotations

import hashlib
from datetime import date, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row, namedtuple_row
from starlette.applications import Starlette

from onceward.testing import Kit
from onceward_apps.intake import store, tokens
from onceward_apps.intake.jobs import make_app
from onceward_apps.intake.reading import errors, kinds, names
from onceward_apps.intake.reading.model import (
    Classification,
    Extraction,
    Fact,
    Finding,
    NormalFact,
    PageImage,
    Scanned,
    Span,
    TimelineEntry,
    Usage,
    Word,
)
from onceward_apps.intake.routes import Functions
from onceward_apps.intake.settings import Settings
from onceward_apps.kit.storage import Storage

SECRET = "only for tests, and of no use elsewhere"
UPLOAD = "/functions/v1/shell-file-processor-v3"
AUDIT = "/functions/v1/audit-logger-v3"


def png(text: str = "Glucose 5.4 mmol/L", *, size: int = 0) -> bytes:
    """The beginning of a PNG, and the words that stand on it: what the small reader reads."""
    return b"\x89PNG\r\n\x1a\n" + text.encode() + b"\0" * max(0, size - 8 - len(text))


class SmallExtractor:
    """Passes 1 and 2 over words as they come; counts what it is asked, and answers what it is told to."""

    name = "small"

    def __init__(self) -> None:
        self.asked = 0
        self.tokens = 0
        self.trouble: list[Exception] = []
        self.confidence = 0.95

    def estimate(self, document) -> int:
        return 100 + len(document.text)

    async def classify(self, document) -> Classification:
        self._ask()
        return Classification("lab_report", self.confidence, "en", usage=self._use(document))

    async def extract(self, document, classification) -> Extraction:
        self._ask()
        words = [word for page in document.pages for word in page.words]
        facts = ()
        if len(words) >= 2:
            facts = (
                Fact("measurement", words[0].text, Span(1, 0, min(2, len(words) - 1)), self.confidence,
                     value=words[1].text, unit=words[2].text if len(words) > 2 else None),
            )  # fmt: skip
        return Extraction(facts, self._use(document))

    def _ask(self) -> None:
        self.asked += 1
        if self.trouble:
            raise self.trouble.pop(0)

    def _use(self, document) -> Usage:
        used = Usage(50 + len(document.text), 7)
        self.tokens += used.total
        return used


class SmallReading:
    """Takes the bytes after the signature for the text of one page."""

    def __init__(self) -> None:
        self.extractor = SmallExtractor()
        self.trouble: list[Exception] = []
        # The name that documents bear.
        self.bears: str | None = None

    def check(self, path, declared) -> Scanned:
        content = path.read_bytes()
        if b"EVIL" in content:
            raise errors.Refused("active_content", "the file contains something that runs")
        kind = kinds.sniff(content[: kinds.HEAD])
        return Scanned(kind, 1, hashlib.sha256(content).hexdigest(), (Finding("none"),))

    def render(self, path, kind):
        yield PageImage(1, 800, 1000, path.read_bytes())

    async def words(self, image) -> list[Word]:
        if self.trouble:
            raise self.trouble.pop(0)
        text = image.png[8:].rstrip(b"\0").decode("utf-8", "ignore")
        return [Word(word, 20 + 60 * i, 40, 50, 20, 0.9) for i, word in enumerate(text.split())]

    def normalise(self, facts):
        return [
            NormalFact(fact, fact.kind, fact.name, "2345-7", "LOINC", value=Decimal("5.4"), unit="mmol/L") for fact in facts
        ]  # fmt: skip

    def entry(self, document, facts, person) -> TimelineEntry:
        reasons = ("name_differs",) if self.bears and names.differ([self.bears], person) else ()
        return TimelineEntry(
            date(2026, 3, 4),
            document.kind,
            "Lab report",
            "1 value",
            None,
            0.9,
            len(facts),
            bool(reasons),
            reasons,
        )


class Intake:
    """The system on one database, with a folder and people: an owner, a friend who may read, a stranger."""

    def __init__(self, dsn, folder, reading=None, **settings):
        self.dsn = dsn
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.kit = Kit(dsn)
        self.clock = self.kit.clock
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.reading = reading or SmallReading()
        storage = Storage(folder.as_uri(), "/records/objects", [SECRET.encode()])
        self.settings = Settings(storage=storage, jwt_secrets=(SECRET,), **settings)
        self.app = make_app(self.settings, dsn, reading=lambda: self.reading)
        self.owner, self.friend, self.helper, self.stranger = uuid4(), uuid4(), uuid4(), uuid4()
        self.profile = self.add_profile(self.owner, "Maya Thompson")
        self.other = self.add_profile(self.stranger, "Somebody Else")
        self.give(self.friend, "read")
        self.give(self.helper, "write")

    def add_profile(self, owner, name) -> UUID:
        return self.one(
            "insert into intake.user_profiles (account_owner_id, display_name) values (%s, %s) returning id",
            owner,
            name,
        )

    def give(self, user, level) -> None:
        self.conn.execute(
            "insert into intake.profile_access (profile_id, user_id, access_level) values (%s, %s, %s)",
            [self.profile, user, level],
        )

    # ------------------------------------------------------------ the database

    def one(self, statement, *params, conn=None):
        row = (conn or self.conn).execute(statement, params).fetchone()
        return row[0] if row else None

    def all(self, statement, *params):
        return self.conn.execute(statement, params).fetchall()

    def row(self, statement, *params):
        return self.conn.cursor(row_factory=dict_row).execute(statement, params).fetchone()

    def row_of(self, statement, **params):
        """One row, with its columns as attributes."""
        return self.conn.cursor(row_factory=namedtuple_row).execute(statement, params).fetchone()

    def file(self, file_id):
        return self.row("select * from intake.shell_files where id = %s", file_id)

    def configure(self, key, value) -> None:
        self.conn.execute(
            "update intake.system_configuration set config_value = %s::jsonb where config_key = %s",
            [value, key],
        )

    # ------------------------------------------------------------ calls

    def token(self, user=None, **given) -> str:
        given = {"lasts": timedelta(hours=1), **given}
        return tokens.issue(self.settings, user or self.owner, **given)

    def link_token(self, user=None, lasts=timedelta(hours=1)) -> str:
        return tokens.issue_link(self.settings, user or self.owner, lasts=lasts)

    def drain(self) -> int:
        return self.kit.drain(self.app)

    def asgi(self) -> Starlette:
        """The functions alone, for a server or a transport."""
        return Starlette(routes=Functions(self.settings, store.Database(self.dsn)).routes)

    def objects(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def close(self):
        self.conn.close()
        self.kit.close()
