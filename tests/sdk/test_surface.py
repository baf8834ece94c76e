"""What is public, and what importing it costs."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import onceward
from onceward import errors


def test_at_most_a_dozen_names_are_exported_and_all_exist():
    assert len(onceward.__all__) <= 12
    assert onceward.__all__ == sorted(onceward.__all__)
    assert all(getattr(onceward, name) is not None for name in onceward.__all__)


def test_a_producer_does_not_load_the_worker_or_the_command_line():
    code = (
        "import sys, onceward; onceward.Onceward; onceward.Client\n"
        "print([m for m in sys.modules if m.startswith(('onceward.worker', 'onceward.cli.', 'onceward.embedded', 'rich', 'typer'))])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


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
