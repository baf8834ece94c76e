"""One typed description per SQL function: what to send and how to read the answer.

The only SQL in engine Python.  Parameters are plain values and every one is cast, so that a call runs
unchanged through psycopg, asyncpg, SQLAlchemy and Django.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onceward.calls.base import Call as Call
from onceward.calls.base import Row as Row

if TYPE_CHECKING:
    from onceward.calls.auditing import *
    from onceward.calls.caring import *
    from onceward.calls.coordinating import *
    from onceward.calls.delivering import *
    from onceward.calls.limiting import *
    from onceward.calls.monitoring import *
    from onceward.calls.observing import *
    from onceward.calls.operating import *
    from onceward.calls.producing import *
    from onceward.calls.reading import *
    from onceward.calls.retaining import *
    from onceward.calls.running import *
    from onceward.calls.scheduling import *
    from onceward.calls.stepping import *
    from onceward.calls.working import *

# Which module describes what.  Loaded on first use: a producer calls two of these functions and an operator's page others.
_HOMES = {
    "auditing": (
        "audit_dropped", "audit_entries", "audit_entry", "audit_lane", "audit_of", "audit_page", "audit_status",
        "drop_audit", "record_checkpoint", "record_event", "seal", "seal_eras", "seal_heads", "seal_leaves",
        "seal_of", "seal_page",
    ),
    "caring": (
        "assign_dead_letters", "assignment_of", "assignments", "comment_dead_letters", "comments_of",
    ),
    "coordinating": (
        "cancel_workflow", "children", "count_workflows", "emit_event", "enqueue_workflow", "events", "events_of",
        "partial_completions", "requeue_workflow", "steps", "workflow", "workflow_jobs", "workflows",
    ),
    "delivering": (
        "begin_delivery", "decide_delivery", "deliver", "deliveries", "deliveries_of", "delivery", "delivery_content",
        "delivery_trouble", "settle_delivery",
    ),
    "limiting": (
        "acquire", "bounds", "declare_limits", "drop_bound", "drop_limit", "limit_history", "limited", "limits",
        "pause_limit", "release_hold", "resume_limit", "set_bound", "set_limit", "set_share", "settle", "settle_hold",
        "shares",
    ),
    "monitoring": (
        "ack_alert", "add_channel", "alert", "alerts", "begin_checks", "channels", "close_alert", "declare_monitors",
        "disable_monitor", "drop_channel", "drop_monitor", "enable_monitor", "end_silence", "fail_check",
        "finish_check", "monitor_runs", "monitors", "run_check", "run_monitor", "set_monitor", "silence_alerts",
        "silences", "test_channel", "thresholds", "unsent_kinds",
    ),
    "observing": (
        "explain", "explain_lane", "metrics",
    ),
    "operating": (
        "add_lane", "cancel", "pause_lane", "requeue", "resolve", "resume_lane", "run_now",
    ),
    "producing": (
        "declare_lanes", "enqueue", "enqueue_many",
    ),
    "reading": (
        "attempts", "count_dead_letters", "count_jobs", "dead_letter_groups", "dead_letter_ids", "dead_letters",
        "job", "jobs", "lanes", "lanes_of_tenant", "now", "outcome", "payload_edits", "set_tenant", "set_timeout",
        "task_names", "workers",
    ),
    "retaining": (
        "hold_tenant", "legal_holds", "release_tenant", "retain", "retain_due", "retention", "retention_is_due",
        "set_retention",
    ),
    "running": (
        "begin_run", "fail_run", "finish_run", "renew_run", "run_key", "runs",
    ),
    "scheduling": (
        "add_schedule", "declare_schedules", "drop_schedule", "next_ticks", "pause_schedule", "resume_schedule",
        "run_schedule_now", "schedules", "tick", "ticks",
    ),
    "stepping": (
        "fail_step", "finish_step", "join_jobs", "outcomes_of", "receive_event", "sleep", "spawn", "steps_of",
        "wait_event",
    ),
    "working": (
        "adopt", "claim", "complete", "ensure_partitions", "exchange", "fail", "heartbeat", "installed", "progress", "promote",
        "register_worker", "release", "rescue", "retire_worker", "snooze", "tidy",
    ),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'onceward.calls' has no attribute {name!r}")
        value = getattr(import_module(f"onceward.calls.{_HOME[name]}"), name)
        globals()[name] = value
        return value
