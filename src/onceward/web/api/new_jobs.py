"""What a request to enqueue says."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field, model_validator

from onceward.limits import use
from onceward.model import Retry
from onceward.requests import EnqueueOptions
from onceward.web.api.fields import Duration, Flag, LaneName, Name, Payload, Sent, Tenant, Text, When, Whole

MOST_AT_ONCE = 1000


class RetryPolicy(Sent):
    """How failed attempts are repeated: waits, the last of which repeats; or base × factor ^ (attempt - 1), at most cap."""

    waits: list[Duration] | None = Field(None, min_length=1, max_length=100)
    base: Duration = 5
    factor: float = Field(3.0, strict=True, ge=1, le=100, allow_inf_nan=False)
    cap: Duration = 3600
    jitter: Flag | None = None

    def made(self) -> Retry:
        return Retry(
            waits=None if self.waits is None else [timedelta(seconds=wait) for wait in self.waits],
            base=timedelta(seconds=self.base),
            factor=self.factor,
            cap=timedelta(seconds=self.cap),
            jitter=self.jitter,
        )


class LimitUse(Sent):
    """A limit that the job uses."""

    limit: Name
    tokens: Annotated[Whole, Field(ge=0, le=10**12)] | None = None
    key: Text | None = None


class Options(Sent):
    """Everything about a job but its task and payload; what is left out comes from the task, or from the engine."""

    lane: LaneName | None = None
    priority: Annotated[Whole, Field(ge=-1000, le=1000)] | None = None
    run_at: When | None = Field(None, description="Not before this time.")
    delay: Duration | None = Field(None, description="Not before so many seconds from now.")
    expires_at: When | None = Field(None, description="Not started after this time.")
    expires_in: Duration | None = Field(
        None, description="Not started later than so many seconds after its time."
    )
    timeout: Annotated[Duration, Field(gt=0, le=2_592_000)] | None = None
    concurrency_key: Text | None = None
    concurrency_limit: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    max_attempts: Annotated[Whole, Field(ge=1, le=1000)] | None = None
    retry: RetryPolicy | None = None
    headers: dict[Name, Text] | None = Field(None, max_length=50)
    after: list[UUID] | None = Field(None, max_length=1000, description="Jobs that it waits for.")
    after_policy: Literal["fail", "ignore", "compensate"] | None = None
    limits: list[LimitUse] | None = Field(None, min_length=1, max_length=8)
    key_window: Literal["live", "forever"] | Annotated[Duration, Field(gt=0)] | None = Field(
        None, description="How long the key is taken: while the job lives, for ever, or for so many seconds."
    )
    tenant: Tenant | None = None

    def options(self) -> EnqueueOptions:
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "lane", "priority", "run_at", "expires_at", "concurrency_key", "concurrency_limit", "max_attempts",
                "headers", "after", "after_policy",
            )
        }  # fmt: skip
        for name in ("delay", "expires_in", "timeout"):
            value = getattr(self, name)
            given[name] = None if value is None else timedelta(seconds=value)
        window = self.key_window
        given["key_window"] = timedelta(seconds=window) if isinstance(window, float | int) else window
        given["retry"] = self.retry.made() if self.retry else None
        given["limits"] = (
            [use(u.limit, tokens=u.tokens, key=u.key) for u in self.limits] if self.limits else None
        )
        made: EnqueueOptions = {name: value for name, value in given.items() if value is not None}  # type: ignore[assignment] # names of EnqueueOptions
        return made


class NewJob(Options):
    """A job to enqueue."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task": "send_receipt", "payload": {"order": 1}, "key": "receipt-1"},
                {"task": "build_report", "payload": {}, "lane": "reports", "delay": 60, "max_attempts": 3},
            ]
        }
    )
    task: Name
    payload: Payload = Field(default_factory=dict)
    key: Text | None = Field(None, description="The engine's own key: one job for each key and task.")

    def options(self) -> EnqueueOptions:
        options = super().options()
        if self.key is not None:
            options["key"] = self.key
        return options


class ManyJobs(Options):
    """Jobs of one task, all or none of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task": "send_receipt", "payloads": [{"order": 1}, {"order": 2}], "keys": ["r-1", "r-2"]}
            ]
        }
    )
    task: Name
    payloads: list[Payload] = Field(min_length=1, max_length=MOST_AT_ONCE)
    keys: list[Text | None] | None = Field(None, description="One for each payload, or null.")
    concurrency_keys: list[Text | None] | None = Field(
        None, description="One for each payload, or null; instead of `concurrency_key`."
    )

    @model_validator(mode="after")
    def _as_many(self) -> ManyJobs:
        for name in ("keys", "concurrency_keys"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.payloads):
                raise ValueError(f"{name} must be as many as payloads ({len(self.payloads)})")
        return self
