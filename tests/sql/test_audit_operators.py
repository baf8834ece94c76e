"""Whatever an operator changes is in the audit log: one act for each function that the role may call, from the catalogue.

A function that is added has to be tried here, or be declared with the reason why it leaves no entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.support.audit import last_seq
from tests.support.ledger import Ledger
from tests.support.watch import Watch

SECRET = "4711-hush"
WORK = "work of applications: its ends are in the log, the rest in lanes whose mode is all"
NO_ENTRY = {
    **dict.fromkeys(
        (
            "enqueue",
            "enqueue_plain",
            "enqueue_many",
            "enqueue_set",
            "enqueue_workflow",
            "deliver",
            "emit_event",
        ),
        WORK,
    ),
    **dict.fromkeys(("begin_run", "renew_run", "finish_run", "fail_run"), WORK),
    **dict.fromkeys(("acquire", "settle_hold", "release_hold"), WORK),
    "tick": "does what schedules say; its jobs are in the log as all others are",
    "check_monitors": "does what is due; runs are kept by themselves",
    "retain_due": "does what is due, and what it removes is in the log: see test_what_retention_removes",
    "seal": "writes seals",
    "session_operator": "looks a session up, and says that it was seen",
    "token_scopes": "looks a token up, and says that it was seen",
}


@dataclass
class Act:
    """What is there before, what the operator does, and the kind and entity of the entry."""

    kind: str
    entity: str | None
    do: Callable[[Any, Any], object]
    before: Callable[[Any], object] = lambda db: None


def digest(text: str) -> bytes:
    return sha256(f"{text} {SECRET}".encode()).digest()


def lane(db):
    db.call("add_lane", name="mail")


def schedule(db):
    db.call("add_schedule", name="nightly", task="report", spec="0 3 * * *", payload={"secret": SECRET})


def limited(db):
    db.call("set_limit", name="api", requests=10)


def alert(db):
    db.dead_letter(message=SECRET)
    Watch(db).run("dead_letters")
    return db.value("select id from onceward.alerts")


def failure(db):
    db.dead_letter(message=SECRET)
    return db.one("select task, fingerprint from onceward.dead_letters")


def silence(db):
    return db.value("select onceward.silence_alerts(onceward.now() + interval '1 hour', 'release')")


def channel(db):
    return db.call("add_channel", name="ops", kind="webhook", target={"url": f"https://example.com/{SECRET}"})


def monitor(db):
    db.run("""select onceward.declare_monitors('shop', '[{"name": "stock"}]')""")


def jane(db):
    db.call("add_operator", name="jane")


def linked(db):
    jane(db)
    db.call("create_link", operator="jane", hash=digest("link"))


def signed_in(db):
    linked(db)
    db.call("use_link", hash=digest("link"), session_hash=digest("session"))


def token(db):
    return db.answer("create_token", name="ci", hash=digest("token"), scopes=["read"])


def old(db):
    db.done()
    db.clock.advance("1 year")


def call(function: str, **given: Any) -> Callable[[Any, Any], object]:
    return lambda db, _: db.call(function, **given)


def job(function: str, **given: Any) -> Callable[[Any, Any], object]:
    return lambda db, found: db.call(function, **{"job_id": found, **given})


def workflow(db):
    db.workflow({"name": "a"})
    return db.value("select id from onceward.workflows")


def failed_workflow(db):
    flow = workflow(db)
    db.fail(db.claim(), permanent=True)
    return flow


def uncertain(db):
    return Ledger(db).uncertain(key="k")


def sealed(db):
    db.call("record_event", kind="note")
    db.call("seal")
    return db.one("select number, head from onceward.seal_private order by number desc limit 1")


ACTS = {
    "cancel": Act("job.cancelled", None, job("cancel"), lambda db: db.enqueue()),
    "cancel_workflow": Act("job.cancelled", None, lambda db, flow: db.call("cancel_workflow", workflow_id=flow),
                           workflow),
    "requeue": Act("job.requeued", None, job("requeue"), lambda db: db.dead_letter()),
    "requeue_workflow": Act("job.requeued", None, lambda db, flow: db.call("requeue_workflow", workflow_id=flow),
                            failed_workflow),
    "resolve": Act("job.resolved", None, job("resolve", note="by hand"), lambda db: db.dead_letter()),
    "assign_dead_letters": Act("dead_letter.assigned", "*", lambda db, found: db.call(
        "assign_dead_letters", task=found.task, fingerprint=found.fingerprint, to="jane"), failure),
    "comment_dead_letters": Act("dead_letter.commented", "*", lambda db, found: db.call(
        "comment_dead_letters", task=found.task, fingerprint=found.fingerprint, body="known"), failure),
    "run_now": Act("job.run_now", None, job("run_now"), lambda db: db.enqueue(run_at=db.now() + timedelta(days=1))),
    "decide_delivery": Act("delivery.decided", None, lambda db, found: db.call(
        "decide_delivery", delivery_id=found, decision="abandon", note="asked them"), uncertain),
    "add_lane": Act("lane.created", "mail", call("add_lane", name="mail")),
    "declare_lanes": Act("lane.created", "mail", call("declare_lanes", names=["mail"])),
    "pause_lane": Act("lane.paused", "mail", call("pause_lane", name="mail", reason="release"), lane),
    "resume_lane": Act("lane.resumed", "mail", call("resume_lane", name="mail"),
                       lambda db: (lane(db), db.call("pause_lane", name="mail"))),
    "audit_lane": Act("lane.changed", "mail", call("audit_lane", name="mail", mode="all"), lane),
    "add_schedule": Act("schedule.created", "nightly", lambda db, _: schedule(db)),
    "drop_schedule": Act("schedule.dropped", "nightly", call("drop_schedule", name="nightly"), schedule),
    "pause_schedule": Act("schedule.paused", "nightly", call("pause_schedule", name="nightly"), schedule),
    "resume_schedule": Act("schedule.resumed", "nightly", call("resume_schedule", name="nightly"),
                           lambda db: (schedule(db), db.call("pause_schedule", name="nightly"))),
    "run_schedule_now": Act("schedule.run_now", "nightly", call("run_schedule_now", name="nightly"), schedule),
    "set_limit": Act("limit.created", "api", call("set_limit", name="api", requests=10)),
    "declare_limits": Act("limit.created", "api", call("declare_limits", limits=Jsonb([{"name": "api", "slots": 2}]))),
    "drop_limit": Act("limit.dropped", "api", call("drop_limit", name="api"), limited),
    "pause_limit": Act("limit.paused", "api", call("pause_limit", limit="api", **{"for": "1 hour"}), limited),
    "resume_limit": Act("limit.resumed", "api", call("resume_limit", limit="api"),
                        lambda db: (limited(db), db.call("pause_limit", limit="api", **{"for": "1 hour"}))),
    "set_share": Act("share.changed", "default", call("set_share", lane="default", tenant="acme", share=3)),
    "set_bound": Act("bound.created", "default", call("set_bound", lane="default", max_depth=10)),
    "drop_bound": Act("bound.dropped", "default", call("drop_bound", lane="default"),
                      lambda db: db.call("set_bound", lane="default", max_depth=10)),
    "run_monitor": Act("monitor.run", "stuck", call("run_monitor", name="stuck")),
    "set_monitor": Act("monitor.changed", "stuck", call("set_monitor", name="stuck", thresholds=Jsonb({"late": 7}))),
    "disable_monitor": Act("monitor.disabled", "stuck", call("disable_monitor", name="stuck")),
    "enable_monitor": Act("monitor.enabled", "stuck", call("enable_monitor", name="stuck"),
                          lambda db: db.call("disable_monitor", name="stuck")),
    "drop_monitor": Act("monitor.dropped", "stock", call("drop_monitor", name="stock"), monitor),
    "ack_alert": Act("alert.acknowledged", "*", lambda db, found: db.call("ack_alert", alert_id=found), alert),
    "close_alert": Act("alert.closed", "*", lambda db, found: db.call("close_alert", alert_id=found, note="known"), alert),
    "silence_alerts": Act("silence.began", "*", lambda db, _: silence(db)),
    "end_silence": Act("silence.ended", "*", lambda db, found: db.call("end_silence", silence_id=found), silence),
    "add_channel": Act("channel.created", "ops", lambda db, _: channel(db)),
    "drop_channel": Act("channel.dropped", "ops", call("drop_channel", name="ops"), channel),
    "test_channel": Act("channel.tested", "ops", call("test_channel", name="ops"), channel),
    "set_retention": Act("retention.changed", "archive", call("set_retention", kind="archive", keep="30 days")),
    "retain": Act("retention.removed", "archive", call("retain", kind="archive"), old),
    "hold_tenant": Act("tenant.held", "acme", call("hold_tenant", tenant="acme", reason="case 7")),
    "release_tenant": Act("tenant.released", "acme", call("release_tenant", tenant="acme", reason="settled"),
                          lambda db: db.call("hold_tenant", tenant="acme", reason="case 7")),
    "add_operator": Act("operator.created", "jane", lambda db, _: jane(db)),
    "disable_operator": Act("operator.disabled", "jane", call("disable_operator", name="jane"), jane),
    "create_link": Act("operator.invited", "jane", call("create_link", operator="jane", hash=digest("link")), jane),
    "use_link": Act("operator.signed_in", "jane", call(
        "use_link", hash=digest("link"), session_hash=digest("session")), linked),
    "operator_named": Act("operator.signed_in", "jane", call("operator_named", name="jane"), jane),
    "end_session": Act("operator.signed_out", "jane", call("end_session", hash=digest("session")), signed_in),
    "create_token": Act("token.created", "*", lambda db, _: token(db)),
    "revoke_token": Act("token.revoked", "*", lambda db, found: db.call("revoke_token", id=found), token),
    "record_event": Act("note", None, call("record_event", kind="note")),
    "record_checkpoint": Act("audit.checkpoint", "*", lambda db, found: db.call(
        "record_checkpoint", number=found.number, head=found.head, where="a safe"), sealed),
}  # fmt: skip
# Whole days of the log need a day that has passed: see test_seals.
APART = {"drop_audit"}


def entries(db, after: int):
    return db.run("select * from onceward.audit_log where seq > %s order by seq", after)


def test_every_function_of_operators_is_tried_or_declared(db):
    changing = {
        row.proname
        for row in db.run(
            "select proname from pg_proc where pronamespace = 'onceward'::regnamespace and provolatile = 'v' "
            "   and has_function_privilege('onceward_operator', oid, 'execute')"
        )
    }

    assert changing == set(ACTS) | set(NO_ENTRY) | APART


@pytest.mark.parametrize("function", ACTS)
def test_what_an_operator_does_is_in_the_log(db, function):
    act = ACTS[function]
    found = act.before(db)
    before = last_seq(db)
    conn = db.connect(role="onceward_operator", tenant="*")
    conn.execute("select set_config('onceward.actor', 'jane@example.com', false)")
    operator = db.on(conn)

    act.do(operator, found)

    (entry,) = [row for row in entries(db, before) if row.kind == act.kind]
    assert (entry.actor, entry.role) == ("jane@example.com", "onceward_operator")
    if act.entity:
        assert act.entity in ("*", entry.entity_id)
    # Addresses, tokens, payloads, messages of errors: none of that, nor the hash by which somebody could sign in.
    text = str(db.run("select e::text from onceward.audit_log as e"))
    assert SECRET not in text
    for secret in ("link", "session", "token"):
        assert digest(secret).hex() not in text


REPEATED = ("set_limit", "set_share", "set_bound", "set_monitor", "add_channel", "set_retention", "hold_tenant", "add_operator",
            "enable_monitor", "resume_limit", "drop_bound", "disable_operator", "end_session")  # fmt: skip


@pytest.mark.parametrize("function", REPEATED)
def test_what_changes_nothing_leaves_no_entry(db, function):
    act = ACTS[function]
    act.do(db, act.before(db))
    before = last_seq(db)

    act.do(db, None)

    assert entries(db, before) == []


def test_a_change_tells_what_was_changed_and_nothing_else(db):
    limited(db)
    before = last_seq(db)
    db.call("set_limit", name="api", requests=20, burst=1)
    db.call("set_monitor", name="stuck", thresholds=Jsonb({"late": 7}), every="1 min")
    db.call("set_monitor", name="stuck", thresholds=Jsonb({"late": 7}), every="2 min")
    db.call("add_operator", name="jane")
    db.call("add_operator", name="jane", role="admin")
    channel(db)
    db.call("add_channel", name="ops", kind="webhook", target={"url": "https://example.com/elsewhere"})

    changes = [
        (row.kind, row.before, row.after) for row in entries(db, before) if row.kind.endswith("changed")
    ]
    assert changes == [
        ("limit.changed", {"requests": 10}, {"requests": 20}),
        ("monitor.changed", {"every": "00:00:30", "threshold late": 120}, {"every": "00:01:00", "threshold late": 7}),
        ("monitor.changed", {"every": "00:01:00"}, {"every": "00:02:00"}),
        ("operator.changed", {"role": "operator"}, {"role": "admin"}),
        ("channel.changed", {}, {"target": "another"}),
    ]  # fmt: skip


def test_a_pause_that_a_provider_asks_for_is_not_the_act_of_a_person(db):
    limited(db)
    db.enqueue(uses=Jsonb([{"limit": "api"}]))
    claim = db.claim()
    before = last_seq(db)

    db.of_job("limited", claim, retry_after="1 min", reason="429")

    assert [row for row in entries(db, before) if row.kind.startswith("limit")] == []


def test_what_retention_removes_is_in_the_log_also_when_workers_do_it(db):
    db.call("ensure_partitions", days_ahead=14)
    old(db)
    before = last_seq(db)
    while db.call("retain_due"):
        pass

    # In several goes: ten days at a time.
    removed = [row.meta for row in entries(db, before) if row.entity_id == "archive"]
    assert sum(meta["rows"] for meta in removed) == 1
    assert sum(meta["days"] for meta in removed) > 10


def test_single_sign_on_is_one_entry_for_many_pages(db):
    jane(db)
    before = last_seq(db)
    for _ in range(3):
        db.call("operator_named", name="jane")
        db.clock.advance("1 hour")
    assert [row.meta for row in entries(db, before)] == [{"by": "single sign-on"}]
    db.clock.advance("13 hours")
    db.call("operator_named", name="jane")
    assert len(entries(db, before)) == 2


def test_who_signs_in_is_for_those_who_see_all(db):
    signed_in(db)
    token(db)

    for role in ("operator", "auditor"):
        acme = db.on(db.connect(role=f"onceward_{role}", tenant="acme"))
        assert acme.run("select * from onceward.audit_log") == []
