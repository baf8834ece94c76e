"""The pages on a real server and a real database; a real Chromium where there is one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from onceward.client import Client
from onceward.web import WebSettings, secrets
from onceward.web.server import make_server, open_socket

CHROMIUM = os.environ.get("ONCEWARD_TEST_CHROMIUM") or next(
    (
        found
        for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)
# How long a page may take on a busy machine; what comes sooner is not waited for.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


def pytest_report_header() -> str:
    return f"browser tests: {CHROMIUM or 'SKIPPED, no Chromium was found (apt-get install chromium)'}"


class Site:
    """Pages that are served, and ways to look at them."""

    def __init__(self, db, settings: WebSettings) -> None:
        self.db = db
        self.dsn = settings.dsn
        self._visitors: list[Visitor] = []
        ready = threading.Event()
        self._server = make_server(settings, started=ready.set)
        self._socket = open_socket("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self.address = f"http://localhost:{self.port}"
        self.web = self._server.config.app.state.web
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve([self._socket])), daemon=True
        )
        self._thread.start()
        assert ready.wait(20), "the server did not start"

    def close(self) -> None:
        for visitor in self._visitors:
            visitor.http.close()
        self._server.stop()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the server did not stop"
        self._socket.close()

    def link(self, name: str = "ana", role: str = "admin", tenant: str | None = None) -> str:
        """The path of a one-time link."""
        secret = secrets.new(secrets.LINK)
        self.db.run("select onceward.add_operator(%s, %s, %s)", name, role, tenant)
        self.db.run("select onceward.create_link(%s, %s)", name, secrets.digest(secret))
        return f"/sign-in?link={secret}"

    def token(self, *scopes: str, tenant: str | None = None) -> str:
        secret = secrets.new(secrets.TOKEN)
        self.db.run(
            "select onceward.create_token('ci', %s, %s, %s)", secrets.digest(secret), list(scopes), tenant
        )
        return secret

    def visitor(self, **headers: str) -> Visitor:
        self._visitors.append(
            Visitor(self, httpx.Client(base_url=self.address, headers=headers, timeout=20, verify=False))
        )
        return self._visitors[-1]

    def signed_in(self, name: str = "ana", role: str = "admin", tenant: str | None = None) -> Visitor:
        visitor = self.visitor()
        link = self.link(name, role, tenant).partition("link=")[2]
        answer = visitor.http.post("/sign-in", data={"link": link})
        assert answer.status_code == 303, answer.text
        return visitor


class Visitor:
    """Somebody with a browser that keeps cookies and runs no scripts."""

    def __init__(self, site: Site, http: httpx.Client) -> None:
        self.site = site
        self.http = http

    def get(self, path: str, status: int = 200) -> str:
        answer = self.http.get(path)
        assert answer.status_code == status, f"{path}: {answer.status_code}\n{answer.text[:3000]}"
        return answer.text

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="(\w+)"', self.get("/_components"))
        assert found, "the page has no form of ours"
        return found[1]

    def post(self, path: str, status: int = 303, **fields: str) -> httpx.Response:
        answer = self.http.post(path, data={"csrf": self.csrf, **fields})
        assert answer.status_code == status, f"{path}: {answer.status_code}\n{answer.text[:3000]}"
        return answer

    def confirm(self, path: str, status: int = 303, **fields: str) -> httpx.Response:
        """Open the page that asks, and send its form."""
        found = re.search(r'name="ids" value="([\w=-]*)"', self.get(path))
        assert found, "the page does not ask"
        return self.post(path, status, ids=found[1], **fields)


@pytest.fixture
def serve(db):
    """Serve the pages with these settings."""
    sites = []

    def start(**settings) -> Site:
        sites.append(Site(db, WebSettings(dsn=db.dsn, **settings)))
        return sites[-1]

    yield start
    for site in sites:
        site.close()


@pytest.fixture
def site(serve) -> Site:
    return serve()


@pytest.fixture
def ana(site) -> Visitor:
    return site.signed_in()


@pytest.fixture
def client(db):
    with Client(db.dsn) as client:
        yield client


@contextmanager
def browsers() -> Iterator[Callable[..., Browser]]:
    """What starts a Chromium, with more arguments if need be."""
    if CHROMIUM is None:
        pytest.skip("no Chromium was found")
    safe = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        yield lambda *more: playwright.chromium.launch(executable_path=CHROMIUM, args=[*safe, *more])


# Not of the session: while it lives, its event loop runs in this thread, and no other test could run its own.
@pytest.fixture(scope="module")
def chromium():
    with browsers() as start:
        browser = start()
        yield browser
        browser.close()


@pytest.fixture
def window(chromium, site):
    """Open a window, signed in; what a page complains about fails the test."""
    contexts, complaints = [], []

    def open_(name: str = "ana", role: str = "admin", tenant: str | None = None, **options) -> Page:
        options = {"viewport": {"width": 1280, "height": 800}, "base_url": site.address, **options}
        context = chromium.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                complaints.append(message.text) if "Content Security Policy" in message.text else None
            ),
        )
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.goto(site.link(name, role, tenant))
        page.get_by_role("button", name=f"Sign in as {name}").click()
        page.wait_for_url(f"{site.address}/")
        return page

    yield open_
    for context in contexts:
        context.close()
    # The preview of a mail has a policy that refuses what mails bring along.
    assert [text for text in complaints if "/deliveries/" not in text] == []
