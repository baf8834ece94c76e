"""No plan makes a call take more than was asked for: every switch of the planner, with right and wrong statistics."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.engine import Engine

pytestmark = pytest.mark.slow

STATISTICS = {
    "none": [],
    "right": ["analyze onceward.job_private, onceward.worker_private, onceward.key_private"],
    "of an empty table": [
        "delete from pg_statistic where starelid in (select oid from pg_class where relnamespace = 'onceward'::regnamespace)",
        "update pg_class set reltuples = 0, relpages = 1 where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'i')",
    ],
    "of a huge table": [
        "update pg_class set reltuples = 1e9, relpages = 10000000 where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'i')",
    ],
}


@pytest.fixture(scope="module")
def crowd(onceward_server):
    """Forty jobs of each kind, where one is wanted."""
    with onceward_server.cloned() as database, Engine(database) as engine:
        engine.clock.pin()
        # Until 17, switched-off nodes make plans so dear that they are compiled, which here is only slow.
        engine.run("set jit = off")
        soon = engine.now() + timedelta(minutes=1)
        for number in range(40):
            engine.enqueue(key=f"key-{number}", key_window="1 minute", task="keyed")
            engine.running(worker="dead", max_attempts=1, priority=50)
            engine.enqueue(run_at=soon)
            engine.enqueue(expires_at=soon, priority=-9)
            engine.enqueue(concurrency_key=f"c-{number}")
            engine.call("register_worker", name="old", lease="1 s")
            engine.emit(f"over-{number}", keep="1 minute")
        engine.clock.advance("1 min")
        engine.run(
            "update onceward.worker_private set retired_at = onceward.now() - interval '8 days' where name = 'old'"
        )
        engine.worker("live")
        engine.worker("second")
        yield engine


def switches(db):
    return [
        row.name for row in db.run("select name from pg_settings where name like 'enable\\_%' order by 1")
    ]


def kill(db):
    db.run("update onceward.worker_private set expires_at = onceward.now() where name = 'dead'")


def promoted(db, limit):
    answer = db.promote(limit=limit)
    # Each step of promote is bounded by the limit.
    assert answer.expired <= limit
    return answer.promoted


CALLS = {
    "claim": (1, lambda db: len(db.claims(1, worker="live"))),
    "claim of 3": (3, lambda db: len(db.claims(3, worker="live"))),
    "exchange": (1, lambda db: len(db.exchange(worker="live", lanes=["default"], max=1))),
    "exchange above a floor": (
        1,
        lambda db: len(db.exchange(worker="live", lanes=["default"], max=1, floors={"default": {"0": 0}})),
    ),
    "exchange within a limit": (
        2,
        lambda db: len(db.exchange(worker="live", lanes=["default"], limits=[2], max=9)),
    ),
    "promote": (2, lambda db: promoted(db, 1)),
    "rescue": (1, lambda db: (kill(db), db.rescue(limit=1))[1]),
    "rescue of what is known": (1, lambda db: (kill(db), db.rescue(limit=1, thorough=False))[1]),
    "tidy": (4, lambda db: db.answer("tidy", limit=1)),
}


@pytest.mark.parametrize("statistics", list(STATISTICS.values()), ids=list(STATISTICS))
@pytest.mark.parametrize(("most", "call"), list(CALLS.values()), ids=list(CALLS))
def test_no_plan_takes_more_than_was_asked_for(crowd, statistics, most, call):
    every = switches(crowd)
    settings = [{}, *({name: "off"} for name in every), dict.fromkeys(every, "off")]
    settings += [
        {**dict.fromkeys([n for n in every if n.endswith(("join", "nestloop"))], "off"), join: "on"}
        for join in ("enable_nestloop", "enable_hashjoin", "enable_mergejoin")
    ]
    settings += [{"plan_cache_mode": mode} for mode in ("force_generic_plan", "force_custom_plan")]
    for setting in settings:
        with crowd.conn.transaction(force_rollback=True):
            for statement in statistics:
                crowd.run(statement)
            for name, value in setting.items():
                crowd.run("select set_config(%s, %s, true)", name, value)
            crowd.run("discard plans")
            running = crowd.value("select count(*) from onceward.job_private where state = 'running'")

            taken = call(crowd)

            assert 1 <= taken <= most, setting
            changed = abs(
                crowd.value("select count(*) from onceward.job_private where state = 'running'") - running
            )
            assert changed <= most, setting


@pytest.mark.parametrize("statistics", list(STATISTICS.values()), ids=list(STATISTICS))
def test_a_finish_finishes_what_it_names_and_nothing_else_under_every_plan(crowd, statistics):
    every = switches(crowd)
    for setting in [{}, *({name: "off"} for name in every), dict.fromkeys(every, "off")]:
        with crowd.conn.transaction(force_rollback=True):
            for statement in statistics:
                crowd.run(statement)
            for name, value in setting.items():
                crowd.run("select set_config(%s, %s, true)", name, value)
            crowd.run("discard plans")
            claims = crowd.claims(5, worker="second")

            assert crowd.exchange(claims[:3], worker="second", results=[{"n": n} for n in range(3)]) == []

            assert [crowd.job(claim.job_id).result for claim in claims] == [
                {"n": 0},
                {"n": 1},
                {"n": 2},
                None,
                None,
            ]
            assert [crowd.state(claim.job_id) for claim in claims[3:]] == ["running"] * 2


@pytest.mark.parametrize("statistics", list(STATISTICS.values()), ids=list(STATISTICS))
def test_the_jobs_that_waited_start_and_no_others_under_every_plan(crowd, statistics):
    every = switches(crowd)
    for setting in [{}, *({name: "off"} for name in every), dict.fromkeys(every, "off")]:
        with crowd.conn.transaction(force_rollback=True):
            for statement in statistics:
                crowd.run(statement)
            for name, value in setting.items():
                crowd.run("select set_config(%s, %s, true)", name, value)
            crowd.run("discard plans")
            claims = crowd.claims(4, worker="second")
            waiting = [crowd.enqueue(after=[claim.job_id]) for claim in claims[:2]]
            both = crowd.enqueue(after=[claim.job_id for claim in claims[:2]])
            crowd.wait_event(claims[2], "first")
            crowd.wait_event(claims[3], "second")
            crowd.promote()

            crowd.exchange(claims[:1], worker="second")
            crowd.emit("first")
            crowd.promote()

            assert [crowd.state(job) for job in (*waiting, both)] == ["ready", "blocked", "blocked"], setting
            assert [crowd.state(claim.job_id) for claim in claims[2:]] == ["ready", "scheduled"], setting
