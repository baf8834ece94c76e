"""Onceward: work moves onward, and every effect happens once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceward.app import Onceward
    from onceward.async_client import AsyncClient
    from onceward.client import Client
    from onceward.errors import LeaseLost, OncewardError, PermanentFailure
    from onceward.model import JobRef, Retry
    from onceward.outcomes import Cancel, Snooze
    from onceward.worker.job import Job
    from onceward.workflow import Workflow

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Cancel",
    "Client",
    "Job",
    "JobRef",
    "LeaseLost",
    "Onceward",
    "OncewardError",
    "PermanentFailure",
    "Retry",
    "Snooze",
    "Workflow",
]

_HOME = {
    "AsyncClient": "onceward.async_client",
    "Cancel": "onceward.outcomes",
    "Client": "onceward.client",
    "Job": "onceward.worker.job",
    "JobRef": "onceward.model",
    "LeaseLost": "onceward.errors",
    "Onceward": "onceward.app",
    "OncewardError": "onceward.errors",
    "PermanentFailure": "onceward.errors",
    "Retry": "onceward.model",
    "Snooze": "onceward.outcomes",
    "Workflow": "onceward.workflow",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: importing a producer must not load the worker.
    if name not in _HOME:
        raise AttributeError(f"module 'onceward' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
