"""Monitors in code: `@app.monitor`, and what a check says.

Each worker writes the declarations into the database when it starts; workers run them by themselves, each due run once.
The parameters of the function are its thresholds: their defaults are where they begin, and operators may change them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, get_args

from onceward import jsonsafe
from onceward.declaring import check_kind, check_number, check_span
from onceward.errors import InvalidArgument, shown
from onceward.model import Json
from onceward.model_monitors import Severity

__all__ = ["Finding", "Monitor", "MonitorOptions"]

Every = timedelta | str
Check = Callable[..., Any]
_NAME = re.compile(r"^[A-Za-z0-9_.:/-]{1,100}$")
_SPAN = re.compile(r"^\s*(?:every\s+)?([0-9]+)?\s*(second|minute|hour|day)s?\s*$")
_A_MONTH = timedelta(days=30)
_SPANS = {
    "every": (timedelta(seconds=1), _A_MONTH, "between 1 second and 30 days"),
    "hold_for": (timedelta(0), _A_MONTH, "between 0 and 30 days"),
    "clear_after": (timedelta(0), _A_MONTH, "between 0 and 30 days"),
    "remind_every": (timedelta(minutes=1), timedelta(days=365), "between 1 minute and 1 year"),
    "timeout": (timedelta(seconds=1), timedelta(minutes=10), "between 1 second and 10 minutes"),
}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that should not be.  The same key (of the same tenant) in the next run is the same alert.

    The summary is sent to people: put nothing private into it.  A severity of None is that of the monitor.
    """

    key: str
    summary: str
    severity: Severity | None = None
    value: float | None = None
    # Whose it is; None: of the whole installation.
    tenant: str | None = None
    # For those who look at the alert; it is not sent.
    detail: Json = None

    def to_json(self) -> dict[str, Json]:
        plain: dict[str, Json] = {"key": self.key, "summary": self.summary, "tenant": self.tenant}
        if self.severity is not None:
            plain["severity"] = self.severity
        return {**plain, "value": self.value, "detail": self.detail}


class MonitorOptions(TypedDict, total=False):
    """What @app.monitor takes beside its name."""

    every: Every
    # Of findings that name none.
    severity: Severity
    # How long a condition has to last before it is an alert, and to be over before the alert is closed.
    hold_for: timedelta
    clear_after: timedelta
    # None: no reminders.
    remind_every: timedelta | None
    timeout: timedelta
    # So many errors of the check in a row are only logged.
    errors_allowed: int
    description: str


@dataclass(frozen=True, slots=True)
class Monitor:
    """One declaration, checked as far as Python can."""

    name: str
    check: Check
    thresholds: Mapping[str, float | timedelta | None]
    options: Mapping[str, Any]

    def to_json(self) -> dict[str, Json]:
        """As onceward.declare_monitors reads it."""
        plain = {
            name: f"{value.total_seconds():f} seconds" if isinstance(value, timedelta) else value
            for name, value in self.options.items()
        }
        thresholds = [
            {
                "name": name,
                "unit": "seconds" if isinstance(default, timedelta) else "count",
                "value": default.total_seconds() if isinstance(default, timedelta) else default,
                "description": name.replace("_", " "),
            }
            for name, default in self.thresholds.items()
        ]
        return {"description": self._description(), **plain, "name": self.name, "thresholds": thresholds}

    def _description(self) -> str:
        return (inspect.getdoc(self.check) or self.name).splitlines()[0]

    def arguments(self, thresholds: Mapping[str, float | None]) -> dict[str, Any]:
        """The values that hold now, as the function takes them."""
        arguments: dict[str, Any] = {}
        for name, default in self.thresholds.items():
            value = thresholds.get(name)
            if name not in thresholds:
                # Of a newer declaration than the one in the database.
                arguments[name] = default
            elif isinstance(default, timedelta) and value is not None:
                arguments[name] = timedelta(seconds=value)
            else:
                arguments[name] = value
        return arguments


def declare(name: str, check: Check, given: MonitorOptions) -> Monitor:
    """Raises InvalidArgument."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name of a monitor must be 1 to 100 letters, digits or . _ : / -, got {shown(name)!r}"
        )
    unknown = set(given) - set(MonitorOptions.__annotations__)
    if unknown:
        raise InvalidArgument(
            f"a monitor has no option {shown(', '.join(sorted(unknown)))}",
            hint=f"Options: {', '.join(MonitorOptions.__annotations__)}.",
        )
    options: dict[str, Any] = dict(given)
    options["every"] = _every(given.get("every", timedelta(minutes=1)))
    of = f'of monitor "{name}"'
    for option, (low, high, rule) in _SPANS.items():
        if option in options and (option != "remind_every" or options[option] is not None):
            check_span(f"{option} {of}", options[option], low, high, rule=rule)
    if "errors_allowed" in options:
        check_number(f"errors_allowed {of}", options["errors_allowed"], 1, 1000)
    if "description" in options:
        check_kind(f"description {of}", options["description"], str)
    if not callable(check) or inspect.isasyncgenfunction(inspect.unwrap(check)):
        raise InvalidArgument(
            f'monitor "{name}" must have a function, and none with async yield, got {shown(check)}',
            hint="Return None, a Finding or a list of them.",
        )
    if options.get("severity", "warning") not in get_args(Severity):
        raise InvalidArgument(
            f"severity of a monitor must be one of {', '.join(get_args(Severity))}, got {shown(options['severity'])!r}"
        )
    return Monitor(name, check, _thresholds(name, check), options)


def _every(every: Every) -> timedelta:
    if isinstance(every, timedelta):
        return every
    found = _SPAN.match(every) if isinstance(every, str) else None
    if found is None:
        raise InvalidArgument(
            f"every of a monitor must be a timedelta or a text, got {shown(every)!r}",
            hint='Write "30 seconds", "5 minutes", "hour" or timedelta(minutes=5).',
        )
    return timedelta(seconds=int(found[1] or 1) * _SECONDS[found[2]])


def _thresholds(name: str, check: Check) -> dict[str, float | timedelta | None]:
    found: dict[str, float | timedelta | None] = {}
    for parameter in inspect.signature(check).parameters.values():
        default = parameter.default
        if (
            parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
            or isinstance(default, bool)
            or not isinstance(default, (int, float, timedelta, type(None)))
        ):
            raise InvalidArgument(
                f'monitor "{name}" cannot have the parameter "{parameter}"',
                detail="Parameters of a check are its thresholds.",
                hint="Give each a default: a number, a timedelta, or None for one that is off.",
            )
        found[parameter.name] = default
    return found


def findings_text(answer: object) -> str:
    """JSON text of what a check has returned.  Raises InvalidArgument when that is not findings."""
    if answer is None:
        found: list[object] = []
    elif isinstance(answer, Finding):
        found = [answer]
    elif isinstance(answer, Iterable) and not isinstance(answer, (str, bytes, Mapping)):
        found = list(answer)
    else:
        found = [answer]
    for item in found:
        if not isinstance(item, Finding):
            raise InvalidArgument(
                f"a check must return None, a Finding or several, got {type(item).__name__}"
            )
    plain = [item.to_json() for item in found if isinstance(item, Finding)]
    return jsonsafe.dumps(plain, what="findings")
