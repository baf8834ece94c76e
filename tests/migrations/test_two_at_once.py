from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from onceward.install import upgrade

pytestmark = [pytest.mark.race, pytest.mark.slow]


def waiting(cluster, dsn):
    return cluster.ask("select count(*) from pg_locks where locktype = 'advisory' and not granted", dsn)


def test_two_that_install_at_once_install_once(cluster):
    dsn = cluster.database()
    with psycopg.connect(dsn) as blocker, ThreadPoolExecutor(2) as pool:
        blocker.execute("select pg_advisory_xact_lock(hashtext('onceward.install'))")
        both = [pool.submit(upgrade, dsn) for _ in range(2)]
        while waiting(cluster, dsn) < 2:
            assert not any(future.done() for future in both)
        blocker.rollback()
        answers = sorted((future.result(60) for future in both), key=len)

    assert answers[0] == []
    assert len(answers[1]) > 0
    assert cluster.ask("select count(*) from onceward.migration_private", dsn) == len(answers[1]) - 1


def test_the_second_installs_when_the_first_fails(cluster):
    dsn = cluster.database()
    with psycopg.connect(dsn) as blocker, ThreadPoolExecutor(1) as pool:
        blocker.execute("select pg_advisory_xact_lock(hashtext('onceward.install'))")
        blocker.execute("create schema onceward")
        second = pool.submit(upgrade, dsn)
        while waiting(cluster, dsn) < 1:
            assert not second.done()
        blocker.rollback()
        assert second.result(60)


def test_installations_in_several_databases_at_once_share_the_roles(cluster):
    databases = [cluster.database() for _ in range(4)]
    start = threading.Barrier(len(databases))

    def run(dsn):
        start.wait(60)
        return upgrade(dsn)

    with ThreadPoolExecutor(len(databases)) as pool:
        answers = list(pool.map(run, databases))

    assert all(answers)
    assert cluster.ask("select count(*) from pg_roles where rolname like 'onceward\\_%'") == 5
