"""Behind PgBouncer in transaction mode: nothing depends on the session."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from onceward import Client
from onceward.worker import Worker
from tests.sdk import shop

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = pytest.mark.skipif(
    PGBOUNCER is None, reason="PgBouncer is not installed (Debian: apt-get install pgbouncer)"
)


@pytest.fixture
def pooled(onceward_database, tmp_path_factory):
    """The same database through a transaction-mode pooler with two server connections."""
    parts = conninfo_to_dict(onceward_database)
    folder = tmp_path_factory.mktemp("pgbouncer")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    user = parts.get("user", "postgres")
    (folder / "users.txt").write_text(f'"{user}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={parts['host']} port={parts.get('port', 5432)} user={user}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"auth_file = {folder}/users.txt\npool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 100\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    command = [PGBOUNCER, str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:
        # It refuses to run as root; the owner of the server's socket folder can reach the socket.
        owner = Path(parts["host"]).owner()
        for path in (folder, *folder.parents[:3], *folder.iterdir()):
            path.chmod(path.stat().st_mode | 0o055)
        command = [PGBOUNCER, "-u", owner, str(folder / "pgbouncer.ini")]
    bouncer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        for line in bouncer.stderr:
            if b"process up" in line:
                break
        else:
            raise AssertionError("PgBouncer did not start")
        yield f"host=127.0.0.1 port={port} dbname={parts['dbname']} user={user}"
    finally:
        bouncer.kill()
        bouncer.wait()
        bouncer.stderr.close()


def test_clients_and_workers_share_two_server_connections(pooled):
    with Client(pooled, app=shop.app) as client, Client(pooled, app=shop.app) as another:
        jobs = [one.enqueue(shop.greet, {"name": str(i)}) for i in range(20) for one in (client, another)]
        assert asyncio.run(Worker(shop.app, dsn=pooled, concurrency=5).drain()) == 40
        assert [client.wait(job) for job in jobs] == [f"Hello {i}" for i in range(20) for _ in "ab"]


def test_the_tenant_of_one_call_does_not_leak_into_the_next(pooled):
    with (
        Client(pooled, app=shop.app, tenant="acme") as acme,
        psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as other,
    ):
        for _ in range(10):
            acme.enqueue(shop.greet, {"name": "Ada"})
            assert other.execute("select onceward.current_tenant()").fetchone() == (None,)
