"""The traps of the source documents, H1 to H13: each of these fails on the documents' own version."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from onceward_apps.intake import store
from onceward_apps.intake.jobs import sweep_orphans
from tests.apps.intake.stage import png


@pytest.fixture
def sql(intake):
    """The schema alone, and time that stands still."""
    intake.clock.pin()
    return intake


def enqueue(intake, kind="report_generation", payload=None, **given):
    names = "".join(f", {name} => %({name})s" for name in given)
    return intake.conn.execute(
        f"select job_id, scheduled_at from intake.enqueue_job_v3(%(kind)s, 'a job', %(payload)s{names})",
        {"kind": kind, "payload": Jsonb(payload or {"n": 1}), **given},
    ).fetchone()


def claim(intake, worker="w1", **given):
    names = "".join(f", {name} => %({name})s" for name in given)
    return intake.row_of(
        f"select * from intake.claim_next_job_v3(worker_id => %(worker)s{names})", worker=worker, **given
    )


def job(intake, job_id):
    return intake.row_of("select * from intake.job_queue where id = %(id)s", id=job_id)


# ------------------------------------------------------------ H1


def test_h1_the_documented_names_work_outside_and_are_not_ambiguous_inside(sql):
    moment = sql.one("select onceward.now()")
    job_id, at = enqueue(sql, priority=7, scheduled_at=moment, job_category="reports")
    assert at == moment
    got = claim(sql, job_types=["report_generation"], job_lanes=["standard_queue"])
    assert (got.job_id, got.job_type, got.retry_count) == (job_id, "report_generation", 0)
    assert got.job_payload["n"] == 1
    sql.clock.advance("301 s")
    again = claim(sql, "w2")
    assert (again.job_id, again.retry_count) == (job_id, 1)


def test_h1_jobs_of_other_types_in_the_lane_are_left_alone(sql):
    unwanted, _ = enqueue(sql, "backup_operation", priority=9)
    wanted, _ = enqueue(sql, "report_generation")
    assert claim(sql, job_types=["report_generation"]).job_id == wanted
    assert claim(sql, job_types=["report_generation"]) is None
    assert (job(sql, unwanted).status, job(sql, unwanted).retry_count) == ("pending", 0)
    assert claim(sql).job_id == unwanted


# ------------------------------------------------------------ H2


def test_h2_completing_says_whether_it_did_and_only_that_is_in_the_audit_log(sql):
    job_id, _ = enqueue(sql)
    claim(sql)
    completed = "select count(*) from intake.audit_log where reason = 'Job completed successfully'"
    assert not sql.one("select intake.complete_job(%s, 'somebody else')", job_id)
    assert not sql.one("select intake.complete_job(%s, 'w1')", uuid4())
    assert sql.one(completed) == 0
    assert sql.one("select intake.complete_job(%s, 'w1', '{\"ok\": true}')", job_id)
    assert sql.one(completed) == 1
    assert not sql.one("select intake.complete_job(%s, 'w1')", job_id)
    assert sql.one(completed) == 1
    assert job(sql, job_id).job_result == {"ok": True}


# ------------------------------------------------------------ H3


def test_h3_a_claim_ends_after_the_timeout_and_not_after_the_sum_of_two_settings(sql):
    job_id, _ = enqueue(sql)
    claim(sql)
    assert job(sql, job_id).heartbeat_at == sql.one("select onceward.now()") + timedelta(seconds=300)
    sql.clock.advance("299 s")
    assert claim(sql, "w2") is None
    assert sql.one("select intake.update_job_heartbeat(%s, 'w1')", job_id)
    sql.clock.advance("299 s")
    assert claim(sql, "w2") is None
    sql.clock.advance("2 s")
    assert not sql.one("select intake.update_job_heartbeat(%s, 'w1')", job_id)
    assert claim(sql, "w2").job_id == job_id
    assert not sql.one("select intake.complete_job(%s, 'w1')", job_id)


# ------------------------------------------------------------ H4, H5


def test_h4_rescheduling_needs_the_lease(sql):
    job_id, _ = enqueue(sql)
    move = "select intake.reschedule_job(p_job_id => %s, p_delay_seconds => 60, p_reason => 'later', p_worker_id => %s)"
    assert not sql.one(move, job_id, None)
    claim(sql)
    assert not sql.one(move, job_id, "w2")
    assert sql.one(move, job_id, "w1")
    assert job(sql, job_id).status == "pending"
    assert not sql.one(move, job_id, "w1")


def test_h4_putting_off_is_counted_and_bounded_and_uses_up_no_attempt(sql):
    sql.configure("worker.max_snoozes", "3")
    job_id, _ = enqueue(sql)
    for count in range(1, 4):
        assert claim(sql).retry_count == 0
        assert sql.one("select intake.reschedule_job(%s, 30, 'api_rate_limit_backpressure', true)", job_id)
        assert job(sql, job_id).reschedule_count == count
        sql.clock.advance("60 s")
    claim(sql)
    sql.one("select intake.reschedule_job(%s, 30, 'again')", job_id)
    assert job(sql, job_id).status == "failed"


def test_h4_jitter_is_at_most_half_the_delay(sql):
    for _ in range(10):
        job_id, _ = enqueue(sql)
        claim(sql)
        sql.one("select intake.reschedule_job(%s, 20, 'later', true)", job_id)
        wait = job(sql, job_id).scheduled_at - sql.one("select onceward.now()")
        assert timedelta(seconds=20) <= wait <= timedelta(seconds=30)
        sql.clock.advance("31 s")
        claim(sql)
        sql.one("select intake.complete_job(%s, 'w1')", job_id)


# ------------------------------------------------------------ H6


def test_h6_there_is_one_state_machine_and_one_number_of_retries(sql):
    job_id, _ = enqueue(sql)
    retries = int(
        sql.one(
            "select config_value from intake.system_configuration where config_key = 'worker.max_retries'"
        )
    )
    assert job(sql, job_id).max_retries == retries == 6
    for attempt in range(retries + 1):
        assert claim(sql).retry_count == attempt
        assert job(sql, job_id).dead_letter_at is None
        sql.one("select intake.fail_job(%s, 'w1', 'api_error', 'no')", job_id)
        sql.clock.advance("71 s")
    end = job(sql, job_id)
    assert (end.status, end.retry_count) == ("failed", 6)
    assert end.dead_letter_at is not None
    assert claim(sql) is None


# ------------------------------------------------------------ H7, H8


def test_h7_a_killed_worker_leaks_nothing_and_no_turn_of_the_minute_lets_twice_as_much_through(sql):
    sql.conn.execute(
        "select onceward.set_limit('intake:openai:gpt-4o-mini', 60, p_weight => 60000, p_weight_burst => 6000)"
    )
    ask = "select intake.acquire_api_capacity('openai', 'gpt-4o-mini', 1000)"
    granted = []
    for second in range(150):
        while sql.one(ask):
            # Never released: each of them is a worker that was killed.
            granted.append(second)
        sql.clock.advance("1 s")
    most = max(sum(1 for at in granted if start <= at < start + 60) for start in range(91))
    assert most <= 60
    assert sum(1 for at in granted if 60 <= at < 120) >= 50


def test_h7_tokens_are_settled_to_the_unit(sql):
    sql.conn.execute(
        "select onceward.set_limit('intake:openai:gpt-4o-mini', 500, p_weight => 200000, p_weight_burst => 20000)"
    )
    left = "select tokens_left from intake.api_rate_limits where api_endpoint = 'gpt-4o-mini'"
    assert sql.one("select intake.acquire_api_capacity('openai', 'gpt-4o-mini', 1000)")
    reserved = sql.one(left)
    assert sql.one("select intake.release_api_capacity('openai', 'gpt-4o-mini', 1000, 733)")
    assert sql.one(left) - reserved == pytest.approx(267)
    assert sql.one("select actual_tokens from intake.api_calls") == 733
    assert not sql.one("select intake.release_api_capacity('openai', 'gpt-4o-mini', 1000, 733)")


@pytest.mark.parametrize(
    ("provider", "endpoint"),
    [("openai", "gpt-4o-mini"), ("google_vision", "document_text_detection"), ("anthropic", "claude")],
)
def test_h8_any_provider_can_push_back(sql, provider, endpoint):
    sql.conn.execute(
        "update intake.api_providers set requests_per_minute = 10 where provider_name = %s", [provider]
    )
    sql.conn.execute(
        "select onceward.set_limit(limit_name, 10, p_burst => 10) from intake.api_providers where provider_name = %s",
        [provider],
    )
    file = stored(sql)
    payload = {"shell_file_id": str(file), "provider_name": provider, "api_endpoint": endpoint}
    now = sql.one("select onceward.now()")
    assert enqueue(sql, "ai_processing", payload)[1] == now
    for _ in range(9):
        assert sql.one("select intake.acquire_api_capacity(%s, %s, 0)", provider, endpoint)
    assert enqueue(sql, "ai_processing", payload)[1] == now + timedelta(seconds=30)
    others = {"shell_file_id": str(file), "provider_name": "embedded", "api_endpoint": "extractor"}
    assert enqueue(sql, "ai_processing", others)[1] == now


# ------------------------------------------------------------ H9, H10


def stored(intake, profile=None, key=None, content=b"x", user=None) -> UUID:
    """A file, as the upload route records it."""
    answer = accept(intake, profile, key, content, user)
    assert answer["outcome"] == "created", answer
    return UUID(answer["shell_file_id"])


def accept(intake, profile=None, key=None, content=b"x", user=None, conn=None):
    profile, new = profile or intake.profile, uuid4()
    user = user or (intake.owner if profile == intake.profile else intake.stranger)
    conn = conn or intake.conn
    with conn.transaction():
        conn.execute("select set_config('request.jwt.claims', %s, true)", [f'{{"sub": "{user}"}}'])
        return conn.execute(
            "select intake.accept_upload(%s, %s, 'a.png', 'image/png', 10, sha256(%s), %s, %s, 1500, %s)",
            [new, profile, content, f"{profile}/{new}.png", key or str(new), uuid4()],
        ).fetchone()[0]


def test_h9_a_key_belongs_to_its_profile(sql):
    mine, theirs = stored(sql, key="same"), stored(sql, sql.other, key="same")
    assert mine != theirs


def test_h9_a_repetition_gets_the_first_result_and_changes_nothing(sql):
    first = stored(sql, key="k")
    sql.conn.execute("update intake.shell_files set status = 'completed' where id = %s", [first])
    again = accept(sql, key="k")
    assert (again["outcome"], again["shell_file_id"], again["status"]) == (
        "repeated",
        str(first),
        "completed",
    )
    assert sql.one("select count(*) from intake.shell_files") == 1
    assert sql.one("select files_uploaded from intake.user_usage_tracking") == 1
    assert sql.one("select count(*) from intake.job_queue") == 1


def test_h9_the_same_key_for_other_contents_is_refused(sql):
    stored(sql, key="k", content=b"one")
    assert accept(sql, key="k", content=b"two")["outcome"] == "key_conflict"


def test_h9_of_two_at_once_one_is_the_file(sql):
    with psycopg.connect(sql.dsn) as first, psycopg.connect(sql.dsn, autocommit=True) as second:
        # In a transaction that stays open.
        first.execute("select 1")
        mine = accept(sql, key="k", conn=first)
        found = []
        thread = threading.Thread(target=lambda: found.append(accept(sql, key="k", conn=second)))
        thread.start()
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and pid = %s"
        while not sql.one(waiting, second.info.backend_pid):
            assert thread.is_alive()
        first.commit()
        thread.join(20)
    assert (found[0]["outcome"], found[0]["shell_file_id"]) == ("repeated", mine["shell_file_id"])


def test_h10_file_usage_job_and_audit_are_one_transaction(sql):
    # The last thing that happens cannot: the lane of the job is gone.
    sql.conn.execute(
        "create function public.no() returns trigger language plpgsql as $$begin raise 'no'; end$$"
    )
    sql.conn.execute(
        "create trigger no before insert on onceward.job_private for each row execute function public.no()"
    )
    with pytest.raises(psycopg.Error):
        accept(sql)
    assert sql.one("select count(*) from intake.shell_files") == 0
    assert sql.one("select count(*) from intake.usage_events") == 0
    assert sql.one("select count(*) from intake.audit_log") == 0


# ------------------------------------------------------------ H11 is test_rights.py; H12, H13


@pytest.mark.parametrize("tokens", ["many", 1.5, -1, 0, 10**9, True, [1], {"n": 1}])
def test_h12_a_bad_estimate_is_refused_with_its_name(sql, tokens):
    with pytest.raises(psycopg.Error, match="estimated_tokens must be a whole number from 1 to 1000000"):
        enqueue(sql, payload={"estimated_tokens": tokens})
    assert sql.one("select count(*) from intake.job_queue") == 0


@pytest.mark.parametrize("payload", [{}, [1], "text", None, 7])
def test_h12_a_payload_is_an_object_with_something_in_it(sql, payload):
    with pytest.raises(psycopg.Error, match="job_payload must be an object"):
        sql.conn.execute("select intake.enqueue_job_v3('report_generation', 'a', %s)", [Jsonb(payload)])


@pytest.mark.parametrize("given", [{}, {"shell_file_id": "no id"}, {"shell_file_id": 7}])
def test_h12_a_job_about_a_file_names_it(sql, given):
    with pytest.raises(psycopg.Error, match="shell_file_id must be an id"):
        enqueue(sql, "ai_processing", {"x": 1, **given})


def test_h12_the_default_estimate_is_a_thousand(sql):
    job_id, _ = enqueue(sql)
    assert job(sql, job_id).job_payload["estimated_tokens"] == 1000


def test_h13_there_is_one_log_audit_event_and_both_documented_calls_reach_it(sql):
    assert sql.one("select count(*) from pg_proc where proname = 'log_audit_event'") == 1
    seven = "select intake.log_audit_event('job_queue', %s, 'INSERT', null, '{}', 'Job enqueued', 'system')"
    eight = "select intake.log_audit_event('clinical_facts', 'r', 'UPDATE', '{}', '{}', 'why', 'clinical_data', p_patient_id => %s)"
    assert sql.one(seven, "r")
    sql.one(eight, sql.profile)
    entry = sql.row_of("select * from intake.audit_log where table_name = 'clinical_facts'")
    assert (entry.operation, entry.reason, entry.patient_id) == ("UPDATE", "why", sql.profile)


def test_h10_an_object_without_a_row_is_swept_when_it_is_old_and_no_other(sql):
    async def act():
        database = store.Database(sql.dsn)
        kept = stored(sql)
        for file in (kept, uuid4()):
            await sql.settings.storage.put(f"{sql.profile}/{file}.png", png(), content_type="image/png")
        young = await sweep_orphans(sql.settings, database)
        old = await sweep_orphans(sql.settings, database, now=datetime.now(UTC) + timedelta(hours=25))
        await database.close()
        return young, old, kept

    young, old, kept = asyncio.run(act())
    assert (young, old) == (0, 1)
    assert sql.objects() == [f"{sql.profile}/{kept}.png"]
