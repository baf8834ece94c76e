"""Doctor: each check on a real server where its situation can be made, else on the figures it would have seen."""

from __future__ import annotations

import re
from datetime import timedelta

import psycopg
import pytest

from onceward import doctor
from onceward.doctor_calls import Pin, Reach, TableHealth
from onceward.doctor_vacuum import dead_rows_finding, pinned_finding


@pytest.fixture
def find(cli):
    def one(name: str) -> dict:
        findings = cli("doctor", "--json").json
        return next(finding for finding in findings if finding["name"] == name)

    return one


HEALTHY = {
    "server_version": "18.4 (Debian)",
    "server_version_num": "180004",
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "synchronous_standby_names": "",
}


def test_every_look_of_the_brief_is_there(cli):
    names = {finding["name"] for finding in cli("doctor", "--json").json}

    assert names == {
        "server version", "fsync", "full_page_writes", "synchronous_commit", "pooler", "clock skew", "schema version",
        "schema code", "connections", "roles", "pinned xmin", "autovacuum", "dead rows", "engine clock", "partitions",
        "workers", "oldest ready", "deliveries",
    }  # fmt: skip


def test_it_only_reads(cli, db):
    before = db.contents()

    cli("doctor")

    assert db.contents() == before


def test_one_failure_is_the_exit_status(cli):
    # The server of tests does not wait for the disk.
    answer = cli("doctor")

    assert answer.status == 1
    assert "fail  fsync" in answer.out
    assert "Set fsync = on" in answer.out


def test_durability_is_judged():
    assert [finding.status for finding in doctor.durability(HEALTHY)] == ["ok", "ok", "ok"]
    assert [finding.status for finding in doctor.durability(HEALTHY | {"fsync": "off"})] == [
        "fail",
        "ok",
        "ok",
    ]
    assert doctor.durability(HEALTHY | {"synchronous_commit": "off"})[2].status == "fail"
    with_standby = {"synchronous_commit": "local", "synchronous_standby_names": "b"}
    assert doctor.durability(HEALTHY | with_standby)[2].status == "warn"


def test_an_old_server_and_a_standby_are_refused():
    assert doctor.server_version(HEALTHY, standby=False).status == "ok"
    assert doctor.server_version(HEALTHY, standby=True).status == "fail"
    assert doctor.server_version(HEALTHY | {"server_version_num": "140012"}, standby=False).status == "fail"
    assert (
        doctor.server_version(HEALTHY | {"default_transaction_read_only": "on"}, standby=False).status
        == "fail"
    )


def test_a_setting_of_the_role_is_seen(cli, db):
    db.run("alter database " + db.value("select current_database()") + " set synchronous_commit = off")

    findings = {finding["name"]: finding for finding in cli("doctor", "--json").json}

    assert findings["synchronous_commit"]["status"] == "fail"


def test_a_direct_connection_is_told_from_a_pooler(find):
    assert find("pooler")["value"] == "none"
    assert doctor.pooler_finding(shared=True).value == "transaction mode"
    assert doctor.pooler_finding(shared=False).value == "session mode"
    assert doctor.pooler_finding(shared=None).status == "warn"


def test_clock_skew_is_judged_after_the_round_trip():
    second = timedelta(seconds=1)

    assert doctor.skew_finding(second / 10, second / 100).status == "ok"
    assert doctor.skew_finding(-3 * second, second / 100).status == "warn"
    # A slow line is no skew.
    assert doctor.skew_finding(2 * second, 1.5 * second).status == "ok"


def test_a_replaced_engine_clock_is_found(find, db):
    # The fixture pins the clock; a pinned clock is behind by the time since.
    db.clock.advance("2 days")

    finding = find("engine clock")

    assert finding["status"] == "fail"
    assert finding["value"].startswith("+17")


def test_who_pins_xmin_is_named(cli, db):
    with psycopg.connect(db.dsn, application_name="nightly report") as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1 from onceward.jobs").fetchall()
        pid = reader.info.backend_pid

        finding = next(f for f in cli("doctor", "--json").json if f["name"] == "pinned xmin")

    assert f"session pid {pid}" in finding["value"]
    assert "user postgres" in finding["value"]
    assert '"nightly report"' in finding["value"]
    assert "idle in transaction" in finding["value"]


def test_an_old_transaction_is_a_warning_with_the_way_to_end_it(monkeypatch, cli, db):
    monkeypatch.setattr("onceward.doctor_vacuum.OLD_TRANSACTION", timedelta(0))
    with psycopg.connect(db.dsn) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1 from onceward.jobs").fetchall()

        pid = reader.info.backend_pid

        finding = next(f for f in cli("doctor", "--json").json if f["name"] == "pinned xmin")

    assert finding["status"] == "warn"
    assert f"pg_terminate_backend({pid})" in finding["action"]


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("session", "pg_terminate_backend(7)"),
        ("prepared transaction", "rollback prepared 'thing'"),
        ("replication slot", "pg_drop_replication_slot('thing')"),
        ("standby feedback", "hot_standby_feedback"),
    ],
)
def test_each_kind_of_pin_has_its_remedy(kind, action):
    reach = Reach("joe", "shop", superuser=False, sees_all=False, sees_activity=True)
    pin = Pin(kind, 7, "joe", "thing", "active", 12_345, None)

    finding = pinned_finding([pin], reach)

    assert finding.status == "warn"
    assert action in (finding.action or "")
    assert "12,345 transactions" in finding.value


def test_dead_rows_and_bloat_are_judged():
    def table(**figures) -> TableHealth:
        return TableHealth(**{"name": "job_private", "live": 1000, "dead": 0, "heap_bytes": 10**6, "vacuumed_at": None, "autovacuum": True, **figures})  # fmt: skip

    assert dead_rows_finding([table(dead=10_000)]).status == "ok"
    assert dead_rows_finding([table(dead=200_000)]).status == "warn"
    assert dead_rows_finding([table(dead=200_000, live=10**6)]).status == "ok"
    swollen = dead_rows_finding([table(heap_bytes=200 * 1024**2)])
    assert swollen.status == "warn"
    assert "never vacuumed" in swollen.value


def test_a_table_without_autovacuum_is_found(find, db):
    db.run("alter table onceward.job_private set (autovacuum_enabled = false)")

    finding = find("autovacuum")

    assert finding["status"] == "fail"
    assert "job_private" in finding["value"]


def test_roles_and_their_members_are_named(find, login):
    login("onceward_worker")

    finding = find("roles")

    assert finding["status"] == "ok"
    # Roles are those of the whole server: systems that were installed in other databases have theirs, too.
    assert re.search(r"onceward_worker: [^;]*\btest_", finding["meaning"])


def test_missing_partitions_are_found(find, db):
    db.call("ensure_partitions", days_ahead=14)
    assert find("partitions")["status"] == "ok"
    for (name,) in db.run("select relname from pg_class where relname ~ '^archive_[0-9]{8}$'"):
        db.run(f"drop table onceward.{name}")

    assert find("partitions")["status"] == "warn"


def test_workers_and_the_oldest_job_are_judged(find, db):
    assert find("workers")["value"] == "0 live, 0 expired"
    db.worker("a")
    db.call("register_worker", name="b", lease="1 min")
    db.enqueue()
    assert find("workers")["value"] == "2 live, 0 expired"
    assert find("oldest ready")["status"] == "ok"

    db.clock.advance("10 min")

    finding = find("workers")
    assert (finding["value"], finding["status"]) == ("1 live, 1 expired", "warn")
    oldest = find("oldest ready")
    assert (oldest["status"], oldest["value"]) == ("warn", "10 min in lane default")


def test_a_paused_lane_may_be_old(find, db):
    db.enqueue()
    db.call("pause_lane", name="default")
    db.clock.advance("1 h")

    assert find("oldest ready")["value"] == "none"


def test_a_database_without_the_schema_gets_a_report_too(cli_alone, onceward_server):
    database = onceward_server.create("doctor_bare")

    answer = cli_alone("doctor", "--json", dsn=database.dsn)

    assert answer.status == 1
    by_name = {finding["name"]: finding for finding in answer.json}
    assert by_name["schema version"]["status"] == "fail"
    assert by_name["server version"]["status"] == "ok"
