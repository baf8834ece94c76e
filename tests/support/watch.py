"""Monitors, alerts and channels, for tests that speak nothing but SQL."""

from __future__ import annotations

import json

SLACK = {"to": "ops"}


class Watch:
    """One database, watched."""

    def __init__(self, db):
        self.db = db

    def run(self, name):
        """Run a monitor now; its status."""
        (row,) = self.db.call("run_monitor", name=name)
        return row.status

    def set(self, name, /, thresholds=None, **options):
        self.db.call("set_monitor", name=name, thresholds=thresholds or {}, **options)

    def alerts(self, monitor=None, *, closed=False):
        return self.db.run(
            "select * from onceward.alerts where (%s::text is null or monitor = %s) and (%s or closed_at is null) order by id",
            monitor,
            monitor,
            closed,
        )

    def severities(self, monitor):
        """{key: severity} of the alerts that are open."""
        return {alert.key: alert.severity for alert in self.alerts(monitor)}

    def channel(self, name="ops", kind="slack", target=None, **options):
        return self.db.answer("add_channel", name=name, kind=kind, target=target or SLACK, **options)

    def told(self):
        """The events that were told, in order: (event, channel)."""
        rows = self.db.run(
            "select key from onceward.deliveries where is_alert and key like 'alert:%%:%%:%%' order by id"
        )
        return [tuple(row.key.split(":")[2:]) for row in rows]

    def texts(self):
        rows = self.db.run(
            "select c.content from onceward.delivery_content_private as c join onceward.deliveries as d on d.id = c.id"
            " where d.is_alert order by c.id"
        )
        return [row.content for row in rows]

    def probe(self, name="probe", findings=(), **options):
        """A monitor of an SQL function that says what `say` was told last."""
        self.db.run("create schema if not exists app")
        self.db.run("create table if not exists app.said (name text primary key, findings jsonb)")
        self.db.run("grant usage on schema app to onceward_owner")
        self.db.run("grant select on app.said to onceward_owner")
        self.db.run(
            f"create or replace function app.{name}(p_thresholds jsonb) returns table (tenant text, key text, severity text,"
            f" value numeric, summary text, detail jsonb) language sql as $$ select f.* from app.said as s,"
            f" jsonb_to_recordset(s.findings) as f (tenant text, key text, severity text, value numeric, summary text,"
            f" detail jsonb) where s.name = '{name}' $$"
        )
        answer = self.db.value(
            "select onceward.add_monitor(%s, %s::regprocedure, p_hold_for => %s, p_clear_after => %s, p_remind_every => %s)",
            name,
            f"app.{name}(jsonb)",
            options.get("hold_for", "0"),
            options.get("clear_after", "0"),
            options.get("remind_every", "4 hours"),
        )
        self.say(*findings, name=name)
        return answer

    def say(self, *findings, name="probe"):
        said = [{"severity": "warning", "summary": f"{f['key']} is wrong", **f} for f in findings]
        self.db.run(
            "insert into app.said values (%s, %s) on conflict (name) do update set findings = excluded.findings",
            name,
            json.dumps(said),
        )

    def look(self, *findings, name="probe"):
        """Say this, run, and return the status."""
        self.say(*findings, name=name)
        return self.run(name)
