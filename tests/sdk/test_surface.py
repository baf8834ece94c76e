"""What is public, and what importing it costs."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib import import_module
from types import FunctionType

import pytest

import onceward
from onceward import calls, errors


def test_at_most_a_dozen_names_are_exported_and_all_exist():
    assert len(onceward.__all__) <= 12
    assert onceward.__all__ == sorted(onceward.__all__)
    assert all(getattr(onceward, name) is not None for name in onceward.__all__)


@pytest.mark.parametrize(
    ("loaded", "spared"),
    [
        ("Onceward", {"onceward.worker", "onceward.cli", "onceward.embedded", "psycopg", "rich", "typer"}),
        (
            "Client",
            {"onceward.worker", "onceward.cli", "onceward.embedded", "psycopg", "pydantic", "psycopg_pool"},
        ),
        ("AsyncClient", {"psycopg", "psycopg_pool", "pydantic"}),
    ],
)
def test_a_producer_loads_what_it_uses_and_no_more(loaded, spared):
    """Neither the worker nor the command line; a driver with the first connection of our own, pydantic with the first task."""
    code = f"import sys, onceward; onceward.{loaded}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert spared & set(done.stdout.split()) == set()


def test_every_call_is_found_under_its_name():
    """And whatever a module of calls describes is listed."""
    for home, names in calls._HOMES.items():
        module = import_module(f"onceward.calls.{home}")
        assert [getattr(calls, name) for name in names] == [getattr(module, name) for name in names]
        described = {
            name
            for name, value in vars(module).items()
            if isinstance(value, FunctionType) and value.__annotations__.get("return", "").startswith("Call[")
        }
        assert {name for name in described if not name.startswith("_")} == set(names)
    with pytest.raises(AttributeError, match="has no attribute 'enqeue'"):
        _ = calls.enqeue


ALL = [
    cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.OncewardError)
]


@pytest.mark.parametrize("cls", ALL)
def test_an_error_survives_pickling_with_its_parts(cls):
    copy = pickle.loads(pickle.dumps(cls("what", detail="facts", hint="next")))
    assert (type(copy), copy.message, copy.detail, copy.hint) == (cls, "what", "facts", "next")
    assert str(copy) == "what\ndetail: facts\nhint: next"


@pytest.mark.parametrize("cls", ALL)
def test_an_error_explains_itself_without_arguments(cls):
    assert cls().message == cls.__doc__.strip()


def test_every_sqlstate_has_one_class_and_the_tree_names_it():
    own = {cls.__dict__["sqlstate"]: cls for cls in ALL if cls.__dict__.get("sqlstate")}
    assert own == errors.BY_SQLSTATE
    for state, cls in own.items():
        assert f"{cls.__name__:20} {state}" in errors.__doc__
