"""The matrix (H11): every table, view and function, by owner, shared, foreign, anonymous and service."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
import pytest

from tests.apps.intake.stage import png

# Rows of a person: by the column that names whose they are.
PERSONAL = {
    "shell_files": "patient_id", "file_pages": "patient_id", "ocr_words": "patient_id", "document_entities": "patient_id",
    "clinical_facts": "patient_id", "timeline_entries": "patient_id", "user_usage_tracking": "profile_id",
    "usage_events": "profile_id", "user_profiles": "id",
}  # fmt: skip
SERVICE_ONLY = [
    "audit_log",
    "system_configuration",
    "api_providers",
    "api_calls",
    "job_claims",
    "admins",
    "used_links",
    "job_queue",
    "api_rate_limits",
]
OTHERS = {"profile_access", "subscription_plans"}
# What users may call: questions about themselves.
OF_USERS = {"uid", "is_admin", "is_service_role", "has_profile_access"}
DOCUMENTED = {
    "enqueue_job_v3", "claim_next_job_v3", "update_job_heartbeat", "complete_job", "reschedule_job", "acquire_api_capacity",
    "release_api_capacity", "log_audit_event", "track_shell_file_upload_usage", "track_ai_processing_usage",
    "get_user_usage_status", "has_profile_access", "is_admin", "is_service_role",
}  # fmt: skip


@pytest.fixture
def filled(intake, door):
    """Both profiles have a processed document."""
    door.upload(png("Glucose 5.4 mmol/L"))
    door.upload(png("Secret 9.9 mmol/L"), user=intake.stranger, profile=intake.other)
    intake.drain()
    intake.conn.execute(
        "insert into intake.document_entities (shell_file_id, patient_id, number, entity) "
        "select id, patient_id, 98, '{}' from intake.shell_files"
    )
    return intake


class As:
    """A transaction of a role, for a user."""

    def __init__(self, intake, role, user=None):
        self.conn = psycopg.connect(intake.dsn)
        claims = json.dumps({"sub": str(user), "role": role}) if user else ""
        self.conn.execute("select set_config('request.jwt.claims', %s, false)", [claims])
        # The engine's own rule: without a tenant no rows, and all of them only for who may.
        self.conn.execute("set onceward.tenant = '*'")
        self.conn.execute(f"set role {role}")
        self.conn.commit()

    def try_(self, statement, *params):
        try:
            with self.conn.transaction():
                cursor = self.conn.execute(statement, params)
                return cursor.fetchall() if cursor.description else cursor.rowcount
        except (
            psycopg.errors.InsufficientPrivilege,
            psycopg.errors.WrongObjectType,
            psycopg.errors.ObjectNotInPrerequisiteState,
        ):
            # A view of several tables takes no writes, whoever asks.
            return "denied"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.conn.close()


def relations(intake) -> set[str]:
    found = intake.all(
        "select relname from pg_class where relnamespace = 'intake'::regnamespace and relkind in ('r', 'v')"
    )
    return {name for (name,) in found}


def test_the_matrix_names_every_relation(intake):
    assert relations(intake) == {*PERSONAL, *SERVICE_ONLY, *OTHERS}


def test_rows_by_who_asks(filled):
    people = {
        "owner": (filled.owner, {filled.profile}),
        "shared to read": (filled.friend, {filled.profile}),
        "shared to write": (filled.helper, {filled.profile}),
        "the other one": (filled.stranger, {filled.other}),
        "foreign": (uuid4(), set()),
    }
    for who, (user, sees) in people.items():
        with As(filled, "authenticated", user) as asks:
            for table, column in PERSONAL.items():
                found = asks.try_(f"select distinct {column} from intake.{table}")
                assert {row[0] for row in found} == sees, f"{who}: {table}"
            for table in SERVICE_ONLY:
                assert asks.try_(f"select * from intake.{table}") == "denied", f"{who}: {table}"
    with As(filled, "authenticated") as nobody:
        for table in PERSONAL:
            assert nobody.try_(f"select * from intake.{table}") == [], table
    with As(filled, "anon") as anybody:
        for table in relations(filled):
            assert anybody.try_(f"select * from intake.{table}") == "denied", table
    with As(filled, "service_role") as service:
        for table, column in PERSONAL.items():
            assert {filled.profile, filled.other} <= {
                row[0] for row in service.try_(f"select {column} from intake.{table}")
            }, table
        for table in SERVICE_ONLY:
            assert service.try_(f"select * from intake.{table}") != "denied", table


def test_nobody_writes_into_tables(filled):
    """Neither users nor the service: functions do, which check and record."""
    for role, user in [("anon", None), ("authenticated", filled.owner), ("service_role", None)]:
        with As(filled, role, user) as asks:
            for table in relations(filled):
                column = filled.one(
                    "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and attidentity = '' limit 1",
                    f"intake.{table}",
                )
                for statement in (
                    f"insert into intake.{table} default values",
                    f"update intake.{table} set {column} = {column}",
                    f"delete from intake.{table}",
                    f"truncate intake.{table}",
                ):
                    assert asks.try_(statement) == "denied", f"{role}: {statement}"


def test_access_that_was_taken_back_is_over(filled):
    filled.conn.execute("update intake.profile_access set revoked_at = onceward.now()")
    with As(filled, "authenticated", filled.friend) as asks:
        assert asks.try_("select * from intake.clinical_facts") == []


def test_who_was_given_access_is_seen_by_them_and_by_the_owner(filled):
    for user, count in [(filled.owner, 2), (filled.friend, 1), (filled.stranger, 0)]:
        with As(filled, "authenticated", user) as asks:
            assert len(asks.try_("select * from intake.profile_access")) == count


def test_functions_by_role(filled):
    functions = filled.all(
        "select p.oid::regprocedure::text, p.proname from pg_proc as p where p.pronamespace = 'intake'::regnamespace"
    )
    assert {name for _, name in functions} >= DOCUMENTED
    for signature, name in functions:
        may = {
            role: filled.one("select has_function_privilege(%s, %s, 'execute')", role, signature)
            for role in ("anon", "authenticated", "service_role", "onceward_producer")
        }
        assert not may["anon"], signature
        assert not may["onceward_producer"], signature
        assert may["authenticated"] == (name in OF_USERS), signature
        if name in DOCUMENTED:
            assert may["service_role"], signature


def test_every_function_pins_its_search_path(filled):
    loose = filled.all(
        "select proname from pg_proc where pronamespace = 'intake'::regnamespace "
        "and not coalesce(proconfig, '{}') @> array['search_path=pg_catalog, pg_temp']"
    )
    assert loose == []


def test_a_claim_makes_nobody_the_service_role(filled):
    with As(filled, "authenticated", filled.owner) as asks:
        asks.conn.execute("select set_config('request.jwt.claims', '{\"role\": \"service_role\"}', false)")
        asks.conn.commit()
        assert asks.try_("select intake.is_service_role(), intake.is_admin()") == [(False, False)]
        assert asks.try_("select * from intake.shell_files") == []


def test_nobody_asks_about_the_access_of_others(filled):
    ask = "select intake.has_profile_access(%s, %s)"
    with As(filled, "authenticated", filled.stranger) as asks:
        assert asks.try_(ask, filled.owner, filled.profile) == [(False,)]
        assert asks.try_(ask, filled.stranger, filled.other) == [(True,)]
    with As(filled, "service_role") as service:
        assert service.try_(ask, filled.owner, filled.profile) == [(True,)]


def test_an_admin_sees_no_documents(filled):
    admin = uuid4()
    filled.conn.execute("insert into intake.admins (user_id) values (%s)", [admin])
    with As(filled, "authenticated", admin) as asks:
        assert asks.try_("select intake.is_admin()") == [(True,)]
        assert asks.try_("select * from intake.shell_files") == []


def test_the_service_that_acts_for_a_user_has_only_that_users_access(filled):
    calls = {
        "select intake.get_user_usage_status(%s)": [filled.other],
        "select intake.get_profile_audit(%s)": [filled.other],
        "select intake.track_shell_file_upload_usage(%s, %s)": [filled.other, uuid4()],
        "select intake.track_ai_processing_usage(%s, %s, 5, 5)": [filled.other, uuid4()],
        "select intake.log_audit_event('a', 'b', 'SELECT', p_patient_id => %s)": [filled.other],
    }
    with As(filled, "service_role", filled.owner) as service:
        for statement, params in calls.items():
            assert service.try_(statement, *params) == "denied", statement
        assert service.try_("select intake.get_user_usage_status(%s)", filled.profile) != "denied"
    with As(filled, "service_role") as service:
        assert service.try_("select intake.get_user_usage_status(%s)", filled.other) != "denied"


def test_usage_is_counted_once_and_by_the_size_of_the_row(filled):
    file = filled.row_of("select * from intake.shell_files where patient_id = %(p)s", p=filled.profile)
    before = filled.row_of(
        "select * from intake.user_usage_tracking where profile_id = %(p)s", p=filled.profile
    )
    track = "select intake.track_shell_file_upload_usage(%s, %s, 999999999, 7)"
    assert not filled.one(track, filled.profile, file.id)
    # Another one's file cannot be put on this account.
    with pytest.raises(psycopg.Error, match="is not one of this profile"):
        filled.one(track, filled.other, file.id)
    after = filled.row_of(
        "select * from intake.user_usage_tracking where profile_id = %(p)s", p=filled.profile
    )
    assert after == before
    assert after.storage_bytes == file.file_size_bytes


def test_usage_that_is_switched_off_counts_nothing(intake, door):
    intake.configure("features.usage_tracking_enabled", "false")
    assert door.upload(png()).status_code == 201
    assert intake.one("select count(*) from intake.usage_events") == 0


def test_months_are_apart_and_storage_adds_up(intake, door):
    intake.clock.pin("2026-01-31T23:59:00Z")
    door.upload(png("a"))
    intake.clock.advance("2 min")
    door.upload(png("b c"))
    status = intake.one("select intake.get_user_usage_status(%s)", intake.profile)
    assert status["usage_month"] == "2026-02-01"
    assert status["files"] == {"used": 1, "limit": 50}
    assert status["storage_bytes"]["used"] == len(png("a")) + len(png("b c"))
