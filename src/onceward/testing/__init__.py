"""What tests of an application need: a database per test, a clock that moves, workers that drain and crash.

The pytest plugin (`onceward.testing.plugin`) offers all of it as fixtures; nothing here needs pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onceward.testing.clock import Clock
    from onceward.testing.database import Database, DatabaseServer
    from onceward.testing.kit import Kit

__all__ = ["Clock", "Database", "DatabaseServer", "Kit"]

_HOMES = {"Clock": "clock", "Database": "database", "DatabaseServer": "database", "Kit": "kit"}


def __getattr__(name: str) -> object:
    # On demand: the plugin is loaded by every run of pytest, also by those that use no database.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
