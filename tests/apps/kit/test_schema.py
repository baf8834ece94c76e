from __future__ import annotations

import threading

import psycopg
import pytest

from onceward_apps.kit import schema


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system of one table; its file can be changed."""
    folder = tmp_path / "sample"
    folder.mkdir()
    file = folder / "schema.sql"
    file.write_text(
        "create schema if not exists sample; create table if not exists sample.thing (id bigint);"
    )
    monkeypatch.setattr(schema.resources, "files", lambda package: tmp_path)
    return file


def test_a_schema_is_applied_once_and_again_when_it_changed(db, system):
    assert schema.install(db.dsn, "sample", "sample")
    assert not schema.install(db.dsn, "sample", "sample")

    system.write_text(system.read_text() + "alter table sample.thing add column if not exists name text;")

    assert schema.install(db.dsn, "sample", "sample")
    with psycopg.connect(db.dsn) as conn:
        conn.execute("insert into sample.thing (id, name) values (1, 'x')")


def test_a_folder_of_files_is_applied_in_the_order_of_their_names(db, system):
    folder = system.parent / "schema"
    folder.mkdir()
    (folder / "20_more.sql").write_text("alter table sample.thing add column if not exists name text;")
    (folder / "10_tables.sql").write_text(system.read_text())
    (folder / "notes.txt").write_text("not SQL")
    system.unlink()

    assert schema.install(db.dsn, "sample", "sample")
    assert not schema.install(db.dsn, "sample", "sample")

    with psycopg.connect(db.dsn) as conn:
        conn.execute("insert into sample.thing (id, name) values (1, 'x')")


def test_a_schema_that_fails_half_way_leaves_nothing(db, system):
    system.write_text(system.read_text() + "select 1 / 0;")

    with pytest.raises(psycopg.errors.DivisionByZero):
        schema.install(db.dsn, "sample", "sample")

    with psycopg.connect(db.dsn) as conn:
        assert conn.execute("select to_regnamespace('sample')").fetchone() == (None,)


@pytest.mark.race
def test_of_many_installers_one_applies(db, system):
    # Not idempotent on purpose: a second application would fail.
    system.write_text("create schema sample; create table sample.thing (id bigint);")
    applied = []

    def install():
        applied.append(schema.install(db.dsn, "sample", "sample"))

    threads = [threading.Thread(target=install) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(applied) == [False] * 7 + [True]
