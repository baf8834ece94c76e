-- Monitors with how they stand.
create or replace view onceward.monitors with (security_invoker = true) as
select m.name, m.kind, m.source, m.app, m.function, m.description, m.enabled, m.every, m.severity, m.hold_for, m.clear_after,
       m.remind_every, m.timeout, m.errors_allowed, m.channels,
       (select coalesce(jsonb_object_agg(t.name, t.value order by t.name), '{}')
          from onceward.threshold_private as t where t.monitor = m.name) as thresholds,
       case when m.enabled then m.next_at end as next_at, m.last_run_at, m.last_status, m.last_error, m.errors, m.created_at,
       m.set_at, m.set_by
  from onceward.monitor_private as m;
comment on view onceward.monitors is 'Monitors: what they check, how often, by which bounds, and how the last run went.';

create or replace view onceward.thresholds with (security_invoker = true) as
select t.monitor, t.name, t.unit, t.value, t.default_value, t.description
  from onceward.threshold_private as t;
comment on view onceward.thresholds is 'The bounds of monitors, with their defaults; a value that is null is switched off.';

-- Every run, also of checks that failed.  For those who see all tenants, because a run finds things about any of them.
create or replace view onceward.monitor_runs with (security_invoker = true) as
select r.id, r.monitor, r.started_at, r.ended_at, r.status, r.took, r.findings, r.result, r.error
  from onceward.monitor_run_private as r
 where (select onceward.is_for_all());
comment on view onceward.monitor_runs is 'Runs of monitors: status, duration and result, also when the check itself has failed.';
