-- Schedules with their next moment.
create or replace view onceward.schedules with (security_invoker = true) as
select s.id, s.tenant, s.name, s.task, s.lane, s.spec, s.zone,
       case when s.paused_at is not null then 'paused' else 'active' end as state,
       case when s.paused_at is null then s.next_slot end as next_slot,
       case when s.paused_at is null then s.next_at end as next_at,
       s.payload, s.priority, s.max_attempts, s.retry, s.timeout, s.expires_in,
       s.missed, s.catch_up, s.grace, s.overlap, s.jitter, s.paused_at, s.paused_by, s.pause_reason,
       s.source, s.app, s.undeclared_at is null as declared, s.version, s.created_at, s.changed_at, s.changed_by,
       s.last_slot, s.last_fire_at, s.last_ticked_at, s.last_outcome, s.last_job_id
  from onceward.schedule_private as s
 where (s.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.schedules is 'Schedules: what they enqueue, by which rules, and when next.';
