-- Runs: a run of a function is a job of the engine in the lane "alerts", and its lock key is the job's idempotency key.
-- What the engine does not know about it stands in alerts.runs; leases, retries and dead letters are the engine's.

create table if not exists alerts.runs (
  job_id        uuid primary key,
  tenant_id     uuid not null references alerts.tenants (id) on delete cascade,
  function_name text not null,
  lock_key      text not null,
  starts_at     timestamptz not null,
  ends_at       timestamptz not null,
  grain_date    date not null,
  input_params  jsonb not null,
  -- Who called: a schedule, a token, a person, or the run before it.
  called_by     text not null,
  created_at    timestamptz not null default onceward.now(),
  constraint runs_window_in_order check (starts_at < ends_at)
);
create unique index if not exists idx_job_runs_lock_key on alerts.runs (tenant_id, lock_key);
create index if not exists idx_job_runs_tenant_function on alerts.runs (tenant_id, function_name, created_at desc);
create index if not exists idx_job_runs_created on alerts.runs (created_at desc);
comment on table alerts.runs is 'One row per run: which function, which window, who called.';

do $$
begin
  perform onceward.declare_lanes(array['alerts', 'alerts-ticks']);
end;
$$;

-- The standard's table, as a view of what the engine knows.
create or replace view alerts.job_runs with (security_invoker = true) as
select s.id, s.tenant_id, s.function_name, s.lock_key, s.status, s.input_params, s.result, s.error_message, s.retry_count,
       s.started_at, s.completed_at, s.created_at,
       (extract(epoch from s.completed_at - s.started_at) * 1000)::integer as duration_ms,
       s.state, s.called_by, s.worker_id, s.run_at, s.workflow_id, s.grain_date, s.finished_at, s.note
  from (
    select r.job_id as id, r.tenant_id, r.function_name, r.lock_key,
           case j.state when 'done' then 'completed'
                        when 'dead_letter' then 'failed'
                        when 'cancelled' then 'cancelled'
                        when 'resolved' then 'cancelled'
                        -- Waiting for its turn, for its retry, for the run before it, or under way.
                        else 'running' end as status,
           r.input_params, j.result, j.last_error ->> 'message' as error_message,
           -- Tries that followed one that failed or lost its worker.  To set it going again by hand is none.
           case when j.epoch > 1
                then (select count(*)::integer from onceward.attempts as a
                       where a.job_id = j.id and a.epoch < j.epoch and a.outcome in ('failed', 'rescued'))
                else 0 end as retry_count,
           -- The last try: what came before it, and the wait for a person, is not the time that a run takes.
           coalesce(j.started_at,
                    case when j.attempt > 0 then (select max(a.started_at) from onceward.attempts as a where a.job_id = j.id)
                         when j.epoch > 0 then j.run_at end,
                    j.created_at) as started_at,
           case when j.state in ('dead_letter', 'resolved')
                then coalesce((select max(a.ended_at) from onceward.attempts as a where a.job_id = j.id), j.finished_at)
                else j.finished_at end as completed_at,
           j.created_at, j.state, r.called_by, j.worker_id, j.run_at, j.workflow_id, r.grain_date,
           -- When the engine closed it: for one that was settled by hand, later than its last try.
           j.finished_at, j.note
      from alerts.runs as r
      join onceward.jobs as j on j.id = r.job_id
  ) as s;
comment on view alerts.job_runs is 'Every run of every function: running, completed, failed or cancelled, with its result, retries and duration.';

-- Dead letters, as the standard writes them: only when the retries are used up, and closed when it is resolved or has succeeded.
create or replace view alerts.sync_errors with (security_invoker = true) as
select j.id, j.tenant_id, 'job_failure' as error_type,
       case when a.category = 'permanent' then 'EXECUTION_ERROR' else 'MAX_RETRIES_EXCEEDED' end as error_code,
       a.message as error_message,
       jsonb_build_object('function_name', j.function_name, 'lock_key', j.lock_key, 'input_params', j.input_params,
                          'retry_count', j.retry_count, 'last_attempt_at', a.ended_at, 'exception', a.error_type) as error_details,
       'job_run' as source_entity_type, j.id as source_entity_id,
       j.status in ('completed', 'cancelled') as is_resolved,
       case when j.status in ('completed', 'cancelled') then j.finished_at end as resolved_at,
       a.ended_at as created_at, j.function_name, j.lock_key, j.status, a.fingerprint,
       -- How a person settled it, and who: "… (by ana)".
       case when j.state = 'resolved' then j.note end as resolved_note
  from alerts.job_runs as j
 cross join lateral (
    select x.* from onceward.attempts as x
     where x.job_id = j.id and x.outcome = 'dead_letter' order by x.epoch desc limit 1) as a;
comment on view alerts.sync_errors is 'Runs that gave up, for review; resolved when a person has settled it or a later try has succeeded.';

-- The standard's dashboard query.
create or replace view alerts.job_health_summary with (security_invoker = true) as
select j.function_name, j.status, count(*) as count, avg(j.duration_ms) as avg_duration_ms, max(j.duration_ms) as max_duration_ms,
       sum(case when j.retry_count > 0 then 1 else 0 end) as retried_count
  from alerts.job_runs as j
 where j.created_at > onceward.now() - interval '24 hours'
 group by j.function_name, j.status
 order by j.function_name, j.status;
comment on view alerts.job_health_summary is 'Runs of the last 24 hours by function and status: how many, how long, how many were retried.';

-- Begin a run, or hear who has it.  Outcomes:
--   started    the caller began it
--   resumed    it had failed, or its worker's lease was over: the caller set it going again
--   running, completed, cancelled   somebody else's
create or replace function alerts.begin_function(
  p_function text,
  p_window   text,
  p_entity   jsonb default null,
  p_at       timestamptz default null,
  p_then     text[] default '{}',
  p_caller   text default 'schedule'
)
  returns table (outcome text, job_id uuid, lock_key text, holder text, since timestamptz)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant  alerts.tenants := alerts.acting_tenant();
  v_window  record;
  v_created boolean;
begin
  select * into strict v_window from alerts.window_at(p_function, p_window, p_entity, p_at);
  -- A slip of the pen must not become a run: the ten years are far more than anybody keeps.
  if v_window.starts_at > onceward.now() or v_window.starts_at < onceward.now() - interval '10 years' then
    perform onceward.bad_argument('at', p_at::text, 'must be a moment of the last ten years');
  end if;
  lock_key := v_window.lock_key;
  select e.job_id, e.created into job_id, v_created
    from alerts.enqueue_run(v_tenant, p_function, v_window.lock_key, v_window.starts_at, v_window.ends_at, v_window.grain_date,
                            coalesce(p_entity, '{}'), p_caller, null) as e;
  if v_created then
    perform alerts.enqueue_followers(v_tenant, p_then, job_id);
    outcome := 'started';
  else
    outcome := alerts.take_over(job_id);
  end if;
  select coalesce(w.name, case j.state when 'running' then 'a worker' else 'nobody yet' end), coalesce(j.started_at, j.created_at) into holder, since
    from onceward.jobs as j left join onceward.workers as w on w.id = j.worker_id where j.id = begin_function.job_id;
  return next;
end;
$$;
comment on function alerts.begin_function(text, text, jsonb, timestamptz, text[], text) is
  'Begins a run of a function for the acting tenant, once per window and entity, or says who has it.  A run that failed, or whose worker is gone, is set going again.';

create or replace function alerts.enqueue_run(
  p_tenant     alerts.tenants,
  p_function   text,
  p_lock_key   text,
  p_starts_at  timestamptz,
  p_ends_at    timestamptz,
  p_grain_date date,
  p_entity     jsonb,
  p_caller     text,
  p_after      uuid
)
  returns table (job_id uuid, created boolean)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  -- The same for every caller of the window: other words under the same key would be refused.
  v_input jsonb := jsonb_build_object(
    'lock_key', p_lock_key, 'entity', p_entity, 'grain_date', p_grain_date,
    'starts_at', to_char(p_starts_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    'ends_at', to_char(p_ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));
begin
  select e.job_id, e.created into enqueue_run.job_id, enqueue_run.created
    from onceward.enqueue(
      p_task => p_function, p_payload => v_input, p_lane => 'alerts', p_key => p_lock_key, p_key_window => '40 days',
      -- The standard's policy: 1 s, 5 s, 25 s, at most 30 s, and three retries.
      p_max_attempts => 4, p_retry => '{"base": 1, "factor": 5, "cap": 30, "jitter": false}', p_timeout => '1 hour',
      p_tenant => p_tenant.slug, p_after => case when p_after is not null then array[p_after] end) as e;
  if enqueue_run.created then
    -- A window that is older than its key is run again, under a new job.
    insert into alerts.runs as r (job_id, tenant_id, function_name, lock_key, starts_at, ends_at, grain_date, input_params, called_by)
    values (enqueue_run.job_id, p_tenant.id, p_function, p_lock_key, p_starts_at, p_ends_at, p_grain_date, v_input, left(p_caller, 200))
        on conflict (tenant_id, lock_key) do update set job_id = excluded.job_id, called_by = excluded.called_by, created_at = excluded.created_at;
  end if;
  return next;
end;
$$;

-- The chain: each waits for the one before it, under a lock key of its own that names the first.
create or replace function alerts.enqueue_followers(p_tenant alerts.tenants, p_then text[], p_first uuid)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_first  alerts.runs;
  v_before uuid := p_first;
  v_name   text;
begin
  select * into strict v_first from alerts.runs as r where r.job_id = p_first;
  foreach v_name in array p_then loop
    select e.job_id into v_before
      from alerts.enqueue_run(
        p_tenant, v_name,
        onceward.run_key(v_name, p_tenant.slug, 'day', jsonb_build_object('after', v_first.lock_key), v_first.starts_at, p_tenant.time_zone),
        v_first.starts_at, v_first.ends_at, v_first.grain_date, '{}', 'after ' || v_first.function_name, v_before) as e;
  end loop;
end;
$$;

-- Of many callers one sets it going again; the others hear that it runs.
create or replace function alerts.take_over(p_job_id uuid)
  returns text
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job record;
begin
  perform pg_advisory_xact_lock(hashtextextended('alerts.take_over ' || p_job_id, 0));
  select j.state, j.worker_id, j.workflow_id into v_job from onceward.jobs as j where j.id = p_job_id;
  case
    when v_job.state = 'done' then
      return 'completed';
    when v_job.state in ('cancelled', 'resolved') then
      return 'cancelled';
    when v_job.state = 'dead_letter' then
      perform alerts.requeue_run(p_job_id, v_job.workflow_id);
      return 'resumed';
    when v_job.state = 'running' and not onceward.worker_is_live(v_job.worker_id) then
      perform onceward.rescue();
      return case when exists (select from onceward.jobs as j where j.id = p_job_id and j.state = 'running') then 'running' else 'resumed' end;
    else
      return 'running';
  end case;
end;
$$;

-- Those that were to run after it have been cancelled when it gave up, and wait for it again.
create or replace function alerts.requeue_run(p_job_id uuid, p_workflow_id uuid)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  if exists (select from onceward.jobs as j where j.workflow_id = p_workflow_id and j.id <> p_job_id) then
    perform onceward.requeue_workflow(p_workflow_id);
  else
    perform onceward.requeue(p_job_id);
  end if;
end;
$$;

-- What a person does on the pages.
create or replace function alerts.retry_run(p_job_id uuid)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job record;
begin
  perform alerts.check_run(p_job_id);
  perform pg_advisory_xact_lock(hashtextextended('alerts.take_over ' || p_job_id, 0));
  select j.state, j.workflow_id into v_job from onceward.jobs as j where j.id = p_job_id;
  if v_job.state = 'dead_letter' then
    perform alerts.requeue_run(p_job_id, v_job.workflow_id);
  else
    -- Says itself what may not be run again.
    perform onceward.requeue(p_job_id);
  end if;
end;
$$;
comment on function alerts.retry_run(uuid) is 'Runs a failed or cancelled run again, and those that wait for it.';

create or replace function alerts.resolve_run(p_job_id uuid, p_note text)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform alerts.check_run(p_job_id);
  perform onceward.resolve(p_job_id, p_note);
end;
$$;
comment on function alerts.resolve_run(uuid, text) is 'Settles a failed run by hand: failed becomes cancelled, and its error is resolved.';

create or replace function alerts.check_run(p_job_id uuid)
  returns void
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_tenant(t.slug, 'run') from alerts.runs as r join alerts.tenants as t on t.id = r.tenant_id where r.job_id = p_job_id;
  if not found then
    raise exception 'run % does not exist', p_job_id
      using errcode = 'AL002', hint = 'See alerts.job_runs.';
  end if;
end;
$$;

-- What the engine has forgotten is forgotten here.
create or replace function alerts.tidy_runs(p_limit integer default 5000)
  returns integer
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  with old as (
    select r.job_id from alerts.runs as r
     where r.tenant_id = alerts.tenant_id() and r.created_at < onceward.now() - interval '40 days'
       and not exists (select from onceward.jobs as j where j.id = r.job_id)
     order by r.created_at limit p_limit
  ), gone as (
    delete from alerts.runs as r using old as o where r.job_id = o.job_id returning 1
  )
  select count(*)::integer from gone
$$;
comment on function alerts.tidy_runs(integer) is 'Removes rows of runs whose jobs retention has removed.  Returns how many.';
