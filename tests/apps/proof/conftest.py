from __future__ import annotations

import pytest

from onceward_apps.proof import store
from onceward_apps.proof.sample import load
from tests.apps.proof.stage import Proof
from tests.deliveries.sinks import HttpSink, MailSink


@pytest.fixture(scope="session")
def proof_template(onceward_server):
    """The schema and the sample data, installed once."""
    template = onceward_server.create("proof", template=onceward_server.template.name)
    store.install(template.dsn)
    load(template.dsn)
    yield template
    onceward_server.drop(template)


@pytest.fixture
def database(onceward_server, proof_template):
    onceward_server._count += 1
    database = onceward_server.create(str(onceward_server._count), template=proof_template.name)
    yield database
    onceward_server.drop(database)


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
