-- Every attempt: ended badly (recorded apart), under way, or ended well (part of the archived job).
create or replace view onceward.attempts with (security_invoker = true) as
select a.job_id, a.epoch, a.tenant, a.task, a.attempt, a.worker_id, a.started_at, a.ended_at, a.outcome,
       a.error_type, a.category, a.message, a.fingerprint, a.traceback, a.retry_at
  from onceward.attempt_private as a
 where (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select j.id, j.epoch, j.tenant, j.task, j.attempt, j.worker_id, j.started_at, null, 'running',
       null, null, null, null, null, null
  from onceward.job_private as j
 where j.state = 'running' and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select d.id, d.epoch, d.tenant, d.task, d.attempt, d.worker_id, d.started_at, d.finished_at, 'done',
       null, null, null, null, null, null
  from onceward.archive_private as d
 where d.state = 'done' and (d.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.attempts is 'Every attempt of every job: worker, start, end, outcome and error.';
