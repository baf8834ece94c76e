from __future__ import annotations

import dataclasses

import pytest

from onceward.web import WebSettings
from onceward_apps.proof import store
from onceward_apps.proof.sample import load
from onceward_apps.proof.section import make_section
from tests.apps.proof.stage import WORKER_SECRET, Proof
from tests.deliveries.sinks import HttpSink, MailSink
from tests.web.conftest import Site, chromium

__all__ = ["chromium"]


@pytest.fixture(scope="session")
def proof_template(onceward_server):
    """The schema and the sample data, installed once."""
    with onceward_server.cloned() as template:
        store.install(template.dsn)
        load(template.dsn)
        yield template


@pytest.fixture
def database(onceward_server, proof_template):
    with onceward_server.cloned(proof_template) as database:
        yield database


@pytest.fixture
def mail():
    with MailSink() as sink:
        yield sink


@pytest.fixture
def chat():
    with HttpSink() as sink:
        yield sink


@pytest.fixture
def sql(database, tmp_path):
    """The schema alone, and time that stands still."""
    proof = Proof(database.dsn, tmp_path)
    proof.clock.pin()
    yield proof
    proof.close()


@pytest.fixture
def proof(database, tmp_path, mail, chat):
    """With a worker's application, an SMTP server, a chat server and a folder."""
    proof = Proof(database.dsn, tmp_path / "bucket", mail, chat)
    proof.mail, proof.chat = mail, chat
    yield proof
    proof.close()


@pytest.fixture
def serve(proof):
    """The web with the section of the proof system, on a real server."""
    sites = []

    def start(**changes) -> Site:
        settings = dataclasses.replace(proof.settings, worker_secret=WORKER_SECRET, **changes)
        section = make_section(proof.app, settings)
        sites.append(Site(proof, WebSettings(dsn=proof.dsn, apps=[proof.app], sections=[section])))
        return sites[-1]

    yield start
    for site in sites:
        site.close()


@pytest.fixture
def site(serve):
    return serve()


@pytest.fixture
def ana(site):
    return site.signed_in()


@pytest.fixture
def public(site):
    """Somebody with a phone."""
    return site.visitor().http
