"""Results of steps: to JSON and back, by the return annotation of the function where it has one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from onceward import jsonsafe
from onceward.errors import InvalidPayload, StepsChanged
from onceward.model import Json


@functools.lru_cache(maxsize=1000)
def _adapter(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    try:
        returned = get_type_hints(function).get("return", Any)
        return None if returned in {Any, type(None)} else TypeAdapter(returned)
    except (TypeError, NameError, PydanticSchemaGenerationError, PydanticUserError):
        # A partial, a lambda, a type that JSON does not know: the result is what JSON makes of it.
        return None


def dump_result(function: Callable[..., Any], value: object, step: str) -> str | None:
    if value is None:
        return None
    what = f"result of step {step!r}"
    if isinstance(value, BaseModel):
        return jsonsafe.dumps(value.model_dump(mode="json"), what=what)
    adapter = _hashable(function)
    if adapter is not None:
        try:
            value = adapter.dump_python(value, mode="json", warnings=False)
        except ValueError as error:
            raise InvalidPayload(f"{what} cannot be kept: {error}") from None
    return jsonsafe.dumps(value, what=what)


def load_result(function: Callable[..., Any], stored: Json, step: str) -> Any:
    adapter = _hashable(function)
    if stored is None or adapter is None:
        return stored
    try:
        return adapter.validate_python(stored)
    except ValidationError as error:
        raise StepsChanged(
            f"the stored result of step {step!r} does not fit what its function returns now: {error.errors()[0]['msg']}",
            hint="Rename the step, so that it runs again, or accept the old form.",
        ) from None


def _hashable(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    try:
        return _adapter(function)
    except TypeError:
        return None
