"""A declaration that cannot work is refused where it stands, by the rules of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import psycopg
import pytest

from onceward import Onceward, Retry
from onceward.declaring import lane_problem
from onceward.errors import InvalidArgument
from onceward.limits import use

LANES = [
    "mail", "mail.bulk", "a:b-c_d", ".a", "a" * 100, "...", ".", "", "no such lane", "mail\n", "a/b", "é", "a" * 101, "mail*",
]  # fmt: skip


async def send(to: str) -> None: ...
def count_up() -> Iterator[int]:
    yield 1


async def count_slowly() -> AsyncIterator[int]:
    yield 1


def check() -> None: ...
async def check_slowly() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lane": "no such lane"}, "must be 1 to 100 letters, digits or . _ : -, got 'no such lane'"),
        ({"lane": "mail\n"}, "must be 1 to 100 letters"),
        ({"lane": ".."}, "must not be dots alone, got '..'"),
        ({"lane": 5}, "must be a str, got 5"),
        ({"timeout": 5}, "must be a timedelta, got 5"),
        ({"timeout": timedelta(0)}, "must be more than 0 and at most 30 days, got 0:00:00"),
        ({"timeout": timedelta(days=31)}, "must be more than 0 and at most 30 days"),
        ({"max_attempts": 0}, "must be between 1 and 1000, got 0"),
        ({"max_attempts": True}, "must be an int, got True"),
        ({"priority": 5000}, "must be between -1000 and 1000, got 5000"),
        ({"retry": "x"}, "must be a Retry, got 'x'"),
        ({"retry": Retry(waits=[5])}, "must be a timedelta, got 5"),
        ({"retry": Retry(waits=[])}, "must be a list of 1 to 100 durations, got []"),
        ({"retry": Retry(factor=0.5)}, "must be between 1 and 100, got 0.5"),
        ({"retry": Retry(base=5)}, "must be a timedelta, got 5"),
        ({"retry": Retry(max_snoozes=-1)}, "must be between 0 and 1000000, got -1"),
        ({"concurrency_limit": 0}, "must be between 1 and 10000, got 0"),
        ({"concurrency_limit": "3"}, "must be an int, got '3'"),
        ({"key_window": timedelta(hours=1)}, "must be a str, got datetime.timedelta"),
        ({"key_window": "soon"}, "must be live, forever or an interval such as 24 hours, got 'soon'"),
        ({"executor": "gpu"}, 'must be "auto" or "process", got \'gpu\''),
        ({"limits": use("llm")}, "must be a list of use(...), got"),
        ({"limits": "llm"}, "must be a list of use(...), got 'llm'"),
    ],
)
def test_a_wrong_option_is_refused_with_the_name_of_its_task(options, message):
    app = Onceward()

    with pytest.raises(InvalidArgument) as error:
        app.task(**options)(send)

    (option,) = options
    assert f'{option} of task "send" ' in error.value.message or f'in {option} of task "send"' in str(
        error.value
    )
    assert message in error.value.message
    assert not app.tasks


@pytest.mark.parametrize("handler", [count_up, count_slowly])
def test_a_handler_with_yield_is_refused(handler):
    with pytest.raises(InvalidArgument, match=f'task "{handler.__name__}" cannot have a handler with yield'):
        Onceward().task(handler)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lane": "no such lane"},
            'lane of schedule "send" must be 1 to 100 letters, digits or . _ : -, got \'no',
        ),
        ({"max_attempts": 0}, 'max_attempts of schedule "send" must be between 1 and 1000, got 0'),
        ({"timeout": timedelta(0)}, 'timeout of schedule "send" must be more than 0'),
        ({"catch_up": 0}, 'catch_up of schedule "send" must be between 1 and 100000, got 0'),
        ({"jitter": timedelta(days=2)}, 'jitter of schedule "send" must be between 0 and 1 day'),
        ({"grace": timedelta(0)}, 'grace of schedule "send" must be between 1 second and 366 days'),
        ({"expires_in": timedelta(0)}, 'expires_in of schedule "send" must be more than 0'),
        ({"tenant": "*"}, 'tenant of schedule "send" must be 1 to 200 characters, without * and control'),
    ],
)
def test_a_wrong_option_of_a_schedule_is_refused(options, message):
    app = Onceward()

    with pytest.raises(InvalidArgument) as error:
        app.schedule("1 minute", payload={"to": "a"}, **options)(app.task(send))

    assert message in error.value.message
    assert not app.schedules


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": timedelta(0)}, 'every of monitor "stock" must be between 1 second and 30 days'),
        (
            {"timeout": timedelta(hours=1)},
            'timeout of monitor "stock" must be between 1 second and 10 minutes',
        ),
        ({"hold_for": 5}, 'hold_for of monitor "stock" must be a timedelta, got 5'),
        (
            {"remind_every": timedelta(0)},
            'remind_every of monitor "stock" must be between 1 minute and 1 year',
        ),
        ({"errors_allowed": 0}, 'errors_allowed of monitor "stock" must be between 1 and 1000, got 0'),
        ({"description": 5}, 'description of monitor "stock" must be a str, got 5'),
    ],
)
def test_a_wrong_option_of_a_monitor_is_refused(options, message):
    app = Onceward()

    with pytest.raises(InvalidArgument) as error:
        app.monitor("stock", **options)(check)

    assert message in error.value.message
    assert not app.monitors


@pytest.mark.parametrize("wrong", [check_slowly, None])
def test_a_monitor_without_a_function_that_can_be_called_is_refused(wrong):
    with pytest.raises(InvalidArgument, match='monitor "stock" must have a function'):
        Onceward().monitor("stock")(wrong)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "no such limit",
            {"slots": 1},
            "name of a limit must be 1 to 200 letters, digits or . _ : / -, got 'no such",
        ),
        ("llm", {}, 'limit "llm" must have requests, tokens or slots'),
        ("llm", {"requests": 0}, 'requests of limit "llm" must be between 1 and 1000000000, got 0'),
        ("llm", {"requests": "5"}, "requests of limit \"llm\" must be an int, got '5'"),
        ("llm", {"slots": 10_001}, 'slots of limit "llm" must be between 1 and 10000, got 10001'),
        ("llm", {"requests": 5, "per": 60}, 'per of limit "llm" must be a timedelta, got 60'),
        ("llm", {"requests": 5, "per": timedelta(0)}, 'per of limit "llm" must be between 100 milliseconds'),
        ("llm", {"requests": 5, "burst": 6}, 'burst of limit "llm" must be between 1 and 5, got 6'),
        ("llm", {"slots": 5, "threshold": -1}, 'threshold of limit "llm" must be between 0 and 100, got -1'),
        ("llm", {"slots": 5, "over": "drop"}, "over of limit \"llm\" must be accept or defer, got 'drop'"),
        ("llm", {"slots": 5, "per_key": "yes"}, "per_key of limit \"llm\" must be a bool, got 'yes'"),
    ],
)
def test_a_wrong_limit_is_refused(name, options, message):
    app = Onceward()

    with pytest.raises(InvalidArgument) as error:
        app.limit(name, **options)

    assert message in error.value.message
    assert not app.limits


def test_code_and_database_agree_on_the_names_of_lanes(db):
    with psycopg.connect(db.dsn) as connection:
        for name in LANES:
            refused = None
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute("select onceward.add_lane(%s)", [name])
            except psycopg.Error as error:
                assert error.sqlstate == "OW008"
                refused = error.diag.message_primary
            problem = lane_problem(name)
            assert (problem is None) == (refused is None), name
            assert problem is None or (refused is not None and problem in refused)
