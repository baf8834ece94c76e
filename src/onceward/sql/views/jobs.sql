-- Every job, live and archived.
create or replace view onceward.jobs with (security_invoker = true) as
select j.id, j.tenant, j.lane, j.task, j.state, j.priority, j.attempt, j.max_attempts, j.snoozes, j.epoch,
       j.created_at, j.run_at, j.started_at, null::timestamptz as finished_at, j.expires_at, j.timeout,
       j.worker_id, j.payload, null::jsonb as result, j.progress, j.key, j.concurrency_key, j.concurrency_limit,
       j.retry, j.headers, j.last_error, j.cancel_at, j.cancel_reason as note,
       coalesce(j.workflow_id, j.id) as workflow_id, j.parent_id, j.node, j.after, j.after_policy, j.awaits,
       j.uses
  from onceward.job_private as j
 where (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select a.id, a.tenant, a.lane, a.task, a.state, a.priority, a.attempt, a.max_attempts, a.snoozes, a.epoch,
       a.created_at, a.run_at, a.started_at, a.finished_at, a.expires_at, a.timeout,
       a.worker_id, a.payload, a.result, a.progress, a.key, a.concurrency_key, a.concurrency_limit,
       a.retry, a.headers, a.last_error, null::timestamptz, a.finish_note,
       coalesce(a.workflow_id, a.id), a.parent_id, a.node, a.after, a.after_policy, null::text,
       a.uses
  from onceward.archive_private as a
 where (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.jobs is 'Every job, live and archived, in its present state.  started_at is when the present attempt began, or the last one of a job that is done, resolved or a dead letter; null while it waits, or when it was cancelled while it waited.  last_error is that of the last attempt that failed, also when a later one did not.';
