"""What the public sees and may do; and what every role may not."""

from __future__ import annotations

from datetime import datetime

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.apps.proof.stage import DAY

TABLES = [
    "config", "products", "formulations", "batch_counters", "batches", "proof_job_links", "proof_claims", "lab_parameters",
    "lab_results", "batch_status_history", "ops_event_log", "monitoring_runs", "proof_page_events", "proof_event_counters",
]  # fmt: skip
VIEWS = [
    "proof_jobs", "proof_job_events", "ops_events", "proof_queue_status", "proof_duration_trend", "proof_failure_history",
    "proof_partial_completions", "proof_batch_volume", "public_batches", "public_lab_results", "portal_batches",
]  # fmt: skip
PUBLIC_COLUMNS = {"public_batch_id", "status", "expiry_date", "released_at", "proof_url"}
PEOPLE = {"onceward_operator", "onceward_auditor"}
# Who may call which function; onceward_owner may call all.
EVERYBODY = {"anon", "onceward_producer", "onceward_worker", "onceward_operator"}
FUNCTIONS = {
    "fn_get_latest_released_batch_v1": EVERYBODY,
    "fn_search_batch_v1": EVERYBODY,
    "fn_record_proof_page_event_v1": EVERYBODY,
    "fn_create_batch_v1": EVERYBODY - {"anon"},
    "fn_create_batches_v1": EVERYBODY - {"anon"},
    "fn_get_proof_home_v1": EVERYBODY - {"anon"},
    "fn_take_search_place_v1": EVERYBODY - {"anon"},
    "fn_get_portal_batch_v1": {"onceward_operator", "onceward_auditor"},
    "fn_update_product_v1": {"onceward_operator"},
    "fn_get_proof_page_v1": EVERYBODY - {"anon"},
    "fn_get_batch_v1": {"onceward_worker", "onceward_operator", "onceward_auditor"},
    "fn_proof_state": {"onceward_worker", "onceward_operator", "onceward_auditor"},
    "fn_error_category": {"onceward_worker", "onceward_operator", "onceward_auditor"},
    "fn_attempt_began": {"onceward_worker", "onceward_operator", "onceward_auditor"},
    "fn_duration_ms": {"onceward_worker", "onceward_operator", "onceward_auditor"},
    "fn_is_recalled": {"onceward_worker", "onceward_operator", "onceward_auditor"},
    "fn_claim_proof_jobs_v1": {"onceward_worker"},
    "fn_heartbeat_proof_jobs_v1": {"onceward_worker"},
    "fn_record_proof_step_v1": {"onceward_worker"},
    "fn_keep_label_texts_v1": {"onceward_worker"},
    "fn_finalize_proof_job_v1": {"onceward_worker"},
    "fn_mark_proof_job_failed_v1": {"onceward_worker"},
    "fn_enqueue_missing_proof_jobs_v1": {"onceward_worker"},
    "fn_copacker_email_v1": {"onceward_worker"},
    "fn_email_is_reported_v1": {"onceward_worker"},
    "fn_apply_retention_v1": {"onceward_worker"},
    "fn_expired_labels_v1": {"onceward_worker"},
    "fn_forget_label_v1": {"onceward_worker"},
    "fn_dead_letter_alert": {"onceward_worker"},
    "fn_set_batch_qr_assets_v1": {"onceward_worker", "onceward_operator"},
    "fn_set_batch_label_asset_v1": {"onceward_worker", "onceward_operator"},
    "fn_check_proof_system_health_v2": {"onceward_worker", "onceward_operator"},
    "fn_resolve_proof_job_manually_v1": {"onceward_operator"},
    "fn_requeue_proof_job_v1": {"onceward_operator"},
    "fn_record_lab_results_v1": {"onceward_operator"},
    "fn_release_batch_v1": {"onceward_operator"},
    "fn_reject_batch_v1": {"onceward_operator"},
}
ROLES = ["anon", "onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor"]


@pytest.fixture
def three(sql):
    """One batch of each status."""
    held, released, rejected = sql.create(), sql.create(), sql.create()
    sql.record(released)
    sql.release(released)
    sql.one("select raw_ops.fn_reject_batch_v1(%s, 'Salmonella')", rejected["batch_id"])
    return {"QA_HOLD": held, "RELEASED": released, "REJECTED": rejected}


def may(sql, role, statement):
    with sql.connect(role) as conn:
        try:
            return conn.execute(statement).fetchall()
        except psycopg.errors.InsufficientPrivilege:
            return None


def test_the_public_reads_public_columns_of_released_batches__trap_p11(sql, three):
    columns = [row[0] for row in sql.all(
        "select column_name from information_schema.columns where table_schema = 'raw_ops' and table_name = 'batches'"
    )]  # fmt: skip
    for column in columns:
        rows = may(sql, "anon", f"select {column} from raw_ops.batches")
        if column in PUBLIC_COLUMNS:
            assert len(rows) == 1, column
        else:
            assert rows is None, column
    assert may(sql, "anon", "select * from raw_ops.batches") is None
    assert may(sql, "anon", "select public_batch_id, status from raw_ops.batches") == [
        (three["RELEASED"]["public_batch_id"], "RELEASED")
    ]


def test_the_public_views_show_released_batches_and_none_of_the_companys_own_columns__trap_p11(sql, three):
    (batch,) = may(sql, "anon", "select to_jsonb(b) from raw_ops.public_batches as b")[0]
    results = may(sql, "anon", "select parameter, passed from raw_ops.public_lab_results order by 1")
    assert batch["public_batch_id"] == three["RELEASED"]["public_batch_id"]
    assert results == [("Enterobacteriaceae", True), ("Salmonella", True)]
    text = str(batch)
    for secret in (three["RELEASED"]["batch_code"], three["RELEASED"]["batch_id"], "3.8", "kg"):
        assert secret not in text


@pytest.mark.parametrize("role", ROLES)
def test_the_matrix_of_tables_and_views(sql, three, role):
    """Role by table by operation: every cell as declared."""
    readable = {
        "anon": {"public_batches", "public_lab_results"},
        "onceward_producer": set(),
        "onceward_worker": set(VIEWS) - {"proof_job_events"},
        "onceward_operator": (set(VIEWS) - {"proof_job_events"})
        | {"batches", "products", "formulations", "config", "lab_parameters", "lab_results", "batch_status_history", "monitoring_runs"},
    }  # fmt: skip
    readable["onceward_auditor"] = readable["onceward_operator"]
    seen = {name for name in TABLES + VIEWS if may(sql, role, f"select * from raw_ops.{name}") is not None}
    assert seen == readable[role]
    for name in TABLES:
        column = sql.one(
            "select column_name from information_schema.columns where table_schema = 'raw_ops' and table_name = %s and is_identity = 'NO' limit 1",
            name,
        )
        for statement in (
            f"insert into raw_ops.{name} default values returning 1",
            f"update raw_ops.{name} set {column} = {column} returning 1",
            f"delete from raw_ops.{name} returning 1",
            f"truncate raw_ops.{name}",
        ):
            assert may(sql, role, statement) is None, (role, statement)


def test_the_matrix_covers_every_table_view_and_function(sql):
    kinds = dict(
        sql.all(
            "select relname, relkind from pg_class where relnamespace = 'raw_ops'::regnamespace and relkind in ('r', 'v')"
        )
    )
    assert {name for name, kind in kinds.items() if kind == "r"} == set(TABLES)
    assert {name for name, kind in kinds.items() if kind == "v"} == set(VIEWS)
    assert (
        sql.all(
            "select relname from pg_class where relnamespace = 'raw_ops'::regnamespace and relkind = 'r'"
            " and not (relrowsecurity and relforcerowsecurity)"
        )
        == []
    )
    assert (
        sql.all(
            "select proname from pg_proc where pronamespace = 'raw_ops'::regnamespace"
            " and not coalesce(array_to_string(proconfig, ','), '') like '%%search_path=pg_catalog, pg_temp%%'"
        )
        == []
    )
    # Whatever is documented says what it is.
    assert (
        sql.all(
            "select proname from pg_proc where pronamespace = 'raw_ops'::regnamespace and proname ~ '_v[0-9]$'"
            " and obj_description(oid) is null"
        )
        == []
    )


@pytest.mark.parametrize("role", ROLES)
def test_the_matrix_of_functions(sql, role):
    allowed = {name for (name,) in sql.all(
        "select p.proname from pg_proc as p where p.pronamespace = 'raw_ops'::regnamespace and has_function_privilege(%s, p.oid, 'execute')",
        role,
    )}  # fmt: skip
    assert allowed == {name for name, roles in FUNCTIONS.items() if role in roles}
    everyone = "select has_schema_privilege('public', 'raw_ops', 'usage')"
    assert sql.one(everyone) is False


@pytest.mark.parametrize(("tenant", "seen"), [("", 0), ("somebody", 0), ("default", 3), ("*", 3)])
def test_jobs_are_read_as_the_engine_lets_a_tenant_read_them(sql, three, tenant, seen):
    with sql.connect("onceward_operator") as conn:
        conn.execute("select set_config('onceward.tenant', %s, false)", [tenant])
        assert sql.one("select count(*) from raw_ops.proof_jobs", conn=conn) == seen
        # Functions answer for the company, whatever the session.
        assert sql.one("select raw_ops.fn_check_proof_system_health_v2()", conn=conn)["success"]
    assert sql.one("select (result_json ->> 'queue_depth')::int from raw_ops.monitoring_runs") == 3


def test_each_role_does_its_part(sql):
    """Least privilege is enough: a producer creates, a worker works, an operator releases."""
    with sql.connect("onceward_producer") as producer:
        batch = sql.one("select raw_ops.fn_create_batch_v1(%s, 1)", DAY, conn=producer)
    with sql.connect("onceward_worker") as worker:
        ((job, batch_id),) = worker.execute(
            "select id, batch_id from raw_ops.fn_claim_proof_jobs_v1()"
        ).fetchall()
        for statement, params in (
            ("select raw_ops.fn_set_batch_qr_assets_v1(%s, 'q', 'p')", [batch_id]),
            ("select raw_ops.fn_set_batch_label_asset_v1(%s, 'l')", [batch_id]),
            ("select raw_ops.fn_finalize_proof_job_v1(%s, 'q', 'l', 1)", [job]),
        ):
            assert sql.one(statement, *params, conn=worker)["success"]
        assert sql.one("select raw_ops.fn_check_proof_system_health_v2()", conn=worker)["success"]
    with sql.connect("onceward_operator") as operator:
        sql.record(batch)
        assert sql.one("select raw_ops.fn_release_batch_v1(%s)", batch["batch_id"], conn=operator)["success"]
        assert sql.one(
            "select reason from raw_ops.batch_status_history where new_status = 'RELEASED'", conn=operator
        )
    with sql.connect("onceward_operator") as operator:
        other = sql.create()
        dead = sql.dead_letter(other)
        assert sql.one("select raw_ops.fn_requeue_proof_job_v1(%s, 'x')", dead.id, conn=operator)["success"]
        dead = sql.dead_letter(other)
        assert sql.one(
            "select raw_ops.fn_resolve_proof_job_manually_v1(%s, 'x', true)", dead.id, conn=operator
        )["success"]


# ---------------------------------------------------------------- pages and search


def test_the_page_tells_the_statuses_apart(sql, three):
    page = {
        status: sql.one("select raw_ops.fn_get_proof_page_v1(%s)", batch["public_batch_id"])
        for status, batch in three.items()
    }
    assert page["QA_HOLD"]["message"] == (
        "This batch is undergoing safety testing. Results will be published once verified."
    )
    assert page["REJECTED"]["message"] == "This batch did not pass our safety requirements."
    released = page["RELEASED"]
    assert [result["parameter"] for result in released["results"]] == ["Salmonella", "Enterobacteriaceae"]
    assert all(result["plain_language"] and result["limit_value"] for result in released["results"])
    assert released["batch"]["formulation_version"] == "v2.1"
    assert released["certificate_path"] == "lab-reports/a.pdf"
    for status in ("QA_HOLD", "REJECTED"):
        assert set(page[status]) == {"found", "status", "public_batch_id", "message", "brand"}
    assert sql.one("select raw_ops.fn_get_proof_page_v1('PR-00000000')") == {
        "found": False, "status": None, "message": "Batch not found.",
    }  # fmt: skip
    assert not any(three["RELEASED"]["batch_code"] in str(each) for each in page.values())


def test_the_search_finds_released_batches_only(sql, three):
    def search(code):
        return sql.one("select raw_ops.fn_search_batch_v1(%s)", code)

    released = three["RELEASED"]
    wanted = {"found": True, "status": "RELEASED", "public_batch_id": released["public_batch_id"]}
    for code in (released["batch_code"], released["public_batch_id"].lower(), f"  {released['batch_code']} ",
                 released["public_batch_id"].removeprefix("PR-"), released["public_batch_id"].replace("-", "–"),
                 released["batch_code"].replace("-", " ")):  # fmt: skip
        assert search(code) == wanted
    nothing = {"found": False, "status": None, "public_batch_id": None}
    for code in (
        three["QA_HOLD"]["batch_code"],
        three["REJECTED"]["public_batch_id"],
        "",
        None,
        "%",
        "x" * 10_000,
    ):
        assert search(code) == nothing


def test_a_recalled_batch_is_told_from_a_rejected_one_and_its_warning_can_be_found(sql, three):
    recalled = three["RELEASED"]
    before = sql.one("select released_at from raw_ops.batches where id = %s", recalled["batch_id"])
    sql.one("select raw_ops.fn_reject_batch_v1(%s, 'glass in a pouch')", recalled["batch_id"])
    page = sql.one("select raw_ops.fn_get_proof_page_v1(%s)", recalled["public_batch_id"])
    assert (page["status"], page["recalled"]) == ("REJECTED", True)
    assert page["message"] == "We have recalled this batch. Do not feed it."
    assert datetime.fromisoformat(page["recalled_at"]) >= before
    assert not {"results", "batch", "certificate_path"} & set(page)
    assert "glass" not in str(page)
    warned = {"found": False, "status": "REJECTED", "public_batch_id": recalled["public_batch_id"]}
    for code in (recalled["batch_code"].lower(), recalled["public_batch_id"]):
        assert sql.one("select raw_ops.fn_search_batch_v1(%s)", code) == warned
    never = sql.one("select raw_ops.fn_get_proof_page_v1(%s)", three["REJECTED"]["public_batch_id"])
    assert "recalled" not in never


def test_the_latest_batch_is_the_one_released_last(sql):
    latest = "select raw_ops.fn_get_latest_released_batch_v1()"
    assert sql.one(latest) == {"found": False}
    first, second = sql.create(), sql.create()
    for batch in (second, first):
        sql.clock.advance("1 min")
        sql.record(batch)
        sql.release(batch)
    assert sql.one(latest)["public_batch_id"] == first["public_batch_id"]


# ---------------------------------------------------------------- events


def record(sql, event="page_view", batch=None, meta=None, visitor="v", role="anon"):
    with sql.connect(role) as conn:
        return sql.one(
            "select raw_ops.fn_record_proof_page_event_v1(%s, %s, %s, %s)",
            event, batch, Jsonb({} if meta is None else meta), visitor, conn=conn,
        )  # fmt: skip


def test_the_public_records_events_and_cannot_read_them__trap_p12(sql, three):
    assert record(sql, "share_copy", three["RELEASED"]["public_batch_id"], {"from": "phone"}) == {
        "accepted": True
    }
    assert may(sql, "anon", "select * from raw_ops.proof_page_events") is None
    assert may(sql, "anon", "insert into raw_ops.proof_page_events (event) values ('x') returning 1") is None
    assert sql.all("select event, meta from raw_ops.proof_page_events") == [("share_copy", {"from": "phone"})]


@pytest.mark.parametrize(
    "given",
    [
        {"event": "anything"},
        {"event": None},
        {"batch": "PR-00000000"},
        {"meta": {"text": "x" * 600}},
        {"meta": {"deep": {"a": 1}}},
        {"meta": [1]},
        {"visitor": "v" * 101},
    ],
)
def test_an_event_that_is_not_one_of_ours_is_refused__trap_p12(sql, given):
    assert record(sql, **given)["accepted"] is False
    assert sql.one("select count(*) from raw_ops.proof_page_events") == 0


def test_a_batch_that_is_not_released_cannot_be_probed_by_events(sql, three):
    assert record(sql, batch=three["QA_HOLD"]["public_batch_id"]) == record(sql, batch="PR-00000000")


def test_events_are_bounded_by_visitor_by_minute_and_by_day__trap_p12(sql):
    answers = [record(sql)["accepted"] for _ in range(32)]
    assert answers == [True] * 30 + [False] * 2
    assert record(sql, visitor="another")["accepted"]
    sql.clock.advance("1 min")
    assert record(sql)["accepted"]
    for bucket in ("all by minute", "all by day"):
        assert record(sql, visitor=bucket)["accepted"]
        sql.conn.execute(
            "update raw_ops.proof_event_counters set events = 1000000 where bucket = %s", [bucket]
        )
        assert record(sql, visitor="third")["reason"] == "too many events"
        sql.clock.advance("2 days")
