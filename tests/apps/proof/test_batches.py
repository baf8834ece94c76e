"""Creating batches: codes, public ids, refusals."""

from __future__ import annotations

import re
import threading
from datetime import date
from decimal import Decimal

import pytest

from tests.apps.proof.conftest import DAY


def test_a_batch_is_created_with_everything_that_the_contract_names(sql):
    answer = sql.create(DAY, Decimal("512.5"))

    batch = sql.batch(answer)
    assert answer == {
        "success": True,
        "batch_id": str(batch.id),
        "batch_code": "PR-260320-001",
        "public_batch_id": batch.public_batch_id,
        "proof_url": f"https://proof.protocolraw.co.uk/batch/{batch.public_batch_id}",
        "expiry_date": "2027-03-20",
    }
    assert (batch.status, float(batch.kg_produced), float(batch.cogs_per_kg_gbp)) == ("QA_HOLD", 512.5, 3.8)
    job = sql.job(answer)
    assert (job.state, job.attempts, job.max_attempts, job.job_key) == (
        "queued",
        0,
        5,
        f"proof:batch:{batch.id}",
    )
    assert [row[0] for row in sql.all("select new_status from raw_ops.batch_status_history")] == ["QA_HOLD"]
    assert {row[0] for row in sql.all("select message from raw_ops.ops_events")} == {
        "Batch created via Ops Portal",
        "Proof job enqueued",
    }


def test_the_formulation_is_the_one_that_holds_on_the_production_date(sql):
    sql.conn.execute(
        "insert into raw_ops.formulations (version, name, effective_from, effective_until, shopify_page_url)"
        " values ('v3', 'Next', '2026-06-01', '2026-06-30', 'https://example.com')"
    )
    used = "select f.version from raw_ops.batches b join raw_ops.formulations f on f.id = b.formulation_id where b.id = %s"
    versions = [
        sql.one(used, sql.create(day)["batch_id"])
        for day in (date(2026, 5, 31), date(2026, 6, 1), date(2026, 6, 30), date(2026, 7, 1))
    ]
    assert versions == ["v2.1", "v3", "v3", "v2.1"]


@pytest.mark.parametrize(
    ("day", "kg", "error"),
    [
        (None, 1, "production_date is required"),
        (DAY, None, "kg_produced must be positive"),
        (DAY, 0, "kg_produced must be positive"),
        (DAY, -1, "kg_produced must be positive"),
        (DAY, float("nan"), "kg_produced must be positive"),
        (DAY, float("inf"), "kg_produced must be less than 1000000, got Infinity"),
        (DAY, 1_000_000, "kg_produced must be less than 1000000, got 1000000"),
        (date(1999, 12, 31), 1, "production_date must lie between 2000-01-01 and 2099-12-31, got 1999-12-31"),
        (date(2020, 1, 1), 1, "No active formulation found for date 2020-01-01"),
    ],
)
def test_bad_input_is_refused_and_the_refusal_stays_in_the_log__trap_p10(sql, day, kg, error):
    answer = sql.one("select raw_ops.fn_create_batch_v1(%s, %s::numeric)", day, kg)

    assert answer == {"success": False, "error": error}
    assert sql.one("select count(*) from raw_ops.batches") == 0
    # Recorded outside the block that failed; the source's insert was rolled back with it.
    assert sql.all("select kind, message from raw_ops.ops_events") == [
        ("ERROR", f"Batch creation failed: {error}")
    ]


def test_without_a_product_no_batch(sql):
    sql.conn.execute("delete from raw_ops.products")
    assert sql.one("select raw_ops.fn_create_batch_v1('2026-03-20', 1)")["error"] == "No product found"


def test_the_thousandth_batch_of_a_day_grows_a_digit__trap_p1(sql):
    sql.conn.execute("insert into raw_ops.batch_counters values (%s, 998)", [DAY])
    assert [sql.create()["batch_code"] for _ in range(3)] == [
        "PR-260320-999", "PR-260320-1000", "PR-260320-1001",
    ]  # fmt: skip


def test_codes_that_were_brought_along_are_not_given_out_again(sql):
    sql.create()
    sql.conn.execute("update raw_ops.batches set batch_code = 'PR-260320-041'")
    sql.conn.execute("delete from raw_ops.batch_counters")
    assert sql.create()["batch_code"] == "PR-260320-042"


def test_a_creation_that_fails_leaves_no_gap__trap_p1(sql):
    sql.create()
    sql.conn.execute("alter table raw_ops.batches add constraint no_ten check (kg_produced <> 10)")
    assert not sql.one("select raw_ops.fn_create_batch_v1(%s, 10)", DAY)["success"]
    with sql.connect() as other, other.transaction(force_rollback=True):
        sql.one("select raw_ops.fn_create_batch_v1(%s, 1)", DAY, conn=other)
    assert sql.create()["batch_code"] == "PR-260320-002"


@pytest.mark.race
@pytest.mark.slow
def test_twenty_operators_at_once_get_codes_without_gaps_and_distinct_public_ids__trap_p1(sql):
    callers, each = 20, 6
    start, answers = threading.Barrier(callers), []

    def operate():
        with sql.connect() as conn:
            start.wait(30)
            answers.extend(
                sql.one("select raw_ops.fn_create_batch_v1(%s, 1)", DAY, conn=conn) for _ in range(each)
            )

    threads = [threading.Thread(target=operate) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert all(answer["success"] for answer in answers)
    assert sorted(answer["batch_code"] for answer in answers) == [
        f"PR-260320-{n:03}" for n in range(1, callers * each + 1)
    ]
    assert len({answer["public_batch_id"] for answer in answers}) == callers * each
    assert sql.one("select count(*) from raw_ops.proof_jobs where state = 'queued'") == callers * each


def test_public_ids_have_the_form_of_the_contract_and_tell_nothing__trap_p13(sql):
    ids = [row[0] for row in sql.all("select raw_ops.fn_new_public_batch_id() from generate_series(1, 2000)")]
    assert all(re.fullmatch("PR-[0-9A-HJKMNP-TV-Z]{8}", made) for made in ids)
    assert len(set(ids)) == len(ids)
    # Forty bits, all of them used: every letter in every place.
    assert all(len({made[place] for made in ids}) == 32 for place in range(3, 11))
    # The address of the latest batch can never be one of them.
    assert "L" not in "".join(ids)


def test_a_public_id_that_is_taken_is_drawn_again__trap_p13(sql):
    taken = sql.create()["public_batch_id"]
    sql.conn.execute(
        f"""create sequence raw_ops.draws; grant all on sequence raw_ops.draws to onceward_owner;
        create or replace function raw_ops.fn_new_public_batch_id() returns text language sql volatile as
        $$ select case when nextval('raw_ops.draws') <= 3 then '{taken}' else 'PR-ZZZZZZZZ' end $$"""
    )
    assert sql.create()["public_batch_id"] == "PR-ZZZZZZZZ"
    assert sql.one("select last_value from raw_ops.draws") == 4


def test_a_batch_that_came_without_its_job_gets_one(sql):
    sql.conn.execute("alter table raw_ops.batches disable trigger trigger_enqueue_proof_job")
    batch = sql.create()
    assert sql.job(batch) is None

    assert [sql.one("select raw_ops.fn_enqueue_missing_proof_jobs_v1()") for _ in range(2)] == [1, 0]
    assert sql.job(batch).state == "queued"


def test_the_tenant_of_the_session_does_not_matter_and_is_left_as_it_was(sql):
    with sql.conn.transaction():
        sql.conn.execute("set local onceward.tenant = 'somebody'")
        batch = sql.create()
        assert sql.one("select current_setting('onceward.tenant')") == "somebody"
    assert sql.one("select tenant from onceward.jobs") == "default"
    assert sql.job(batch).state == "queued"
