"""What the form of a rule holds, what is wrong with it, and how a rule is said in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from onceward.web import words
from onceward.web.forms import Form
from onceward_apps.alerts.drawing import shown

KINDS = {
    "threshold": ("Threshold", "The value is above or below a limit."),
    "change": ("Change", "The value has risen or fallen against the period before."),
    "trend": ("Trend", "The value goes up or down, period after period."),
    "missing": ("Missing data", "An object that had values has none any more."),
}
AGGREGATES = {"last": "last value", "avg": "mean", "sum": "sum", "min": "lowest", "max": "highest"}
COMPARISONS = {"above": "above, or up by", "below": "below, or down by"}
SEVERITIES = {"critical": "critical", "warning": "warning", "info": "info"}
UNITS = {"minutes": timedelta(minutes=1), "hours": timedelta(hours=1), "days": timedelta(days=1)}
SHORTEST, LONGEST = timedelta(minutes=1), timedelta(days=93)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a form holds, as it was typed."""

    title: str = ""
    kind: str = "threshold"
    external_object_id: str = ""
    aggregate: str = "last"
    comparison: str = "above"
    threshold: str = ""
    length: str = "1"
    unit: str = "days"
    periods: str = "7"
    severity: str = "warning"

    @classmethod
    def of_form(cls, form: Form) -> Self:
        return cls(**{name: form.text(name, getattr(cls(), name)) for name in cls.__slots__})

    @classmethod
    def of_rule(cls, rule: dict[str, Any]) -> Self:
        unit = next(
            (name for name in ("days", "hours") if not rule["period"] % UNITS[name]),
            "minutes",
        )
        return cls(
            title=rule["title"], kind=rule["kind"], external_object_id=rule["external_object_id"] or "",
            aggregate=rule["aggregate"], comparison=rule["comparison"],
            threshold="" if rule["threshold"] is None else f"{rule['threshold']:g}",
            length=f"{rule['period'] / UNITS[unit]:g}", unit=unit, periods=str(rule["periods"]), severity=rule["severity"],
        )  # fmt: skip

    @property
    def period(self) -> timedelta | None:
        try:
            length = float(self.length) * UNITS[self.unit]
        except (ValueError, KeyError, OverflowError):
            return None
        return length if SHORTEST <= length <= LONGEST else None

    @property
    def limit(self) -> float | None:
        try:
            number = float(self.threshold)
        except ValueError:
            return None
        return number if math.isfinite(number) and (self.kind == "threshold" or number >= 0) else None

    def problems(self) -> dict[str, str]:
        """By field, what has to be mended before the rule can be."""
        found = {}
        if not 1 <= len(self.title) <= 200:
            found["title"] = "Give it a name, as it is to stand over the alert: 1 to 200 characters."
        if self.kind not in KINDS:
            found["kind"] = "Choose one of the four."
        if self.kind != "missing" and self.limit is None:
            found["threshold"] = (
                "A number, with a point before its decimals, as 2.5."
                if self.kind == "threshold"
                else "Percent, from 0 up, as 30."
            )
        if self.period is None:
            found["length"] = "From 1 minute to 93 days."
        if self.kind == "trend" and not (self.periods.isdecimal() and 2 <= int(self.periods[:9]) <= 366):
            found["periods"] = "From 2 to 366."
        for name, known in (("aggregate", AGGREGATES), ("comparison", COMPARISONS), ("severity", SEVERITIES)):
            if getattr(self, name) not in known:
                found[name] = "Choose one of the list."
        return found

    def rule(self, metric: dict[str, Any]) -> dict[str, Any]:
        """For the database; of a draft without problems.  What the kind has no use for is left out."""
        assert self.period is not None
        return {
            "tenant_id": str(metric["tenant_id"]), "metric_code": metric["metric_code"], "title": self.title, "kind": self.kind,
            "external_object_id": self.external_object_id, "aggregate": self.aggregate, "comparison": self.comparison,
            "threshold": None if self.kind == "missing" else self.limit,
            "period": f"{self.period.total_seconds():g} seconds",
            "periods": int(self.periods) if self.kind == "trend" else 1, "severity": self.severity,
        }  # fmt: skip


def condition(rule: dict[str, Any]) -> str:
    """When a rule fires, in words."""
    period, up = words.span(rule["period"]), rule["comparison"] == "above"
    match rule["kind"]:
        case "missing":
            return f"no value for {period}"
        case "trend":
            return f"{'up' if up else 'down'} by more than {shown(rule['threshold'], '%')} per {period}, over {rule['periods']} of them"
        case "change":
            return f"{AGGREGATES[rule['aggregate']]} of {period} {'up' if up else 'down'} by more than {shown(rule['threshold'], '%')}"
        case _:
            return f"{AGGREGATES[rule['aggregate']]} of {period} {rule['comparison']} {shown(rule['threshold'], rule['unit'])}"
