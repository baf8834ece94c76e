"""Bad input: an error of our own that names the argument and the value, and nothing written."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

NOBODY = UUID("00000000-0000-4000-8000-000000000000")

JOB_OPTIONS = [
    ("OW008", ["task", "''"], {"task": ""}),
    ("OW008", ["task", "null"], {"task": None}),
    ("OW008", ["task", "'no spaces'"], {"task": "no spaces"}),
    ("OW008", ["task"], {"task": "x" * 201}),
    ("OW002", ['lane "mial" does not exist', "default", "add_lane"], {"lane": "mial"}),
    ("OW002", ["lane"], {"lane": None}),
    ("OW002", ['lane "" does not exist', "Known lanes: default", "1 to 100 letters"], {"lane": ""}),
    ("OW008", ["priority", "'1001'"], {"priority": 1001}),
    ("OW008", ["priority", "'-1001'"], {"priority": -1001}),
    ("OW008", ["priority", "null"], {"priority": None}),
    ("OW008", ["run_at", "9999"], {"run_at": "9999-12-31 00:00:00+00"}),
    ("OW008", ["run_at", "infinity"], {"run_at": "infinity"}),
    ("OW008", ["run_at", "-infinity"], {"run_at": "-infinity"}),
    ("OW008", ["run_at", "before the year 2000", "0001"], {"run_at": "0001-01-01 00:00:00+00"}),
    ("OW008", ["run_at", "before the year 2000", "1999"], {"run_at": "1999-12-31 23:59:59+00"}),
    ("OW008", ["expires_at", "2001"], {"expires_at": "2001-01-01 00:00:00+00"}),
    ("OW008", ["expires_at", "9999"], {"expires_at": "9999-12-31 00:00:00+00"}),
    ("OW008", ["expires_at", "infinity"], {"expires_at": "infinity"}),
    ("OW008", ["timeout", "'-00:00:01'"], {"timeout": "-1 s"}),
    ("OW008", ["timeout", "'00:00:00'"], {"timeout": "0"}),
    ("OW008", ["timeout", "31 days"], {"timeout": "31 days"}),
    ("OW008", ["max_attempts", "'0'"], {"max_attempts": 0}),
    ("OW008", ["max_attempts", "'1001'"], {"max_attempts": 1001}),
    ("OW008", ["max_attempts", "null"], {"max_attempts": None}),
    ("OW008", ["tenant", "'*'"], {"tenant": "*"}),
    ("OW008", ["tenant", "''"], {"tenant": ""}),
    ("OW008", ["tenant"], {"tenant": "a\nb"}),
    ("OW008", ["concurrency_key", "''"], {"concurrency_key": ""}),
    ("OW008", ["concurrency_key"], {"concurrency_key": "x" * 501}),
    ("OW008", ["concurrency_limit", "'0'"], {"concurrency_key": "k", "concurrency_limit": 0}),
    ("OW008", ["concurrency_limit", "null"], {"concurrency_key": "k", "concurrency_limit": None}),
    ("OW008", ["concurrency_limit", "concurrency_key", "'3'"], {"concurrency_limit": 3}),
    ("OW008", ["concurrency_limit", "'0'"], {"concurrency_limit": 0}),
    ("OW008", ["headers", "[1]"], {"headers": Jsonb([1])}),
    ("OW008", ["headers", "8192"], {"headers": {"x": "y" * 9000}}),
    ("OW008", ["retry", "must be a JSON object"], {"retry": Jsonb([5])}),
    ("OW008", ["retry.waits", "-1"], {"retry": {"waits": [1, -1]}}),
    ("OW008", ["retry.waits", "[]"], {"retry": {"waits": []}}),
    ("OW008", ["retry.waits", '"5"'], {"retry": {"waits": ["5"]}}),
    ("OW008", ["retry.waits", "year"], {"retry": {"waits": [31536001]}}),
    ("OW008", ["retry.waits"], {"retry": {"waits": 5}}),
    ("OW008", ["retry.base", "-1"], {"retry": {"base": -1}}),
    ("OW008", ["retry.base", '"5"'], {"retry": {"base": "5"}}),
    ("OW008", ["retry.cap", "31536001"], {"retry": {"cap": 31536001}}),
    ("OW008", ["retry.factor", "0.5"], {"retry": {"factor": 0.5}}),
    ("OW008", ["retry.jitter", "1"], {"retry": {"jitter": 1}}),
    ("OW008", ["retry.max_snoozes", "1.5"], {"retry": {"max_snoozes": 1.5}}),
    ("OW008", ["retry.wait ", "is not known", "waits"], {"retry": {"wait": 5}}),
    ("OW008", ["after_policy", "'hope'", "ignore"], {"after_policy": "hope"}),
    ("OW008", ["after_policy", "null"], {"after_policy": None}),
    # Without a key it has no effect, and is looked at all the same.
    ("OW008", ["key_window", "'soon'"], {"key_window": "soon"}),
    ("OW008", ["key_window", "null"], {"key_window": None}),
]
KEY_OPTIONS = [
    ("OW008", ["key", "''"], "", "live"),
    ("OW008", ["key"], "x" * 501, "live"),
    ("OW008", ["key_window", "'soon'"], "k", "soon"),
    ("OW008", ["key_window", "'-1 day'"], "k", "-1 day"),
    ("OW008", ["key_window", "'0 s'"], "k", "0 s"),
    ("OW008", ["key_window", "'11 years'"], "k", "11 years"),
    ("OW008", ["key_window", "null"], "k", None),
    ("OW008", ["key_window", "99999999999999 years"], "k", "99999999999999 years"),
]


def ids(cases):
    return [f"{' '.join(case[1])} {number}"[:60] for number, case in enumerate(cases)]


@pytest.mark.parametrize(("sqlstate", "fragments", "options"), JOB_OPTIONS, ids=ids(JOB_OPTIONS))
def test_a_job_with_a_bad_option_is_refused(db, sqlstate, fragments, options):
    with db.refused(sqlstate, *fragments):
        db.call("enqueue", **{"task": "ocr", **options})
    with db.refused(sqlstate, *fragments):
        db.call("enqueue_many", **{"task": "ocr", "payloads": [Jsonb({})], **options})


@pytest.mark.parametrize(("sqlstate", "fragments", "key", "window"), KEY_OPTIONS, ids=ids(KEY_OPTIONS))
def test_a_job_with_a_bad_key_is_refused(db, sqlstate, fragments, key, window):
    with db.refused(sqlstate, *fragments):
        db.call("enqueue", task="ocr", key=key, key_window=window)
    with db.refused(sqlstate, *fragments):
        db.call("enqueue_many", task="ocr", payloads=[Jsonb({})], keys=[key], key_window=window)


def test_an_expiry_before_the_start_is_refused(db):
    with db.refused("OW008", "expires_at", "never"):
        db.run(
            "select onceward.enqueue('ocr', p_run_at => onceward.now() + '2 h', p_expires_at => onceward.now() + '1 h')"
        )


def test_a_payload_that_is_null_is_refused(db):
    with db.refused("OW008", "payload", "not null"):
        db.call("enqueue", task="ocr", payload=None)
    with db.refused("OW008", "payloads"):
        db.run("select onceward.enqueue_many('ocr', null)")
    with db.refused("OW008", "payloads"):
        db.run("select onceward.enqueue_many('ocr', array['{}'::jsonb, null])")


@pytest.mark.parametrize(
    ("payload", "kind"),
    [([1], "an array"), ("x", "a string"), (5, "a number"), (True, "a boolean"), (None, "null")],
)
def test_a_payload_that_is_no_object_is_refused(db, payload, kind):
    dead = db.dead_letter()

    with db.refused("OW008", f"payload must be a JSON object, not {kind}", "Name the values"):
        db.call("enqueue", task="ocr", payload=Jsonb(payload))
    with db.refused("OW008", f"payload must be a JSON object, not {kind}"):
        db.call("enqueue_many", task="ocr", payloads=[Jsonb({}), Jsonb(payload)])
    with db.refused("OW008", f"payload must be a JSON object, not {kind}"):
        db.call("requeue", job_id=dead, payload=Jsonb(payload))


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("enqueue", {"task": LONG}),
        ("enqueue", {"task": "ocr", "lane": LONG}),
        ("enqueue", {"task": "ocr", "tenant": LONG}),
        ("enqueue", {"task": "ocr", "key": LONG}),
        ("enqueue", {"task": "ocr", "concurrency_key": LONG}),
        ("enqueue", {"task": "ocr", "payload": Jsonb(LONG)}),
        ("enqueue", {"task": "ocr", "retry": Jsonb({"waits": LONG})}),
        ("add_lane", {"name": LONG}),
        ("pause_lane", {"name": LONG}),
    ],
)
def test_an_error_shows_the_beginning_of_a_long_value(db, function, arguments):
    with pytest.raises(psycopg.Error) as caught:
        db.call(function, **arguments)

    diag = caught.value.diag
    assert diag.sqlstate.startswith("OW")
    assert "x" * 50 in diag.message_primary
    assert "…" in diag.message_primary
    assert len(diag.message_primary + diag.message_detail + diag.message_hint) < 400


def test_the_conflict_of_a_long_key_shows_its_beginning(db):
    db.enqueue(key="k" * 500)

    with pytest.raises(psycopg.Error) as caught:
        db.enqueue(payload={"other": 1}, key="k" * 500)

    assert "k" * 60 + '…"' in caught.value.diag.message_primary


def test_keys_that_do_not_match_the_payloads_are_refused(db):
    with db.refused("OW008", "keys", "'1'", "(2)"):
        db.enqueue_many("ocr", [{}, {}], keys=["a"])


MANY_KEYS = [
    (["concurrency_keys", "as many as payloads (3)", "'1'"], {"concurrency_keys": ["a"]}),
    (["concurrency_keys", "as many as payloads (3)", "'4'"], {"concurrency_keys": ["a"] * 4}),
    (["concurrency_keys", "as many as payloads (3)", "'0'"], {"concurrency_keys": []}),
    (["concurrency_key must be 1 to 500", "''"], {"concurrency_keys": ["a", None, ""]}),
    (["concurrency_key must be 1 to 500", "xx…"], {"concurrency_keys": ["a", "x" * 501, "b"]}),
    (
        ["concurrency_key cannot be given together with concurrency_keys", "'k'", "Leave one of them out"],
        {"concurrency_keys": ["a"] * 3, "concurrency_key": "k"},
    ),
    (["concurrency_key cannot be given", "''"], {"concurrency_keys": ["a"] * 3, "concurrency_key": ""}),
    (["concurrency_limit", "'0'"], {"concurrency_keys": ["a"] * 3, "concurrency_limit": 0}),
    (["concurrency_limit", "'10001'"], {"concurrency_keys": [None] * 3, "concurrency_limit": 10_001}),
    (["concurrency_limit", "null"], {"concurrency_keys": ["a"] * 3, "concurrency_limit": None}),
    (["keys must be", "'1'"], {"concurrency_keys": ["a"] * 3, "keys": ["a"]}),
]


@pytest.mark.parametrize("function", ["enqueue_many", "enqueue_set"])
@pytest.mark.parametrize(("fragments", "options"), MANY_KEYS)
def test_many_jobs_with_bad_concurrency_keys_are_refused(db, function, fragments, options):
    with db.refused("OW008", *fragments):
        db.call(function, task="ocr", payloads=[Jsonb({})] * 3, **options)


def test_concurrency_keys_of_no_payloads_at_all_are_refused(db):
    with db.refused("OW008", "payloads"):
        db.run("select onceward.enqueue_many('ocr', null, p_concurrency_keys => array['a'])")


def test_a_tenant_of_the_session_that_no_job_could_have_is_refused(db):
    db.run("select set_config('onceward.tenant', %s, false)", "a\nb")

    with db.refused("OW008", "tenant"):
        db.enqueue()


@pytest.mark.parametrize("most", [0, -1, 10_001, None])
def test_a_claim_of_no_sensible_number_is_refused(db, most):
    worker = db.worker()

    with db.refused("OW008", "max", "null" if most is None else str(most)):
        db.call("claim", worker_id=worker, max=most)


@pytest.mark.parametrize("lanes", [[], None])
def test_a_claim_that_names_no_lane_is_refused(db, lanes):
    worker = db.worker()

    with db.refused("OW008", "lanes"):
        db.call("claim", worker_id=worker, lanes=lanes)


def test_a_claim_from_an_unknown_lane_or_by_an_unknown_worker_is_refused(db):
    worker = db.worker()

    with db.refused("OW002", '"mial"'):
        db.call("claim", worker_id=worker, lanes=["default", "mial"])
    with db.refused("OW009", str(NOBODY), "register_worker"):
        db.call("claim", worker_id=NOBODY)


WORKERS = [
    (["name", "null"], {"name": None}),
    (["name", "''"], {"name": ""}),
    (["lease", "'00:00:00.5'"], {"lease": "0.5 s"}),
    (["lease", "2 days"], {"lease": "2 days"}),
    (["lease", "null"], {"lease": None}),
    (["lanes", "at least one"], {"lanes": []}),
    (["lanes", "at least one"], {"lanes": None}),
    (["concurrency", "'0'"], {"concurrency": 0}),
    (["concurrency", "null"], {"concurrency": None}),
    (["tasks", "'a b'"], {"tasks": ["ok", "a b"]}),
    (["tasks", "null"], {"tasks": ["ok", None]}),
]


@pytest.mark.parametrize(("fragments", "options"), WORKERS)
def test_a_worker_with_a_bad_description_is_refused(db, fragments, options):
    with db.refused("OW008", *fragments):
        db.call("register_worker", **{"name": "w", **options})


def test_a_worker_for_an_unknown_lane_is_refused(db):
    with db.refused("OW002", '"mial"', "Known lanes: default."):
        db.call("register_worker", name="w", lanes=["default", "mial"])


LANES = [
    (["lane", "''"], {"name": ""}),
    (["lane", "null"], {"name": None}),
    (["lane", "'a b'"], {"name": "a b"}),
    (["max_payload_bytes", "'0'"], {"name": "a", "max_payload_bytes": 0}),
    (["max_result_bytes", "'-1'"], {"name": "a", "max_result_bytes": -1}),
    (["max_payload_bytes", "2147483647"], {"name": "a", "max_payload_bytes": 2147483647}),
]


@pytest.mark.parametrize(("fragments", "options"), LANES)
def test_a_lane_with_a_bad_name_or_cap_is_refused(db, fragments, options):
    with db.refused("OW008", *fragments):
        db.call("add_lane", **options)


def test_declaring_a_bad_lane_creates_none(db):
    with db.refused("OW008", "lane", "'no good'"):
        db.call("declare_lanes", names=["fine", "no good"])


@pytest.mark.parametrize("function", ["pause_lane", "resume_lane"])
def test_an_unknown_lane_is_neither_paused_nor_resumed(db, function):
    with db.refused("OW002", '"mial"'):
        db.call(function, name="mial")


@pytest.mark.parametrize("function", ["cancel", "requeue", "run_now"])
def test_an_unknown_job_is_named(db, function):
    with db.refused("OW006", str(NOBODY)):
        db.call(function, job_id=NOBODY)


def test_an_unknown_job_cannot_be_resolved(db):
    with db.refused("OW006", str(NOBODY)):
        db.call("resolve", job_id=NOBODY, note="settled")


@pytest.mark.parametrize("delay", ["-1 s", "11 years", None])
def test_a_snooze_of_no_sensible_length_is_refused(db, delay):
    claim = db.running()

    with db.refused("OW008", "delay"):
        db.snooze(claim, delay)
    assert db.state(claim.job_id) == "running"


def test_progress_of_more_than_16_kib_is_refused(db):
    claim = db.running()

    with db.refused("OW008", "progress", "16384"):
        db.progress(claim, {"x": "y" * 20_000})


@pytest.mark.parametrize("note", [None, "", "   "])
def test_a_resolution_without_a_note_is_refused(db, note):
    job = db.dead_letter()

    with db.refused("OW008", "note"):
        db.resolve(job, note)


@pytest.mark.parametrize(
    "run_at", ["9999-12-31 00:00:00+00", "infinity", "-infinity", "0001-01-01 00:00:00+00"]
)
def test_a_requeue_of_no_sensible_time_is_refused(db, run_at):
    job = db.dead_letter()

    with db.refused("OW008", "run_at"):
        db.requeue(job, run_at=run_at)


def test_a_requeue_with_too_large_a_payload_is_refused(db):
    job = db.dead_letter()

    with db.refused("OW003", "262144"):
        db.requeue(job, payload={"x": "y" * 300_000})


@pytest.mark.parametrize("function", ["promote", "rescue", "tidy"])
@pytest.mark.parametrize("limit", [0, -1, None, 1_000_001])
def test_maintenance_without_a_sensible_bound_is_refused(db, function, limit):
    with db.refused("OW008", "limit"):
        db.call(function, limit=limit)


@pytest.mark.parametrize("days", [-1, None, 1000])
def test_partitions_for_no_sensible_number_of_days_are_refused(db, days):
    with db.refused("OW008", "days_ahead"):
        db.call("ensure_partitions", days_ahead=days)
