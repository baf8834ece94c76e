"""The judge of poison finds what is planted, and its cases are of every kind."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import cast

import pytest

from tests.crash import poison
from tests.crash.arena import Arena
from tests.crash.faults_poison import Poisoning

SEED = 5
CASES = range(2000)


@pytest.fixture
def poisoning():
    # All that judging needs of it.
    return Poisoning(cast("Arena", SimpleNamespace(seed=SEED)))


def item_of(number: int):
    return poison.value(poison.draw(SEED, number), objects=poison.where(number) != "sql")


def a_case(where: str, *, good: bool) -> int:
    return next(
        number
        for number in CASES
        if poison.where(number) == where
        and poison.is_json(item_of(number), depth=1) is good
        and item_of(number) is not None
    )


def found(poisoning: Poisoning) -> dict[str, int]:
    return {kind: count for kind, count in poisoning.found.items() if count}


@pytest.mark.parametrize("where", poison.WHERE[:3])
@pytest.mark.parametrize("good", [True, False])
def test_every_place_gets_poison_and_what_is_none(where, good):
    a_case(where, good=good)


def test_poison_is_known_as_such():
    rng = poison.draw(1, 1)
    for item in [
        math.nan, math.inf, "\x00", ["\ud800"], {"\udfff": 1}, {1: 2}, {"a": {1}}, b"", 10**4300, poison.nested(202, rng),
        poison.nested(20_000, rng),
    ]:  # fmt: skip
        assert not poison.is_json(item)


def test_what_only_looks_like_poison_is_none():
    for item in [None, "💥", "\\u0000", -0.0, 10**4299, poison.nested(201, poison.draw(1, 1)), {"": []}]:
        assert poison.is_json(item)


@pytest.mark.parametrize(
    ("sent", "kept"), [(1, True), (1, "1"), ([1], [1, 2]), ({"a": 1}, {"b": 1}), ("é", "e\u0301"), (None, 0)]
)
def test_what_has_changed_is_not_the_same(sent, kept):
    assert poison.same(sent, sent)
    assert not poison.same(sent, kept)


def test_a_number_is_the_same_in_another_spelling():
    assert poison.same(1e23, json.loads("1" + "0" * 23))


@pytest.mark.parametrize("where", ["argument", "sql"])
def test_a_payload_that_has_changed_is_found(poisoning, where):
    number = a_case(where, good=True)
    right, wrong = json.dumps({"value": item_of(number)}), json.dumps({"value": ["other"]})
    echo = json.dumps({"echo": item_of(number)})

    poisoning._judge_echo(number, "done", right, echo, None)
    assert found(poisoning) == {}

    poisoning._judge_echo(number, "done", wrong, echo, None)
    poisoning._judge_echo(number, "done", right, json.dumps({"echo": ["other"]}), None)
    poisoning._judge_echo(number, "dead_letter", right, None, "payload")
    assert found(poisoning) == {"changed": 3}


def test_a_result_that_has_changed_or_should_not_have_been_kept_is_found(poisoning):
    good, bad = a_case("result", good=True), a_case("result", good=False)
    poisoning._judge_result(good, "done", json.dumps(item_of(good)), None)
    poisoning._judge_result(bad, "dead_letter", None, "result")
    assert found(poisoning) == {}

    poisoning._judge_result(good, "done", '["other"]', None)
    poisoning._judge_result(bad, "done", "null", None)
    assert found(poisoning) == {"changed": 1, "wrongly_taken": 1}


def test_an_error_whose_text_has_changed_is_found(poisoning):
    number, text = next(
        (number, error.args[0])
        for number in CASES
        if poison.where(number) == "error"
        and isinstance(error := poison.error(poison.draw(SEED, number)), poison.Poisoned)
        and error.args
        and isinstance(error.args[0], str)
        and "\x00" in error.args[0]
    )
    poisoning._judge_error(number, "dead_letter", poison.written_out(text, 2000))
    assert found(poisoning) == {}

    poisoning._judge_error(number, "dead_letter", text.replace("\x00", ""))
    poisoning._judge_error(number, "done", None)
    assert found(poisoning) == {"changed": 2}
