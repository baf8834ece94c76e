"""A database with something to see on the pages about limits, alerts and the audit log."""

from __future__ import annotations

from datetime import timedelta

from tests.support.limits import fill, limit
from tests.support.watch import Watch

# Those that need nothing.
PAGES = ("/limits", "/limits/new", "/alerts", "/alerts/silences", "/monitors", "/channels", "/audit", "/audit/verify",
         "/retention")  # fmt: skip


def watched(db):
    """Limits, alerts, a channel, a hold, and a log that is sealed; the addresses of their pages."""
    limit(db, "openai/chat", requests=60, weight=1000)
    limit(db, "db", slots=1, per_key=True)
    fill(db, 3, "db", key="acme")
    fill(db, 2, "openai/chat", weight=10)
    limit(db, "bank", slots=2)
    db.call("pause_limit", limit="bank", **{"for": "10 min", "reason": "they said so"})
    for _ in range(5):
        db.call("tidy")
        db.clock.advance("1 minute")
    watch = Watch(db)
    watch.channel()
    watch.probe()
    watch.look({"key": "a"}, {"key": "b", "severity": "critical"})
    watch.look({"key": "b", "severity": "critical"})
    (alert,) = watch.alerts()
    db.call("silence_alerts", until=db.now() + timedelta(hours=1), reason="works", alert_id=alert.id)
    db.call("hold_tenant", tenant="acme", reason="case 7")
    db.call("set_bound", lane="default", max_depth=100)
    db.call("set_share", lane="default", tenant="acme", share=3)
    db.call("seal")
    return [
        "/limits/of/openai/chat", "/limits/of/db", "/limits/edit/bank", f"/alerts/{alert.id}", "/monitors/of/probe",
        "/monitors/of/dead_letters", f"/audit/{db.value('select max(seq) from onceward.audit_log')}", "/lanes/default",
    ]  # fmt: skip
