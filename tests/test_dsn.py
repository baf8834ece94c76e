from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from onceward.connecting import masked
from onceward.dsn import resolve_dsn
from onceward.embedded import EmbeddedServer
from onceward.errors import InvalidArgument


@pytest.fixture(autouse=True)
def no_server_is_named(monkeypatch):
    for name in ("ONCEWARD_DSN", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)


def test_the_argument_comes_first(monkeypatch):
    monkeypatch.setenv("ONCEWARD_DSN", "dbname=b")
    monkeypatch.setenv("PGHOST", "c")

    assert resolve_dsn("dbname=a") == "dbname=a"


def test_the_variable_comes_before_those_of_libpq(monkeypatch):
    monkeypatch.setenv("ONCEWARD_DSN", "dbname=b")
    monkeypatch.setenv("PGHOST", "c")

    assert resolve_dsn() == "dbname=b"


@pytest.mark.parametrize("name", ["PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"])
def test_variables_of_libpq_are_left_to_libpq(monkeypatch, name):
    monkeypatch.setenv(name, "c")

    assert resolve_dsn() == ""


@pytest.mark.slow
@pytest.mark.xdist_group("embedded")
def test_without_any_the_embedded_server_is_started_with_a_database(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="onceward-test-") as home:
        monkeypatch.setenv("ONCEWARD_HOME", home)
        try:
            dsn = resolve_dsn()

            assert resolve_dsn() == dsn
            with psycopg.connect(dsn) as connection:
                assert connection.info.dbname == "onceward"
        finally:
            EmbeddedServer.start(Path(home) / "pg").stop("immediate")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://a@h/d", "postgresql://a@h/d"),
        ("postgresql://a:sesame@h:1,i:2/d?sslmode=require", "postgresql://a:***@h:1,i:2/d?sslmode=require"),
        ("postgresql://a:se%3Asame@h/d", "postgresql://a:***@h/d"),
        ("postgresql://h/d?user=a&password=sesame", "postgresql://h/d?user=a&password=***"),
        ("host=h password=sesame dbname=d", "host=h dbname=d password=***"),
        ("host=h password='se same' dbname=d", "host=h dbname=d password=***"),
        ("postgresql://sesame:sesame@h/d", "postgresql://sesame:***@h/d"),
        ("host=h password = sesame", "host=h password=***"),
    ],
)
def test_a_dsn_is_shown_without_its_password(given, shown):
    assert masked(given) == shown
    assert conninfo_to_dict(masked(given)).get("password") in {None, "***"}


def test_a_dsn_that_cannot_be_read_is_refused_without_repeating_it():
    with pytest.raises(InvalidArgument, match="cannot read the connection string") as caught:
        resolve_dsn("host=h password 'sesame'")

    assert "sesame" not in str(caught.value)
