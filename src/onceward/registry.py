"""Tasks: named handlers, with payloads typed by their signatures."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import CodeType, GenericAlias
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic_core import PydanticSerializationError, SchemaSerializer

from onceward import jsonsafe
from onceward.declaring import check_handler
from onceward.errors import InvalidArgument, InvalidPayload, OncewardError, UnknownTask, shown
from onceward.model import Json, Options
from onceward.model_limits import Use, check_limits, uses_json

P = ParamSpec("P")
R = TypeVar("R")
Executor = Literal["auto", "process"]

_NAME = re.compile(r"^[A-Za-z0-9_.:/-]{1,200}$")
# Payloads that are checked together.  Their models are gone before there are enough of them for the garbage collector to
# run, which would take longer than checking them.
AT_ONCE = 100


class JobContext:
    """Base of what handlers may take as context; the worker passes its subclass `Job`."""


@dataclass(slots=True)
class Task(Generic[P, R]):
    """A named handler.  Calling it runs the function; enqueueing goes through a client."""

    name: str
    handler: Callable[P, R]
    options: Options
    executor: Executor
    # The parameter that receives the Job, if the handler asks for it.
    context_parameter: str | None
    # The parameter that receives the whole payload as one model; None: payload fields are parameters.
    model_parameter: str | None
    model: type[BaseModel] | None
    # The limits that its jobs use.
    limits: tuple[Use, ...] = ()
    is_async: bool = field(init=False)
    # Validates and writes lists of payloads; made when first needed.
    _many: TypeAdapter[Any] | None = field(init=False, default=None, repr=False)
    _version: str | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        self.is_async = inspect.iscoroutinefunction(self.handler)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.handler(*args, **kwargs)

    @property
    def version(self) -> str:
        """Changes with the code of the handler; what an application without a version of its own stamps on steps."""
        if self._version is None:
            self._version = code_version(self.handler)
        return self._version

    def dump(self, payload: Mapping[str, Json] | BaseModel | None) -> str:
        """Validated JSON text of a payload.  Raises InvalidPayload naming each field."""
        if payload is None:
            payload = {}
        # Most are; to ask an abstract class of each takes longer.
        if type(payload) is not dict:
            if isinstance(payload, BaseModel):
                payload = payload.model_dump(mode="json", exclude_unset=True)
            if not isinstance(payload, Mapping):
                raise InvalidPayload(
                    f"payload of task {self.name} must be an object of named values, got {type(payload).__name__}",
                    detail="Nothing was written.",
                    hint=self._signature_hint(),
                )
        if self.model is None:
            if payload:
                raise self._unexpected(payload)
            return "{}"
        try:
            valid = self.model.__pydantic_validator__.validate_python(payload)
        except ValidationError as error:
            raise self._invalid(error) from None
        # Only what was sent is stored: a default that changes later applies to jobs that wait.
        return _to_json(valid.__pydantic_serializer__, valid, 1)

    def dump_many(self, payloads: Sequence[Mapping[str, Json] | BaseModel]) -> str:
        """Validated JSON text of a list of payloads, in one go."""
        plain: Sequence[Any] = payloads
        # Of most, one look at the types tells enough: to ask of each whether it is a model takes longer than to write it.
        are_dicts = {dict}.issuperset(map(type, payloads))
        if not are_dicts:
            plain = [
                item.model_dump(mode="json", exclude_unset=True) if isinstance(item, BaseModel) else item
                for item in payloads
            ]
        if self.model is None or not (are_dicts or all(isinstance(item, Mapping) for item in plain)):
            return "[" + ",".join(map(self.dump, plain)) + "]"
        if self._many is None:
            self._many = TypeAdapter(cast("Any", GenericAlias(list, self.model)))
        if len(plain) > AT_ONCE:
            # What is wrong is said below, with its place among all of them.
            with contextlib.suppress(ValidationError, OncewardError):
                parts = (plain[start : start + AT_ONCE] for start in range(0, len(plain), AT_ONCE))
                return "[" + ",".join([self._dump_list(self._many, part)[1:-1] for part in parts]) + "]"
        try:
            return self._dump_list(self._many, plain)
        except ValidationError as error:
            raise self._invalid(error) from None

    @staticmethod
    def _dump_list(many: TypeAdapter[Any], payloads: Sequence[Any]) -> str:
        return _to_json(many.serializer, many.validator.validate_python(payloads), len(payloads))

    def uses(
        self, payload: Mapping[str, Json] | BaseModel | None, limits: Sequence[Use] | None = None
    ) -> list[dict[str, Json]]:
        """The limits that a job with this payload uses: those given, or the task's.  Raises InvalidPayload."""
        limits = self.limits if limits is None else limits
        if not limits:
            return []
        if self.model is not None and not isinstance(payload, self.model):
            plain = (
                payload.model_dump(mode="json", exclude_unset=True)
                if isinstance(payload, BaseModel)
                else payload
            )
            try:
                payload = self.model.__pydantic_validator__.validate_python(plain or {})
            except ValidationError as error:
                raise self._invalid(error) from None
        return uses_json(limits, payload)

    def arguments(self, payload: str) -> dict[str, Any]:
        """The handler's keyword arguments for the text of a stored payload.  Raises InvalidPayload."""
        if self.model is None:
            return {}
        validator = self.model.__pydantic_validator__
        try:
            valid = validator.validate_json(payload)
        except ValidationError as error:
            if error.errors(include_url=False)[0]["type"] != "json_invalid":
                raise self._invalid(error) from None
            # jsonb holds more than pydantic's reader takes: deeper nesting, longer numbers.
            valid = self._validate(payload)
        if self.model_parameter is not None:
            return {self.model_parameter: valid}
        return dict(valid.__dict__)

    def _validate(self, payload: str) -> Any:
        read = jsonsafe.loads(payload)
        if isinstance(read, jsonsafe.Unreadable):
            raise InvalidPayload(f"payload of task {self.name} cannot be read: {read}")
        assert self.model is not None
        try:
            return self.model.__pydantic_validator__.validate_python(read)
        except ValidationError as error:
            raise self._invalid(error) from None

    def _invalid(self, error: ValidationError) -> InvalidPayload:
        problems = [
            f"{shown('.'.join(str(part) for part in item['loc'])) or 'payload'}: {item['msg']}"
            + (
                f", got {_quoted(item['input'])}"
                if item["type"] not in {"missing", "extra_forbidden"}
                else ""
            )
            for item in error.errors(include_url=False, include_context=False)
        ]
        return InvalidPayload(
            f"payload does not fit task {self.name}: " + "; ".join(problems[:5]),
            detail="Nothing was written.",
            hint=self._signature_hint(),
        )

    def _unexpected(self, payload: Mapping[str, Json]) -> InvalidPayload:
        return InvalidPayload(
            f"payload does not fit task {self.name}: {shown(', '.join(map(str, payload)))}: not a parameter of the handler",
            detail="Nothing was written.",
            hint=self._signature_hint(),
        )

    def _signature_hint(self) -> str:
        if self.model is None:
            return f"Task {self.name} takes no payload."
        shown = ", ".join(
            f"{name}: {_type_name(info.annotation)}" + ("" if info.is_required() else " (optional)")
            for name, info in self.model.model_fields.items()
        )
        return f"Task {self.name} takes {shown or 'no payload'}."


class Registry(dict[str, Task[Any, Any]]):
    """Tasks by name."""

    def find(self, name: str) -> Task[Any, Any]:
        try:
            return self[name]
        except KeyError:
            raise UnknownTask(
                f'task "{shown(name)}" is not registered',
                detail=f"Known tasks: {', '.join(sorted(self)[:20]) or '(none)'}.",
                hint=nearest_hint(name, self) or "Declare it with @app.task, or import the module that does.",
            ) from None


def nearest_hint(name: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"?' if near else None


def build_task(
    handler: Callable[P, R],
    *,
    name: str | None = None,
    options: Options | None = None,
    executor: Executor = "auto",
    limits: Sequence[Use] = (),
) -> Task[P, R]:
    task_name = name or handler.__name__
    if not isinstance(task_name, str) or not _NAME.fullmatch(task_name):
        raise InvalidArgument(
            f"task name must be 1 to 200 letters, digits or . _ : / -, got {_quoted(task_name)}",
            hint='Pass a name: @app.task(name="send-mail").',
        )
    if executor not in ("auto", "process"):
        raise InvalidArgument(
            f'executor of task "{task_name}" must be "auto" or "process", got {_quoted(executor)}',
            hint='Leave it out, or pass "process" for a plain function that keeps a CPU busy.',
        )
    check_handler(f'task "{task_name}"', handler)
    if executor == "process" and inspect.iscoroutinefunction(handler):
        raise InvalidArgument(
            f'task "{task_name}" cannot use executor="process": the handler is async',
            hint="Write CPU-bound work as a plain function.",
        )
    context, fields, model_parameter, model = _payload_parameters(task_name, handler)
    if executor == "process" and context is not None:
        raise InvalidArgument(
            f'task "{task_name}" cannot take a Job with executor="process"',
            hint="A handler in another process gets its payload only.",
        )
    if model is None and fields:
        try:
            model = create_model(
                f"{task_name} payload",
                __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False),
                **fields,
            )
        except PydanticUserError as error:
            raise InvalidArgument(
                f'task "{task_name}" has a parameter whose type cannot be read from JSON: {error.message}',
                hint="Annotate parameters with types that pydantic knows.",
            ) from None
    return Task(
        task_name,
        handler,
        options or Options(),
        executor,
        context,
        model_parameter,
        model,
        check_limits(limits, of=f'task "{task_name}"'),
    )


def _payload_parameters(
    task_name: str, handler: Callable[..., object]
) -> tuple[str | None, dict[str, Any], str | None, type[BaseModel] | None]:
    hints = get_type_hints(handler, include_extras=True)
    context: str | None = None
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(handler).parameters.values():
        annotation = hints.get(parameter.name, Any)
        if isinstance(annotation, type) and issubclass(annotation, JobContext):
            context = parameter.name
            continue
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
            raise InvalidArgument(
                f'task "{task_name}" cannot have the parameter "{parameter}"',
                hint="Give every payload field a named parameter.",
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (annotation, default)
    if len(fields) == 1:
        (only, (annotation, default)) = next(iter(fields.items()))
        if default is ... and isinstance(annotation, type) and issubclass(annotation, BaseModel):
            return context, {}, only, annotation
    return context, fields, None, None


def _to_json(serializer: SchemaSerializer, valid: object, count: int) -> str:
    # pydantic writes JSON many times faster than we can, but it turns NaN into null and keeps NUL: when
    # either may be there, look closely.
    try:
        text = serializer.to_json(valid, exclude_unset=True, by_alias=True)
    except PydanticSerializationError:
        text = b"null"
    deep = text.count(b"{") + text.count(b"[") > jsonsafe.MAX_DEPTH * count
    written = text.decode()
    if deep or b"null" in text or b"\\u0000" in text or jsonsafe.has_huge_number(written):
        what = "payload" if count == 1 else "payloads"
        try:
            plain = serializer.to_python(valid, mode="json", exclude_unset=True, by_alias=True)
        except (ValueError, RecursionError) as error:
            # Nested deeper than pydantic goes, or for ever, or of a type that it cannot write.
            raise jsonsafe.cannot_write(what, error) from None
        return jsonsafe.dumps(plain, what=what)
    return written


def _quoted(value: object) -> str:
    # Cut before it is quoted: a text may be larger than what anybody wants to see quoted.
    return repr(shown(value)) if isinstance(value, str) else shown(value)


def _type_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def code_version(handler: Callable[..., object]) -> str:
    """Twelve hex digits of the handler's compiled code, without line numbers and file names."""
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return sha256(_code_text(code).encode()).hexdigest()[:12] if isinstance(code, CodeType) else "unknown"


def _code_text(code: CodeType) -> str:
    constants = [_code_text(item) if isinstance(item, CodeType) else repr(item) for item in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))
