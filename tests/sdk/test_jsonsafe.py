"""Poison in payloads, results and errors: refused or made visible, never stuck, never silently changed."""

from __future__ import annotations

import json
import math
import re

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward import jsonsafe
from onceward.errors import InvalidPayload

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.just("\x00")
    | st.just("\udfff"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=20,
)


def is_clean(value: object) -> bool:
    if isinstance(value, str):
        return "\x00" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(is_clean(key) and is_clean(item) for key, item in value.items())
    return all(map(is_clean, value)) if isinstance(value, list) else True


@given(anything)
def test_what_is_taken_is_unchanged_and_what_is_poison_is_refused(value):
    try:
        text = jsonsafe.dumps(value)
    except InvalidPayload:
        assert not is_clean(value)
    else:
        assert is_clean(value)
        assert json.loads(text) == value


texts = st.lists(
    st.none() | st.text(st.characters(codec=None)) | st.sampled_from(["\x00", "\ud800é", "\\u0000"])
)


@given(texts)
def test_lists_of_texts_are_taken_and_refused_by_the_same_rule(value):
    try:
        text = jsonsafe.dumps_texts(value, what="keys")
    except InvalidPayload as error:
        assert not is_clean(value)
        assert str(error).startswith("keys[")
    else:
        assert is_clean(value)
        assert json.loads(text) == value


@given(
    st.integers(0, 2 * jsonsafe.MOST_DIGITS),
    st.integers(-3, 3),
    st.integers(0, jsonsafe.MOST_DIGITS),
    st.sampled_from("x-1"),
)
def test_a_number_of_too_many_digits_is_found_wherever_it_stands(before, more, after, between):
    """Also where shorter ones stand around it."""
    text = "9x" * (before // 2) + between + "7" * (jsonsafe.MOST_DIGITS + more) + "," + "1" * after

    runs = [len(run) for run in re.findall(r"[0-9]+", text)]
    assert jsonsafe.has_huge_number(text) == (max(runs) > jsonsafe.MOST_DIGITS)


@given(st.text(st.characters(codec=None)) | st.just("\x00\ud800"))
def test_any_text_becomes_recordable(text):
    shown = jsonsafe.printable(text)
    shown.encode("utf-8")
    assert "\x00" not in shown


def test_postgresql_takes_what_passes(onceward_database):
    values = ["é", "💥", "\\u0000 spelled out", {"a": [1.5, None, {"b": ""}]}, 10**40, "\x01\x1f"]
    with psycopg.connect(onceward_database) as conn:
        for value in values:
            stored = conn.execute("select %s::jsonb", [jsonsafe.dumps(value)]).fetchone()[0]
            assert stored == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": [1, float("nan")]}}, "payload.a.b[1] is nan, which is not JSON"),
        ({"a": float("inf")}, "payload.a is inf"),
        ({"a": "x\x00"}, "payload.a contains a NUL character"),
        ({"a\x00": 1}, "has the key 'a\\x00', which PostgreSQL cannot store"),
        ({1: 2}, "has the key 1; keys must be strings"),
        ({"a": {1, 2}}, "payload.a is a set, which is not JSON"),
        ({"a": b"x"}, "payload.a is a bytes, which is not JSON"),
    ],
)
def test_the_place_and_the_trouble_are_named(value, message):
    with pytest.raises(InvalidPayload) as error:
        jsonsafe.dumps(value)
    assert message in error.value.message


@pytest.mark.parametrize("depth", [jsonsafe.MAX_DEPTH + 1, 20_000])
def test_deep_nesting_is_refused(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    with pytest.raises(InvalidPayload, match="is nested deeper than 200 levels"):
        jsonsafe.dumps(value)
