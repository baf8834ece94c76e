from __future__ import annotations

import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from onceward.embedded import EmbeddedServer, default_data_dir
from onceward.errors import OncewardError
from onceward.testing.database import _folder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

NOBODY = pwd.getpwnam("nobody").pw_uid

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

STARTER = """
import os, sys
from pathlib import Path
from onceward.embedded import EmbeddedServer

# After the imports: the other user may not be allowed to read this interpreter's files.
if len(sys.argv) > 2:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
print(EmbeddedServer.start(Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place():
    # Not tmp_path: its name alone fills half of what a socket's path may have.
    with tempfile.TemporaryDirectory(prefix="onceward-test-", dir=_folder()) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def created():
    """A data directory to copy, because creating one takes more than a second."""
    with tempfile.TemporaryDirectory(prefix="onceward-test-", dir=_folder()) as name:
        server = EmbeddedServer.start(Path(name) / "pg")
        server.stop()
        yield server.data_dir


@pytest.fixture
def start(place, created):
    """Start servers that are stopped at the end of the test."""
    servers = []

    def start_one(data_dir=place / "pg", *, fresh=False, **options) -> EmbeddedServer:
        if not fresh and not data_dir.exists():
            subprocess.run(["cp", "-a", created, data_dir], check=True)
        servers.append(EmbeddedServer.start(data_dir, **options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop("immediate")


def starter(data_dir: Path, *, uid: int | None = None) -> subprocess.Popen[str]:
    """Another process that starts or joins the server, prints its process id and waits for the end of input."""
    command = [sys.executable, "-c", STARTER, str(data_dir), *([] if uid is None else [str(uid)])]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)


def query(server: EmbeddedServer, statement: str, database: str = "postgres"):
    with psycopg.connect(server.dsn(database), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_new_server_keeps_every_durability_setting_at_its_default(start):
    server = start(fresh=True)

    changed = query(
        server,
        """select count(*) from pg_settings
            where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'wal_sync_method', 'wal_level')
              and setting is distinct from boot_val""",
    )

    assert changed == 0
    assert query(server, "show server_encoding") == "UTF8"
    assert query(server, "show listen_addresses") == ""


def test_starting_again_joins_the_running_server(start):
    assert start().pid == start().pid


def test_a_second_process_joins_the_running_server(start):
    server = start()

    with starter(server.data_dir) as other:
        joined, _ = other.communicate()

    assert int(joined) == server.pid
    assert query(server, "select 1") == 1


def test_processes_that_start_at_once_share_one_server(place, start):
    others = [starter(place / "pg") for _ in range(4)]
    pids = {int(other.communicate()[0]) for other in others}

    assert pids == {start().pid}


def test_the_server_survives_a_starter_killed_with_sigkill(place, start):
    with starter(place / "pg") as other:
        assert other.stdout is not None
        first = int(other.stdout.readline())
        other.kill()

    server = start()

    assert server.pid == first
    assert query(server, "select 1") == 1


def test_a_starter_killed_while_it_creates_the_database_leaves_nothing_in_the_way(place, start):
    with starter(place / "pg") as other:
        while not list(place.glob("pg.new-*/PG_VERSION")) and other.poll() is None:
            os.sched_yield()
        other.kill()

    assert not (place / "pg").exists()
    assert query(start(fresh=True), "select 1") == 1


def test_an_immediate_restart_keeps_committed_rows(start):
    server = start()
    query(server, "create table kept (n int)")
    query(server, "insert into kept select generate_series(1, 1000)")
    before = server.pid

    server.restart_immediate()

    assert server.pid != before
    assert query(server, "select count(*) from kept") == 1000


def test_a_server_killed_with_sigkill_recovers_on_the_next_start(start):
    server = start()
    query(server, "create table kept as select 1 as n")
    with psycopg.connect(server.dsn()):
        os.kill(server.pid, signal.SIGKILL)

        again = start()

    assert query(again, "select n from kept") == 1


def test_a_process_id_given_to_another_process_does_not_prevent_the_start(start):
    server = start()
    content = (server.data_dir / "postmaster.pid").read_text().splitlines()
    server.stop("immediate")
    (server.data_dir / "postmaster.pid").write_text("\n".join([str(os.getpid()), *content[1:], ""]))

    assert server.pid is None
    assert query(start(), "select 1") == 1


def test_stopping_ends_the_server_and_keeps_its_data(start):
    server = start()
    server.create_database("shop")
    query(server, "create table kept as select 1 as n", "shop")

    server.stop()
    server.stop()

    assert server.pid is None
    with pytest.raises(OncewardError, match="no PostgreSQL server is running"):
        server.dsn()
    assert query(start(), "select n from kept", "shop") == 1


def test_a_database_can_be_a_copy_of_another(start):
    server = start()
    server.create_database("first")
    query(server, "create table t as select 7 as n", "first")

    server.create_database('it\'s a "copy"?', template="first")

    assert query(server, "select n from t", 'it\'s a "copy"?') == 7
    with pytest.raises(psycopg.errors.DuplicateDatabase):
        server.create_database("first")


@pytest.mark.parametrize("name", ["long" * 30, "with space, comma & 'quotes'", "ünïcode"])
def test_a_data_directory_may_have_any_name(start, place, name):
    server = start(place / name)

    assert query(server, "select 1") == 1
    server.restart_immediate()
    assert query(server, "select 1") == 1


def test_a_port_opens_the_server_on_the_loopback_address(start):
    port = free_port()
    server = start(port=port, settings={"max_connections": "17"})

    with psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=postgres") as connection:
        assert connection.execute("show max_connections").fetchone() == ("17",)
    assert query(server, "select 1") == 1


def test_variables_for_clients_do_not_reach_the_server(start, monkeypatch):
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    monkeypatch.setenv("PGOPTIONS", "-c fsync=off")

    assert "port=5432" in start().dsn()


def test_a_directory_with_other_files_is_left_alone(start, place):
    (place / "pg").mkdir()
    (place / "pg/letter.txt").write_text("dear reader")

    with pytest.raises(OncewardError, match="is not a PostgreSQL data directory"):
        start()

    assert [entry.name for entry in (place / "pg").iterdir()] == ["letter.txt"]


def test_a_server_that_cannot_start_is_reported_with_its_log(start):
    with pytest.raises(OncewardError) as caught:
        start(settings={"max_connections": "nonsense"})

    assert "max_connections" in caught.value.detail


@as_root
def test_root_runs_the_server_as_another_user_that_alone_can_reach_it(start):
    server = start()

    assert Path(f"/proc/{server.pid}").stat().st_uid == server.data_dir.stat().st_uid != 0
    assert server.data_dir.stat().st_mode & 0o077 == 0


@as_root
def test_an_ordinary_user_starts_a_server_of_their_own_and_root_joins_it(start, place):
    os.chown(place, NOBODY, NOBODY)

    with starter(place / "pg", uid=NOBODY) as other:
        first, _ = other.communicate()
    server = start()

    assert server.pid == int(first)
    assert server.data_dir.stat().st_uid == NOBODY
    server.restart_immediate()
    assert Path(f"/proc/{server.pid}").stat().st_uid == NOBODY


@as_root
def test_a_data_directory_of_another_user_is_refused(start, place):
    server = start()
    place.chmod(0o755)

    with starter(server.data_dir, uid=NOBODY) as other:
        _, complaint = other.communicate()

    assert "belongs to another user" in complaint


@pytest.mark.pg15
def test_the_programs_may_come_from_another_installation(start):
    bin_dir = os.environ.get("ONCEWARD_TEST_PG15_BIN")
    if not bin_dir:
        pytest.skip("ONCEWARD_TEST_PG15_BIN is not set")

    server = start(bin_dir=Path(bin_dir), fresh=True)

    assert query(server, "show server_version").startswith("15.")
    server.restart_immediate()
    assert query(server, "select 1") == 1


def test_the_home_directory_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("ONCEWARD_HOME", str(tmp_path))

    assert default_data_dir() == tmp_path / "pg"


@as_root
@pytest.mark.parametrize("home", ["/proc/nobody", None])
def test_a_user_whose_home_cannot_be_written_is_told_to_name_another(home):
    # After the imports, as above.  The programs are not reached.
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "from onceward.embedded import EmbeddedServer, default_data_dir\n"
        "from onceward.errors import OncewardError\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "try:\n"
        "    EmbeddedServer.start(default_data_dir(), bin_dir=Path('/usr/bin'))\n"
        "except OncewardError as error:\n"
        "    print(error)\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "ONCEWARD_HOME"}
    env["HOME"] = home or pwd.getpwnam("nobody").pw_dir
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)

    assert f'could not use "{env["HOME"]}/.local/share/onceward/pg"' in done.stdout, done.stderr
    assert "Set ONCEWARD_HOME" in done.stdout
