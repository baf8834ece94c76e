-- Steps of jobs, live and archived.  Nobody writes that a sleep is over: it is, when its time has passed.
create or replace view onceward.steps with (security_invoker = true) as
select s.job_id, s.name, s.tenant, s.task, s.kind, case when w.is_over then 'done' else s.state end as state, s.seq, s.attempt,
       s.tries, s.started_at, w.finished_at, w.finished_at - s.started_at as took, s.until, s.result, s.error, s.version
  from onceward.step_private as s
 cross join lateral (select s.kind = 'sleep' and s.state = 'waiting' and s.until <= onceward.now() as is_over) as o
 cross join lateral (select o.is_over, case when o.is_over then s.until else s.finished_at end as finished_at) as w
 where (s.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.steps is 'Steps of jobs: what is done, failed or waited for, how often it was tried and how long it took.';

-- Jobs that stopped half-way: some steps are done, and the job has failed, or was cancelled.
create or replace view onceward.partial_completions with (security_invoker = true) as
select j.id as job_id, j.tenant, j.lane, j.task, j.state, j.attempt, j.max_attempts, s.done, s.failed, s.last_done, s.last_failed,
       j.last_error, j.run_at
  from onceward.jobs as j
 cross join lateral (
   select count(*) filter (where s.state = 'done') as done,
          count(*) filter (where s.state = 'failed') as failed,
          (array_agg(s.name order by s.finished_at desc, s.seq desc) filter (where s.state = 'done'))[1] as last_done,
          (array_agg(s.name order by s.finished_at desc, s.seq desc) filter (where s.state = 'failed'))[1] as last_failed,
          -- It sleeps, or waits for an event; an earlier attempt may have failed.
          coalesce(bool_or(s.state = 'waiting' and s.until = j.run_at), false) as is_suspended
     from onceward.step_private as s where s.job_id = j.id) as s
 where s.done > 0
   and (j.state in ('dead_letter', 'cancelled', 'resolved')
        or (j.state = 'scheduled' and j.last_error is not null and not s.is_suspended));
comment on view onceward.partial_completions is
  'Jobs with some steps done that failed (waiting for a retry, or dead letters), or were cancelled or resolved.';
