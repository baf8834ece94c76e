"""Commands, settings, and the defaults of the contract."""

from __future__ import annotations

import json
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from onceward.errors import InvalidArgument
from onceward_apps.intake import samples, tokens
from onceward_apps.intake.__main__ import cli
from onceward_apps.intake.settings import Settings, WorkerEnvironment
from tests.apps.intake.stage import SECRET


@pytest.fixture
def run(onceward_database, tmp_path, monkeypatch):
    monkeypatch.setenv("ONCEWARD_DSN", onceward_database)
    monkeypatch.setenv("ONCEWARD_HOME", str(tmp_path))
    monkeypatch.setenv("INTAKE_JWT_SECRETS", SECRET.replace(",", ""))

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(cli, list(arguments))
        assert done.exit_code == 0, done.output
        return done.output

    return command


def test_install_look_and_make_a_link(run):
    assert run("install", "--sample") == "schema intake: installed\n"
    assert run("install", "--sample") == "schema intake: up to date\n"
    limits = {
        (row := json.loads(line))["provider_name"]: row["requests_per_minute"]
        for line in run("limits").splitlines()
    }
    assert limits == {"openai": 500, "google_vision": 1800, "anthropic": 400, "embedded": 6000}
    assert all(json.loads(line)["is_met"] for line in run("levels").splitlines())
    assert run("jobs") == ""
    address = run("link", str(samples.MAYA.owner)).strip()
    token = parse_qs(urlsplit(address).query)["token"][0]
    assert tokens.verify_link(Settings.from_environ(), token).user == samples.MAYA.owner


def test_people_are_listed_and_get_tokens(run):
    run("install", "--sample")
    found = [json.loads(line) for line in run("people").splitlines()]
    assert {
        (row["display_name"], row["account_id"], row["profile_id"])
        for row in found
        if row["access"] == "owner"
    } == {(person.name, str(person.owner), str(person.id)) for person in samples.PEOPLE}
    token = run("token", found[0]["account_id"]).strip()
    assert str(tokens.verify(Settings.from_environ(), token).user) == found[0]["account_id"]


@pytest.mark.parametrize("command", ["link", "token"])
def test_nobody_gets_a_token_of_an_account_that_is_not_there(run, command):
    run("install", "--sample")
    # The id of a profile is easily taken for that of its account.
    done = CliRunner().invoke(cli, [command, str(samples.MAYA.id)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"account {samples.MAYA.id} does not exist" in done.stderr
    assert "intake people" in done.stderr


def test_the_documented_defaults(intake):
    rows = dict(intake.all("select config_key, config_value from intake.system_configuration"))
    assert {key: rows[key] for key in (
        "worker.timeout_seconds", "worker.heartbeat_interval_seconds", "worker.reclaim_jitter_max_seconds", "worker.max_retries",
        "worker.fast_queue_timeout_ms", "worker.ai_queue_timeout_ms", "features.usage_tracking_enabled",
        "features.plan_limits_enabled", "features.billing_enabled",
    )} == {
        "worker.timeout_seconds": 300, "worker.heartbeat_interval_seconds": 30, "worker.reclaim_jitter_max_seconds": 60,
        "worker.max_retries": 6, "worker.fast_queue_timeout_ms": 120000, "worker.ai_queue_timeout_ms": 600000,
        "features.usage_tracking_enabled": True, "features.plan_limits_enabled": False, "features.billing_enabled": False,
    }  # fmt: skip
    assert (
        intake.one(
            "select count(distinct config_type) from intake.system_configuration where config_key like 'features.%%'"
        )
        == 1
    )


def test_a_setting_keeps_its_type_and_its_change_is_in_the_audit_log(intake):
    intake.conn.execute("select intake.configure('worker.max_retries', '4')")
    assert intake.one("select new_values from intake.audit_log where record_id = 'worker.max_retries'") == {
        "value": 4
    }
    for key, value in [
        ("worker.max_retries", '"many"'),
        ("worker.nothing", "1"),
        ("features.billing_enabled", "1"),
    ]:
        with pytest.raises(Exception, match="setting"):
            intake.conn.execute("select intake.configure(%s, %s::jsonb)", [key, value])


def test_the_environment_of_a_worker():
    usual = WorkerEnvironment.from_environ({})
    assert (usual.concurrency, usual.poll, usual.health_port, usual.configuration) == (
        50,
        timedelta(seconds=5),
        8080,
        {},
    )
    given = WorkerEnvironment.from_environ({
        "WORKER_CONCURRENCY": "7", "QUEUE_POLL_INTERVAL": "250", "HEALTH_CHECK_PORT": "10000", "WORKER_ID": "render-1",
        "FAST_QUEUE_TIMEOUT_MS": "60000", "MAX_RETRIES": "3", "LOG_LEVEL": "DEBUG",
    })  # fmt: skip
    assert (given.concurrency, given.poll, given.health_port) == (7, timedelta(milliseconds=250), 10000)
    assert (given.name, given.log_level) == ("render-1", "debug")
    assert given.configuration == {"worker.fast_queue_timeout_ms": 60000, "worker.max_retries": 3}


@pytest.mark.parametrize(
    "wrong",
    [
        {"WORKER_CONCURRENCY": "many"},
        {"WORKER_CONCURRENCY": "0"},
        {"LOG_LEVEL": "loud"},
        {"HEALTH_CHECK_PORT": "99999"},
    ],
)
def test_a_wrong_environment_is_named(wrong):
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        WorkerEnvironment.from_environ(wrong)


@pytest.mark.parametrize(
    "wrong", [{"INTAKE_JWT_SECRETS": "short"}, {"INTAKE_OCR": "eyes"}, {"INTAKE_EXTRACTOR": "guess"}]
)
def test_wrong_settings_are_named(wrong, tmp_path):
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Settings.from_environ({"ONCEWARD_HOME": str(tmp_path), **wrong})


def test_a_secret_is_made_once_and_kept_from_others(tmp_path):
    first, second = (Settings.from_environ({"ONCEWARD_HOME": str(tmp_path)}) for _ in range(2))
    assert first.jwt_secrets == second.jwt_secrets
    assert (tmp_path / "intake-jwt-secret").stat().st_mode & 0o777 == 0o600
    assert SECRET not in repr(first)
    assert first.jwt_secrets[0] not in repr(first)
