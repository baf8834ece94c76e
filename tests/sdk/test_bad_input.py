"""Bad input to both clients: an error of ours that names the value, and is no page long."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import RootModel

from onceward import AsyncClient, Client, Onceward
from onceward.errors import InvalidArgument, InvalidPayload, OncewardError, UnknownLane
from tests.sdk import shop

LONG = "x" * 100_000


def nested(depth: int, leaf: Any, wrap) -> Any:
    for _ in range(depth):
        leaf = wrap(leaf)
    return leaf


@pytest.mark.parametrize(
    ("payload", "kind"),
    [([1], "list"), ("x", "str"), (5, "int"), (True, "bool"), (RootModel[list[int]]([1]), "list")],
)
def test_a_payload_that_is_no_object_is_refused_with_or_without_an_application(
    onceward_database, client, payload, kind
):
    with Client(onceward_database) as untyped:
        for call in (
            lambda: untyped.enqueue("greet", payload),
            lambda: untyped.enqueue_many("greet", [{}, payload]),
            lambda: client.enqueue(shop.greet, payload),
            lambda: client.enqueue_many(shop.greet, [{"name": "Ada"}, payload]),
        ):
            with pytest.raises(InvalidPayload, match=f"must be an object of named values, got {kind}"):
                call()
        assert untyped.jobs() == []


@pytest.mark.parametrize("window", ["soon", "forever", timedelta(hours=1)])
def test_a_key_window_without_a_key_is_refused(client, window):
    for call in (
        lambda: client.enqueue(shop.greet, {"name": "Ada"}, key_window=window),
        lambda: client.enqueue_many(shop.greet, [{"name": "Ada"}], key_window=window),
    ):
        with pytest.raises(InvalidArgument, match="key_window goes with a key, got "):
            call()
    assert client.jobs() == []


@pytest.mark.parametrize("payload", [[1], "x", 5])
def test_a_payload_is_not_edited_into_something_else(plain, payload):
    job = plain.enqueue(shop.greet, {"name": "Ada"})

    with pytest.raises(InvalidPayload, match="must be an object of named values"):
        plain.requeue(job, payload=payload)


def test_an_async_client_without_an_application_refuses_it_as_well(onceward_database):
    async def main() -> None:
        async with AsyncClient(onceward_database) as untyped:
            await untyped.enqueue("greet", [1])

    with pytest.raises(InvalidPayload, match=r"got list: \[1\]"):
        asyncio.run(main())


typed = Onceward()


@typed.task
def any_list(x: list[Any]) -> None: ...


@typed.task
def anything(x: Any) -> None: ...


@pytest.mark.parametrize("task", [any_list, anything])
@pytest.mark.parametrize("wrap", [lambda leaf: [leaf], lambda leaf: {"a": leaf}], ids=["lists", "objects"])
def test_a_payload_of_endless_depth_is_refused(task, wrap):
    with Client(app=typed) as client:
        for call in (
            lambda: client._enqueue(task, {"x": nested(10_000, [], wrap)}, {}),
            lambda: client._enqueue_many(task, [{"x": nested(10_000, [], wrap)}], None, {}),
        ):
            with pytest.raises(InvalidPayload) as caught:
                call()
            assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("task", [any_list, anything])
def test_a_payload_that_contains_itself_is_refused(task):
    circle: list[Any] = []
    circle.append(circle)

    with pytest.raises(InvalidPayload):
        task.dump({"x": circle})


def test_a_limit_without_its_key_is_refused(client):
    with pytest.raises(InvalidArgument, match="concurrency_limit goes with a concurrency_key, got 3 alone"):
        client.enqueue(shop.greet, {"name": "Ada"}, concurrency_limit=3)
    with pytest.raises(InvalidArgument, match="concurrency_limit must be between 1 and 10000"):
        client.enqueue(shop.greet, {"name": "Ada"}, concurrency_key="k", concurrency_limit=0)
    with pytest.raises(
        InvalidArgument, match='concurrency_limit of task "greet" must be between 1 and 10000, got 0'
    ):
        Onceward().task(concurrency_limit=0)(shop.greet.handler)


def test_the_limit_of_a_task_holds_for_those_of_its_jobs_that_have_a_key(onceward_database):
    app = Onceward()

    @app.task(concurrency_limit=3)
    def print_label() -> None: ...

    with app.client(onceward_database) as client:
        without, with_key = client.enqueue(print_label), client.enqueue(print_label, concurrency_key="left")
        assert client.job(without).concurrency_limit is None
        assert client.job(with_key).concurrency_limit == 3
        many = client.enqueue_many(print_label, [{}] * 3, concurrency_keys=["left", None, "right"])
        assert [client.job(job).concurrency_limit for job in many] == [3, None, 3]
        none = client.enqueue_many(print_label, [{}], concurrency_keys=[None])
        assert client.job(none[0]).concurrency_limit is None


MANY_KEYS = [
    (r"concurrency_keys must be as many as payloads \(2\), got 1", {"concurrency_keys": ["a"]}),
    ("concurrency_keys must each be a str or None, got 5", {"concurrency_keys": ["a", 5]}),
    ("concurrency_keys must each be a str or None, got True", {"concurrency_keys": [True, None]}),
    ("concurrency_keys must each be a str or None, got b'a'", {"concurrency_keys": [b"a", None]}),
    ("keys must each be a str or None, got 5", {"keys": ["a", 5], "concurrency_keys": ["a", "b"]}),
    (
        "concurrency_key and concurrency_keys cannot be given together",
        {"concurrency_keys": ["a", "b"], "concurrency_key": "c"},
    ),
    ("concurrency_key must be 1 to 500 characters, got ''", {"concurrency_keys": [None, ""]}),
    ("concurrency_key must be 1 to 500 characters, got 'xxx", {"concurrency_keys": ["x" * 501, "a"]}),
    (
        "concurrency_limit must be between 1 and 10000, got '0'",
        {"concurrency_keys": ["a", "b"], "concurrency_limit": 0},
    ),
]


@pytest.mark.parametrize(("message", "options"), MANY_KEYS)
def test_many_jobs_with_bad_concurrency_keys_are_refused(client, message, options):
    with pytest.raises(InvalidArgument, match=message):
        client.enqueue_many(shop.greet, [{"name": "Ada"}, {"name": "Grace"}], **options)
    assert client.jobs() == []


@pytest.mark.parametrize("key", ["a\x00b", "\ud800"])
def test_a_concurrency_key_that_no_text_can_hold_is_refused(client, key):
    with pytest.raises(InvalidPayload, match="concurrency_keys"):
        client.enqueue_many(shop.greet, [{"name": "Ada"}] * 2, concurrency_keys=[None, key])
    assert client.jobs() == []


def test_one_job_has_one_concurrency_key(client):
    with pytest.raises(InvalidArgument, match="enqueue has no option concurrency_keys"):
        client.enqueue(shop.greet, {"name": "Ada"}, concurrency_keys=["a"])


@pytest.mark.parametrize("year", [1, 1969, 1999])
def test_a_start_in_another_century_is_refused(client, year):
    with pytest.raises(InvalidArgument, match="run_at must not be before the year 2000"):
        client.enqueue(shop.greet, {"name": "Ada"}, run_at=datetime(year, 6, 1, tzinfo=UTC))


def test_a_start_that_has_passed_means_now(client):
    job = client.enqueue(shop.greet, {"name": "Ada"}, run_at=datetime(2001, 1, 1, tzinfo=UTC))

    assert client.job(job).state == "ready"


def test_a_lane_without_a_name_is_shown_as_that(client):
    with pytest.raises(UnknownLane, match='lane "" does not exist'):
        client.enqueue(shop.greet, {"name": "Ada"}, lane="")


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.enqueue(LONG),
        lambda client: client.enqueue(shop.greet, {"name": "Ada"}, lane=LONG),
        lambda client: client.enqueue(shop.greet, {"name": "Ada"}, key=LONG),
        lambda client: client.enqueue(shop.greet, {"name": "Ada"}, tenant=LONG),
        lambda client: client.enqueue(shop.greet, {"name": ["x"] * 100_000}),
        lambda client: client.enqueue(shop.greet, {LONG: "Ada"}),
        lambda client: client.enqueue(shop.hopeless, {LONG: "Ada"}),
        lambda client: client.enqueue(shop.greet, {"name": "a\x00", LONG: 1}),
        lambda client: client.job(LONG),
        lambda client: client.pause_lane(LONG),
    ],
)
def test_an_error_shows_the_beginning_of_a_long_value(client, call):
    with pytest.raises(OncewardError) as caught:
        call(client)

    assert len(str(caught.value)) < 800


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.cancel_workflow("x"), "workflow_id must be a UUID, got 'x'"),
        (lambda client: client.requeue_workflow(7), "workflow_id must be a UUID, got 7"),
        (lambda client: client.workflows(limit=10**30), "limit must be a whole number of 32 bits, got 1000000"),
        (lambda client: client.workflows(limit=-1), "limit must not be negative, got -1"),
        (lambda client: client.workflows(limit="x"), "limit must be a whole number of 32 bits, got 'x'"),
        (lambda client: client.emit_event("paid", keep="x"), "keep must be a timedelta, got 'x'"),
        (lambda client: client.emit_event("a\x00b"), r"name must be text without NUL and lone surrogates, got 'a\\x00b'"),
        (lambda client: client.add_lane("\udc80"), "name must be text without NUL and lone surrogates"),
        (lambda client: client.pause_lane("default", {}), "reason must be text"),
    ],
)  # fmt: skip
def test_an_argument_that_the_driver_cannot_send_is_named(client, call, message):
    with pytest.raises(InvalidArgument, match=message):
        call(client)


@pytest.mark.parametrize(("name", "hint"), [("delay", "run at once"), ("expires_in", "does not expire")])
def test_the_hint_of_a_negative_duration_is_about_what_it_is_for(plain, name, hint):
    with pytest.raises(InvalidArgument, match=f"{name} must not be negative") as raised:
        plain.enqueue("greet", {"name": "Ada"}, **{name: timedelta(seconds=-1)})
    assert hint in (raised.value.hint or "")
