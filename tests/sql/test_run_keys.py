"""Run keys and runs: one text from SQL and Python, once per window, and the loser hears who holds it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceward.errors import InvalidArgument
from onceward.run_keys import canonical_json, entity_hash, run_key
from tests.support.engine import Engine, refused
from tests.support.races import Rival, together, transaction

AT = datetime(2026, 2, 6, 23, 30, tzinfo=UTC)


@pytest.fixture(scope="module")
def calm(onceward_server):
    """One database for all tests that write nothing."""
    with onceward_server.cloned() as database, Engine(database) as engine:
        yield engine


def in_sql(db, function="detect-alerts", tenant="acme", grain="day", entity=None, at=AT, zone="UTC"):
    text = None if entity is None else json.dumps(entity)
    return db.value(
        "select onceward.run_key(%s, %s, %s, %s::jsonb, %s, %s)", function, tenant, grain, text, at, zone
    )


def both(db, **arguments):
    options = {"function": "detect-alerts", "tenant": "acme", "at": AT, **arguments}
    key = run_key(options.pop("function"), options.pop("tenant"), **options)
    assert in_sql(db, **arguments) == key
    return key


# ---------------------------------------------------------------- the key


def test_the_form_is_function_tenant_window_hash(calm):
    assert both(calm) == "detect-alerts:acme:2026-02-06"
    assert both(calm, grain="hour") == "detect-alerts:acme:2026-02-06T23+0000"
    key = both(calm, entity={"rule_id": "r123", "sku": "SKU001"})
    # What the standard's own code gives for a flat entity: JSON.stringify of the sorted pairs.
    assert key == "detect-alerts:acme:2026-02-06:971121298e66"


def test_the_day_is_that_of_the_tenant(calm):
    assert both(calm, zone="Asia/Tokyo").endswith(":2026-02-07")
    assert both(calm, zone="America/Los_Angeles", at=datetime(2026, 2, 7, 7, 59, tzinfo=UTC)).endswith(
        "02-06"
    )
    assert both(calm, zone="America/Los_Angeles", at=datetime(2026, 2, 7, 8, 0, tzinfo=UTC)).endswith("02-07")


def test_the_hour_that_is_repeated_in_autumn_is_two_windows(calm):
    first, second = (
        both(calm, grain="hour", zone="America/Los_Angeles", at=datetime(2026, 11, 1, hour, 30, tzinfo=UTC))
        for hour in (8, 9)
    )

    assert first.endswith("2026-11-01T01-0700")
    assert second.endswith("2026-11-01T01-0800")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": {"x": 1, "y": [{"p": 1, "q": 2}]}}, {"a": {"y": [{"q": 2, "p": 1}], "x": 1}}),
        ({"n": 1}, {"n": 1.0}),
        ({"n": 100}, {"n": 1e2}),
        ({"n": 0}, {"n": -0.0}),
    ],
)
def test_the_same_entity_has_the_same_hash_however_it_is_written(calm, one, other):
    assert both(calm, entity=one) == both(calm, entity=other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}), ({"a": [1, 2]}, {"a": [2, 1]}), ({"a": None}, {}), ({"a": True}, {"a": 1}),
        ({"a": [[1], 2]}, {"a": [1, [2]]}), ({"é": 1}, {"e\u0301": 1}),
    ],
)  # fmt: skip
def test_different_entities_have_different_hashes(calm, one, other):
    assert both(calm, entity=one) != both(calm, entity=other)


TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
NUMBERS = (
    st.integers(-(10**38) + 1, 10**38 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1e6, 1e6).map(lambda value: round(value, 3))
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=400)
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
@example({"\U0001f600": 1, "\uffff": 2, "z": 3, "Z": 4, "\x7f": '\x1f\u2028"\\/'})
@example(
    {"n": [1e-7, 1.5e-38, 123456789012345678901234567890, 5e-324, 1e22, 1.7976931348623157e308, -0.0, 0.1]}
)
def test_sql_and_python_agree_on_every_entity_or_both_refuse_it(calm, entity):
    try:
        ours = entity_hash(entity)
    except InvalidArgument as error:
        assert "38 digits" in error.message
        with refused("OW008", "38 digits"):
            in_sql(calm, entity=entity)
    else:
        assert in_sql(calm, entity=entity).rsplit(":", 1)[1] == ours
        exact = {"parse_int": Decimal, "parse_float": Decimal}
        assert json.loads(canonical_json(entity), **exact) == json.loads(json.dumps(entity), **exact)


@settings(max_examples=200)
@given(
    st.datetimes(datetime.fromisoformat("2020-01-01"), datetime.fromisoformat("2037-12-31")),
    st.sampled_from(["UTC", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Chatham", "Etc/GMT+5"]),
    st.sampled_from(["hour", "day"]),
)  # fmt: skip
def test_sql_and_python_agree_on_every_window(calm, moment, zone, grain):
    both(calm, at=moment.replace(tzinfo=UTC), zone=zone, grain=grain)


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ({"function": "a:b"}, "function must be"),
        ({"function": ""}, "function must be"),
        ({"tenant": "a:b"}, "tenant must be"),
        ({"tenant": "*"}, "tenant must be"),
        ({"grain": "week"}, "grain must be hour or day"),
        ({"zone": "CET"}, "zone must be the name of a time zone"),
        ({"zone": "Mars/Olympus"}, "zone must be a"),
        ({"entity": [1]}, "entity must be"),
        ({"entity": {"n": 10**38}}, "38 digits"),
    ],
)
def test_both_refuse_the_same(calm, arguments, fragment):
    with pytest.raises(InvalidArgument, match=fragment):
        both(calm, **arguments)
    with refused("OW008", fragment):
        in_sql(calm, **arguments)


@pytest.mark.parametrize(
    "entity",
    [
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": "\x00"},
        {"a": "\ud800"},
        {1: 2},
        {"a": object()},
        {"a": AT},
    ],
)
def test_python_refuses_what_json_cannot_carry(entity):
    with pytest.raises(InvalidArgument, match="entity"):
        entity_hash(entity)


def test_python_takes_what_has_one_text(calm):
    rule = uuid4()

    assert entity_hash({"rule": rule, "price": Decimal("9.50"), "pair": (1, 2)}) == entity_hash(
        {"rule": str(rule), "price": 9.5, "pair": [1, 2]}
    )
    with pytest.raises(InvalidArgument, match="at must have a time zone"):
        run_key("f", "t", at=datetime.fromisoformat("2026-01-01"))


# ---------------------------------------------------------------- once per window


def begin(db, key="k", holder="a", **options):
    (row,) = db.call("begin_run", key=key, holder=holder, **options)
    return row


def test_the_first_runs_and_the_second_hears_who_since_when(db):
    first = begin(db, holder="host-1", lease="10 min")
    db.clock.advance("1 min")

    second = begin(db, holder="host-2")

    assert (first.acquired, first.state, first.epoch, first.attempt) == (True, "running", 1, 1)
    assert (second.acquired, second.state, second.holder) == (False, "running", "host-1")
    assert second.since == db.now() - timedelta(minutes=1)
    assert second.expires_at == db.now() + timedelta(minutes=9)


def test_what_has_completed_blocks_for_good_and_tells_its_result(db):
    run = begin(db)
    db.call("finish_run", key="k", epoch=run.epoch, result={"alerts": 3})
    db.clock.advance("1 day")

    again = begin(db, holder="b")

    assert (again.acquired, again.state, again.result, again.holder) == (
        False,
        "completed",
        {"alerts": 3},
        "a",
    )


def test_what_failed_may_be_tried_again(db):
    run = begin(db)
    db.call("fail_run", key="k", epoch=run.epoch, error="ValueError: no")
    assert db.one("select state, error from onceward.runs") == ("failed", "ValueError: no")

    again = begin(db, holder="b")

    assert (again.acquired, again.epoch, again.attempt, again.holder) == (True, 2, 2, "b")
    assert db.one("select state, error, finished_at from onceward.runs") == ("running", None, None)


def test_a_run_whose_holder_died_is_taken_over_when_its_lease_is_over(db):
    begin(db, lease="5 min")
    db.clock.advance("299 s")
    assert begin(db, holder="b").acquired is False
    db.clock.advance("1 s")
    assert db.value("select abandoned from onceward.runs") is True

    assert begin(db, holder="b").epoch == 2


def test_renewing_keeps_it(db):
    run = begin(db, lease="5 min")
    db.clock.advance("4 min")
    db.call("renew_run", key="k", epoch=run.epoch, lease="5 min")
    db.clock.advance("4 min")

    assert begin(db, holder="b").acquired is False


@pytest.mark.parametrize(
    ("function", "more"),
    [("finish_run", {}), ("fail_run", {"error": "x"}), ("renew_run", {"lease": "1 min"})],
)
def test_who_has_lost_the_run_can_do_nothing_to_it(db, function, more):
    lost = begin(db, lease="1 s")
    db.clock.advance("1 s")
    begin(db, holder="b")

    with db.refused("OW001", 'run "k" is not held under epoch 1', "by b since"):
        db.call(function, key="k", epoch=lost.epoch, **more)
    assert db.one("select state, holder, epoch from onceward.runs") == ("running", "b", 2)


def test_a_late_end_is_taken_when_nobody_has_taken_over(db):
    run = begin(db, lease="1 s")
    db.clock.advance("1 h")

    db.call("finish_run", key="k", epoch=run.epoch)

    assert db.value("select state from onceward.runs") == "completed"


def test_calls_may_be_repeated_when_their_reply_was_lost(db):
    token = uuid4()
    first, again = begin(db, token=token), begin(db, token=token)
    assert (first.acquired, again.acquired, again.epoch) == (True, True, 1)
    assert begin(db, token=uuid4()).acquired is False

    for _ in range(2):
        db.call("finish_run", key="k", epoch=1, result={"n": 1})
    assert begin(db, token=token).acquired is False
    with refused("OW001"):
        db.call("fail_run", key="k", epoch=1)


def test_the_same_holder_name_is_not_the_same_holder(db):
    assert [begin(db).acquired, begin(db).acquired] == [True, False]


def test_keys_belong_to_a_tenant(db):
    assert begin(db, tenant="acme").acquired
    assert begin(db, tenant="globex").acquired
    nobody = db.on(db.connect(role="onceward_producer"))
    with refused("OW011", "run belongs to another tenant"):
        begin(nobody, tenant="acme")
    acme = db.on(db.connect(role="onceward_producer", tenant="acme"))
    assert begin(acme).holder == "a"
    assert [row.tenant for row in acme.run("select tenant from onceward.runs")] == ["acme"]


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"key": ""}, "key must be"), ({"key": None}, "key must be"), ({"key": "x" * 501}, "key must be"),
        ({"holder": ""}, "holder must be"), ({"holder": None}, "holder must be"), ({"lease": "0 s"}, "lease must be"),
        ({"lease": None}, "lease must be"), ({"tenant": "a*"}, "tenant must be"),
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(db, options, fragment):
    with db.refused("OW008", fragment):
        begin(db, **options)


def test_a_result_that_is_too_large_is_refused_and_the_run_goes_on(db):
    run = begin(db)
    with refused("OW004", "at most 262144 bytes"):
        db.call("finish_run", key="k", epoch=run.epoch, result={"x": "y" * 300_000})
    assert db.value("select state from onceward.runs") == "running"


@pytest.mark.race
@pytest.mark.slow
def test_of_thirty_who_begin_at_once_one_runs(db):
    answers = together(db, [lambda engine, n=n: begin(engine, holder=f"h{n}") for n in range(30)])

    winners = [row for row in answers if row.acquired]
    assert len(winners) == 1
    assert {row.holder for row in answers} == {winners[0].holder}


@pytest.mark.race
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_second_waits_for_an_open_transaction_and_trusts_only_what_is_committed(db, end):
    with transaction(db) as first:
        begin(first)
        rival = Rival(db, lambda engine: begin(engine, holder="b")).blocked()
        getattr(first.conn, end)()

    assert rival.answer().acquired is (end == "rollback")


def test_old_runs_are_tidied_away_and_live_ones_are_not(db):
    begin(db, key="old")
    db.call("finish_run", key="old", epoch=1)
    run = begin(db, key="long", lease="7 days")
    for _ in range(6):
        db.clock.advance("6 days")
        db.call("renew_run", key="long", epoch=run.epoch, lease="7 days")

    db.call("retain", kind="runs")

    assert [row.key for row in db.run("select key from onceward.runs")] == ["long"]
