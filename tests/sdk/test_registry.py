"""Tasks and their payloads, from the handler's signature."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from onceward import Job, Onceward, Retry
from onceward.errors import InvalidArgument, InvalidPayload


class Address(BaseModel):
    street: str
    since: date | None = None


@pytest.fixture
def app():
    return Onceward()


def test_a_task_is_still_a_function(app):
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    assert add(2, 3) == 5


def test_values_are_converted_at_enqueue_and_at_run(app):
    @app.task
    def move(address: Address, on: date, urgent: bool = False) -> None: ...

    text = move.dump({"address": {"street": "Main"}, "on": date(2026, 1, 2)})
    assert text == '{"address":{"street":"Main"},"on":"2026-01-02"}'
    assert move.arguments('{"address": {"street": "Main"}, "on": "2026-01-02"}') == {
        "address": Address(street="Main"),
        "on": date(2026, 1, 2),
        "urgent": False,
    }


def test_a_single_model_is_the_payload(app):
    @app.task
    def move(job: Job, address: Address) -> None: ...

    assert move.dump(Address(street="Main")) == '{"street":"Main"}'
    assert move.arguments('{"street": "Main"}') == {"address": Address(street="Main")}
    assert move.context_parameter == "job"


def test_every_wrong_field_is_named(app):
    @app.task
    def move(address: Address, times: int) -> None: ...

    with pytest.raises(InvalidPayload) as error:
        move.dump({"address": {"street": 5}, "times": "many"})
    assert "address.street: Input should be a valid string, got 5" in error.value.message
    assert "times: Input should be a valid integer" in error.value.message
    assert error.value.hint == "Task move takes address: Address, times: int."


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_float_that_json_cannot_hold_is_refused_not_nulled(app, poison):
    @app.task
    def weigh(kilograms: float) -> None: ...

    with pytest.raises(InvalidPayload, match=r"payload\.kilograms is (nan|inf), which is not JSON"):
        weigh.dump({"kilograms": poison})


def test_null_stays_null(app):
    @app.task
    def note(text: str | None) -> None: ...

    assert note.dump({"text": None}) == '{"text":null}'


def test_a_task_without_parameters_takes_no_payload(app):
    @app.task
    def tick() -> None: ...

    assert tick.dump(None) == "{}"
    with pytest.raises(InvalidPayload, match="a: not a parameter of the handler"):
        tick.dump({"a": 1})


def test_names_are_unique(app):
    @app.task
    def tick() -> None: ...

    with pytest.raises(InvalidArgument, match='task "tick" is registered twice'):
        app.task(name="tick")(lambda: None)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda app: app.task(lambda *things: None), "task name must be"),
        (lambda app: app.task(name="t")(lambda *things: None), 'cannot have the parameter "\\*things"'),
        (lambda app: app.task(name="bad name")(lambda: None), "task name must be 1 to 200 letters"),
        (lambda app: app.task(executor="gpu"), None),
        (lambda app: app.task(colour="red"), "a task has no option colour"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(app, declare, message):
    with pytest.raises(InvalidArgument, match=message):
        result = declare(app)
        result(lambda: None)


def test_a_process_handler_is_a_plain_function_of_its_payload(app):
    async def waits() -> None: ...
    def wants_job(job: Job) -> None: ...

    with pytest.raises(InvalidArgument, match="the handler is async"):
        app.task(executor="process")(waits)
    with pytest.raises(InvalidArgument, match="cannot take a Job"):
        app.task(executor="process")(wants_job)


def test_a_policy_becomes_json():
    assert Retry().to_json() == {"base": 5, "factor": 3, "cap": 3600}
    assert Retry(waits=[timedelta(minutes=1)]).to_json() == {"waits": [60]}


def test_a_payload_nested_as_deep_as_jsonb_may_hold_reaches_the_handler(app):
    @app.task
    def keep(tree: Any) -> None: ...

    tree: Any = 1
    for _ in range(199):
        tree = [tree]
    assert keep.arguments(keep.dump({"tree": tree})) == {"tree": tree}
