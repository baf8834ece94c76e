"""Where rows go: which fields a target has, from which columns they are read, and what of a row cannot be used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from onceward_apps.alerts.sync import values
from onceward_apps.alerts.sync.model import BadRow, Row
from onceward_apps.alerts.sync.values import Unfit

# What is told of rows that were left out.
MOST_TOLD = 5


@dataclass(frozen=True, slots=True)
class TargetField:
    read: values.Reading
    required: bool = True
    # Taken when the column is empty or not there.
    default: object = None


TARGETS: dict[str, dict[str, TargetField]] = {
    "orders": {
        "order_id": TargetField(values.text),
        "customer_id": TargetField(values.text),
        "email": TargetField(values.text, required=False),
        "name": TargetField(values.text, required=False),
        "ordered_at": TargetField(values.timestamp),
        "updated_at": TargetField(values.timestamp),
        "amount": TargetField(values.number),
        "currency": TargetField(values.text, required=False, default="USD"),
        "status": TargetField(values.text, required=False, default="paid"),
    },
    "metric_values": {
        "metric_code": TargetField(values.code),
        "observed_at": TargetField(values.timestamp),
        "external_object_id": TargetField(values.text, required=False, default=""),
        "value": TargetField(values.measure),
    },
}
# What is needed of a row that is gone.
KEYS = {
    "orders": ("order_id", "updated_at"),
    "metric_values": ("metric_code", "observed_at", "external_object_id"),
}
# By which a target's rows are read in order, unless the settings name another.
CHANGED = {"orders": "updated_at", "metric_values": "observed_at"}


class Settings(BaseModel):
    """What the settings of every source may say, beside what its kind needs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Field of the target → column of the source; `customer.id` looks into an object.  Else they are called the same.
    columns: dict[str, str] = {}
    # Field of the target → what it is in every row.
    constants: dict[str, str | int | float] = {}
    # Columns that are kept beside the fields, in orders.extra.
    extra: list[str] = []
    # The column that says that a row is gone.
    deleted: str | None = None
    # A row that cannot be used stops the source, or is left out and reported.
    on_bad_row: Literal["refuse", "skip"] = "refuse"
    page_size: Annotated[int, Field(ge=1, le=10_000)] = 500
    # How far back every pass begins: as late as a row may become visible after its time.
    overlap: Annotated[timedelta, Field(ge=timedelta(0), le=timedelta(days=31))] = timedelta(minutes=10)
    # Filled in by the target, to know which fields there are.
    target: Literal["orders", "metric_values"]

    @model_validator(mode="after")
    def _fields_are_known(self) -> Settings:
        unknown = (set(self.columns) | set(self.constants)) - set(TARGETS[self.target])
        if unknown:
            known = ", ".join(TARGETS[self.target])
            raise ValueError(
                f"{self.target} has no field {', '.join(sorted(unknown))}; its fields are {known}"
            )
        if self.extra and self.target != "orders":
            raise ValueError("extra columns are kept with orders only")
        return self

    def column(self, field: str) -> str:
        return self.columns.get(field, field)

    @property
    def changed(self) -> str:
        """The column by which rows are read in order."""
        return self.column(CHANGED[self.target])

    def used(self) -> dict[str, bool]:
        """Every column that is read, and whether rows cannot do without it."""
        fields = {name: field for name, field in TARGETS[self.target].items() if name not in self.constants}
        return {self.column(name): field.required for name, field in fields.items()}

    def named(self) -> set[str]:
        """Columns that the settings name, which a source that declares its columns has to have."""
        return {*self.columns.values(), *self.extra, *([self.deleted] if self.deleted else [])}


def look_up(row: Mapping[str, Any], column: str) -> Any:
    """A column, or something inside of an object: customer.id."""
    if column in row:
        return row[column]
    found: Any = row
    for part in column.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def inferred_columns(rows: Iterable[Row], settings: Settings) -> dict[str, str]:
    """Of rows that carry their columns with them: each with the type of what it holds, or null when it holds nothing."""
    found: dict[str, str] = {}
    inside = [column for column in settings.used() if "." in column]
    for row in rows:
        for column in (*row.values, *inside):
            if column not in row.values and column.partition(".")[0] not in row.values:
                continue
            kind = values.kind_of(look_up(row.values, column)) or "null"
            before = found.get(column, "null")
            found[column] = kind if before in {"null", kind} else before if kind == "null" else "mixed"
    return found


def mapped(rows: Sequence[Row], settings: Settings, source: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows as JSON in the target's words, and what was wrong with those that were left out.  Raises BadRow."""
    good: list[dict[str, Any]] = []
    bad: list[str] = []
    for row in rows:
        try:
            good.append(_mapped(row.values, settings))
        except Unfit as error:
            if settings.on_bad_row == "refuse":
                raise BadRow(
                    f'source "{source}" has a row that cannot be used: {row.place}, {error}',
                    detail="Nothing of its page was written.",
                    hint='Mend it in the source, or set on_bad_row to "skip" to leave such rows out.',
                ) from None
            bad.append(f"{row.place}, {error}")
    return good, bad


def _mapped(row: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    gone = settings.deleted is not None and values.truth(look_up(row, settings.deleted))
    wanted = KEYS[settings.target] if gone else TARGETS[settings.target]
    made = {name: _field(name, row, settings) for name in wanted}
    if gone:
        made["gone"] = True
    elif settings.extra:
        made["extra"] = {
            column: _fit(column, values.plain, look_up(row, column)) for column in settings.extra
        }
    return made


def _field(name: str, row: Mapping[str, Any], settings: Settings) -> Any:
    field, column = TARGETS[settings.target][name], settings.column(name)
    value = settings.constants[name] if name in settings.constants else look_up(row, column)
    if value is None or value == "":
        if field.required:
            raise Unfit(f'column "{column}" is empty')
        return field.default
    read = _fit(column, field.read, value)
    # As JSON, in which a number keeps its digits only as a text.
    return (
        read
        if isinstance(read, float | str)
        else read.isoformat()
        if hasattr(read, "isoformat")
        else str(read)
    )


def _fit(column: str, read: values.Reading, value: object) -> Any:
    try:
        return read(value)
    except Unfit as error:
        raise Unfit(f'column "{column}" {error}') from None
