-- What became of each slot.
create or replace view onceward.ticks with (security_invoker = true) as
select t.schedule_id, t.tenant, t.schedule, t.slot, t.fire_at, t.outcome, t.slots, t.job_id, t.reason, t.ticked_at
  from onceward.tick_private as t
 where (t.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.ticks is
  'What became of each slot of a schedule: fired with its job, missed, skipped or failed.  A row with slots above 1 stands for a run of them.';
