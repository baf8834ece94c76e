"""The built-in task `onceward.deliver`: begin, send, settle.

Everything that goes wrong is reported by category, in words of our own: an exception or a server's text may hold the address.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol, cast
from uuid import UUID

from onceward import calls, logs
from onceward.calls import Call
from onceward.deliveries.outgoing import NotSent, Outgoing, Provider, Report, Sent, Verdict
from onceward.errors import PermanentFailure, WrongState
from onceward.model import BegunDelivery
from onceward.outcomes import Settle, Snooze
from onceward.registry import JobContext
from onceward.tracing import Outcome

log = logs.get("onceward.deliveries")
TASK, LANE = "onceward.deliver", "deliveries"
# A kind for which this worker has no provider waits for a worker that has.
NO_PROVIDER_PAUSE = timedelta(minutes=5)
# What gives a worker one; email always has its outbox.
_SETTING = {
    "slack": "ONCEWARD_SLACK_WEBHOOK",
    "telegram": "ONCEWARD_TELEGRAM_TOKEN",
    "webhook": "ONCEWARD_WEBHOOK_SECRET",
}
Reconcile = Callable[[Outgoing], Verdict | Awaitable[Verdict]]


class Attempt(Protocol):
    """What the handler needs of its job."""

    @property
    def id(self) -> UUID: ...
    @property
    def epoch(self) -> int: ...
    @property
    def cancelled(self) -> bool: ...
    def submit(self, call: Call[Any]) -> asyncio.Future[Any]: ...
    def part(
        self, kind: str, name: str, *, outside: bool = False, **more: str
    ) -> AbstractContextManager[Outcome]: ...


Handler = Callable[[JobContext, str, str], Coroutine[Any, Any, Settle | Snooze]]


def make_handler(providers: Mapping[str, Provider], reconcile: Reconcile | None) -> Handler:
    async def deliver(job: JobContext, kind: str, content_sha256: str) -> Settle | Snooze:
        provider = providers.get(kind)
        if provider is None:
            return Snooze(NO_PROVIDER_PAUSE, no_provider(kind))
        return await _deliver(cast("Attempt", job), provider, reconcile)

    return deliver


def no_provider(kind: str) -> str:
    """Why it waits, and what to set.  Explain and the pages know it by its beginning."""
    setting = f"{_SETTING[kind]}, or " if kind in _SETTING else ""
    return f"this worker has no provider for {kind}; set {setting}Deliveries({kind}=…) in its application"


async def _deliver(job: Attempt, provider: Provider, reconcile: Reconcile | None) -> Settle:
    try:
        begun: BegunDelivery = await job.submit(calls.begin_delivery(job.id, job.epoch, provider.name))
    except WrongState as error:
        raise PermanentFailure(error.message, detail=error.detail, hint=error.hint) from None
    outgoing = Outgoing(
        job.id,
        begun.kind,
        begun.key,
        begun.tenant,
        begun.content if isinstance(begun.content, dict) else {},
        begun.tries,
        begun.first_try_at,
        begun.sending_at,
        begun.unclear_since,
    )
    harmless = _is_harmless(provider, begun)
    verdict: Verdict | NotSent = "not_sent"
    if begun.unclear_since is not None and not harmless:
        verdict = await _reconciled(reconcile, outgoing)
    if verdict == "sent":
        return _settle(job, outgoing, provider, "sent", Sent())
    if verdict == "unknown":
        doubt = NotSent("uncertain", "an earlier try may have arrived, and nobody knows", unclear=True)
        return _settle(job, outgoing, provider, "uncertain", doubt)
    if isinstance(verdict, NotSent):
        return _settle(job, outgoing, provider, "retry", verdict)
    cleared = begun.unclear_since is not None and not harmless
    with job.part("send", begun.kind, outside=True, **{"onceward.provider": provider.name}) as say:
        report = await _insist(_send(provider, outgoing), job)
        outcome = _outcome(report, can_repeat=harmless or reconcile is not None)
        say(outcome)
    return _settle(job, outgoing, provider, outcome, report, cleared=cleared)


def _is_harmless(provider: Provider, begun: BegunDelivery) -> bool:
    """Whether sending again what may have arrived has no second effect."""
    if provider.idempotent_for is None:
        return False
    if begun.unclear_since is None:
        return True
    same = begun.unclear_provider == provider.name
    return same and begun.sending_at - begun.unclear_since < provider.idempotent_for


def _outcome(report: Report, *, can_repeat: bool) -> str:
    if isinstance(report, Sent):
        return "sent"
    if report.unclear:
        return "retry" if can_repeat else "uncertain"
    return "abandoned" if report.permanent else "retry"


async def _send(provider: Provider, outgoing: Outgoing) -> Report:
    try:
        return await provider.send(outgoing)
    except Exception as error:
        return NotSent("provider", f"the provider raised {type(error).__name__}", unclear=True)


async def _reconciled(reconcile: Reconcile | None, outgoing: Outgoing) -> Verdict | NotSent:
    if reconcile is None:
        return "unknown"
    try:
        if inspect.iscoroutinefunction(reconcile):
            verdict = await reconcile(outgoing)
        else:
            verdict = await asyncio.to_thread(cast("Callable[[Outgoing], Verdict]", reconcile), outgoing)
    except Exception as error:
        return NotSent("reconcile", f"the reconcile hook raised {type(error).__name__}", unclear=True)
    return verdict if verdict in {"sent", "not_sent"} else "unknown"


async def _insist(work: Coroutine[Any, Any, Report], job: Attempt) -> Report:
    """Once begun, a try is brought to its end although somebody cancels the job: half of it would be unclear.

    A lost lease or an ending worker stops it.
    """
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() or not job.cancelled:
                task.cancel()
                raise


def _settle(
    job: Attempt,
    outgoing: Outgoing,
    provider: Provider,
    outcome: str,
    report: Report,
    *,
    cleared: bool = False,
) -> Settle:
    fields = {
        "delivery": str(job.id),
        "kind": outgoing.kind,
        "provider": provider.name,
        "tries": outgoing.tries,
    }
    if isinstance(report, Sent):
        log.info("delivery_sent", **fields)
        return Settle(calls.settle_delivery(job.id, job.epoch, "sent", provider_ref=report.ref))
    log.warning(
        "delivery_not_sent", outcome=outcome, category=report.category, error=report.message, **fields
    )
    return Settle(
        calls.settle_delivery(
            job.id,
            job.epoch,
            outcome,
            error_type="DeliveryFailed",
            category=report.category,
            message=report.message,
            retry_after=report.retry_after,
            unclear=report.unclear,
            cleared=cleared,
        )
    )
