"""Calls that ask the engine about itself: explanations and metrics."""

from __future__ import annotations

from uuid import UUID

from onceward.calls.base import Call, rows_of
from onceward.model import Explanation, LaneExplanation, Sample


def explain(job_id: UUID) -> Call[list[Explanation]]:
    """Never empty: an unknown job has a reason too."""
    return Call(
        "select reason, sentence, detail, until, next_step from onceward.explain(%(job_id)s::uuid)",
        {"job_id": job_id},
        rows_of(Explanation),
        repeatable=True,
    )


def explain_lane(lane: str | None) -> Call[list[LaneExplanation]]:
    return Call(
        "select lane, reason, sentence, detail, until, next_step from onceward.explain_lane(%(lane)s::text)",
        {"lane": lane},
        rows_of(LaneExplanation),
        repeatable=True,
    )


def metrics(most: int = 100_000) -> Call[list[Sample]]:
    """Gauges of the whole database; counts stop at `most`."""
    return Call(
        "select name, labels, value from onceward.metrics(%(most)s::int)",
        {"most": most},
        rows_of(Sample),
        repeatable=True,
    )
