-- The built-in checks on jobs.  Each takes its thresholds as {name: value} and returns one row per condition; a severity of
-- null means measured, and fine.  A threshold that is null never applies.
-- All of them read by an index and at most some thousands of rows, however large the archive is.

create or replace function onceward.severity_at(p_value numeric, p_warning numeric, p_critical numeric)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case when p_value >= p_critical then 'critical' when p_value >= p_warning then 'warning' end
$$;

create or replace function onceward.seconds_of(p_span interval)
  returns numeric
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select round(extract(epoch from p_span), 1)
$$;

-- For people: 40 s, 5 min, 3 h, 2 d.
create or replace function onceward.span_text(p_seconds numeric)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case when p_seconds < 120 then round(p_seconds) || ' s'
              when p_seconds < 7200 then round(p_seconds / 60) || ' min'
              when p_seconds < 172800 then round(p_seconds / 3600) || ' h'
              else round(p_seconds / 86400) || ' d' end
$$;

-- The first ready jobs of each lane, and since when they could have started.
create or replace function onceward.ready_heads()
  returns table (lane text, job_id uuid, since timestamptz)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_job onceward.job_private;
begin
  for v_job in
    select j.* from (select l.name from onceward.lane_private as l where l.paused_at is null order by l.name limit 1000) as l
     cross join lateral onceward.heads_of_lane(l.name) as j
  loop
    lane := v_job.lane;
    job_id := v_job.id;
    -- Its time has come and, if it ran before, that attempt has ended.
    since := greatest(v_job.run_at, v_job.created_at,
                      case when v_job.epoch > 0 then
                        (select max(a.ended_at) from onceward.attempt_private as a where a.job_id = v_job.id) end);
    if v_job.concurrency_key is not null or v_job.after is not null then
      -- It had to wait for others, and nobody has written until when: since the look that saw it first.
      since := coalesce(
        (select (f -> 'detail' ->> 'since')::timestamptz
           from (select r.result from onceward.monitor_run_private as r
                  where r.monitor = 'ready_age' and r.ended_at is not null
                  order by r.started_at desc limit 1) as r, jsonb_array_elements(r.result) as f
          where f ->> 'key' = v_job.lane and f -> 'detail' ->> 'job' = v_job.id::text), onceward.now());
    end if;
    return next;
  end loop;
end;
$$;

create or replace function onceward.check_ready_age(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select h.lane,
         onceward.severity_at(h.age, (p_thresholds ->> 'warning_age')::numeric, (p_thresholds ->> 'critical_age')::numeric),
         h.age,
         format('the oldest ready job of lane %s has waited for %s', h.lane, onceward.span_text(h.age)),
         jsonb_build_object('job', h.job_id, 'since', h.since)
    from (select distinct on (r.lane) r.*, onceward.seconds_of(onceward.now() - r.since) as age
            from onceward.ready_heads() as r
           order by r.lane, r.since) as h
$$;

create or replace function onceward.check_stuck(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with late as (
    select make_interval(secs => (p_thresholds ->> 'late')::double precision) as grace
  ), stuck as materialized (
    select j.id, j.tenant, j.task
      from onceward.job_private as j
      left join onceward.worker_private as w on w.id = j.worker_id
     cross join late
     where j.state = 'running'
       and (w.id is null
            or w.retired_at < onceward.now() - late.grace
            or w.expires_at < onceward.now() - late.grace
            or j.started_at + j.timeout + late.grace < onceward.now())
     order by j.worker_id
     limit 10000
  )
  select s.tenant, s.task,
         onceward.severity_at(count(*), (p_thresholds ->> 'warning_count')::numeric, (p_thresholds ->> 'critical_count')::numeric),
         count(*),
         format('%s of task %s past its lease or timeout, and nobody has taken over', onceward.counted(count(*), 'job'), s.task),
         jsonb_build_object('jobs', (array_agg(s.id order by s.id))[1:5])
    from stuck as s
   group by s.tenant, s.task
   order by count(*) desc limit 500
$$;

create or replace function onceward.check_rescued(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with rescued as materialized (
    select a.job_id, a.tenant, a.task
      from onceward.attempt_private as a
     where a.error_type = 'LeaseExpired'
       and a.ended_at > onceward.now() - make_interval(secs => (p_thresholds ->> 'window')::double precision)
     order by a.ended_at desc
     limit 10000
  )
  select r.tenant, r.task,
         onceward.severity_at(count(*), (p_thresholds ->> 'warning_count')::numeric, (p_thresholds ->> 'critical_count')::numeric),
         count(*),
         format('%s of task %s taken from dead workers within %s', onceward.counted(count(*), 'attempt'), r.task,
                onceward.span_text((p_thresholds ->> 'window')::numeric)),
         jsonb_build_object('jobs', (array_agg(r.job_id order by r.job_id))[1:5])
    from rescued as r
   group by r.tenant, r.task
   order by count(*) desc limit 500
$$;

-- One condition per tenant and fingerprint: a thousand equal failures are one.  The newest ten thousand are looked at.
create or replace function onceward.check_dead_letters(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with dead as materialized (
    select j.id, j.tenant, j.task, j.last_error ->> 'type' as error_type, j.last_error ->> 'fingerprint' as fingerprint
      from onceward.job_private as j
     where j.state = 'dead_letter' and j.task <> 'onceward.deliver'
     order by j.dead_at desc
     limit 10000
  )
  select d.tenant, coalesce(d.fingerprint, d.task),
         onceward.severity_at(count(*), (p_thresholds ->> 'warning_count')::numeric, (p_thresholds ->> 'critical_count')::numeric),
         count(*),
         -- The type of the error, not its message, which may be private.
         format('%s of task %s: %s', onceward.counted(count(*), 'dead letter'), min(d.task), coalesce(min(d.error_type), 'no error')),
         jsonb_build_object('task', min(d.task), 'fingerprint', min(d.fingerprint), 'jobs', (array_agg(d.id order by d.id desc))[1:5])
    from dead as d
   group by d.tenant, coalesce(d.fingerprint, d.task)
   order by count(*) desc limit 500
$$;

-- Dead letters with some steps done: the half of their work is out in the world.
create or replace function onceward.check_partial_completions(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with dead as materialized (
    select j.id, j.tenant, j.task from onceward.job_private as j
     where j.state = 'dead_letter'
     order by j.dead_at desc
     limit 5000
  ), half as (
    select d.* from dead as d
     where exists (select from onceward.step_private as s where s.job_id = d.id and s.state = 'done')
  )
  select h.tenant, h.task,
         onceward.severity_at(count(*), (p_thresholds ->> 'warning_count')::numeric, (p_thresholds ->> 'critical_count')::numeric),
         count(*),
         format('%s of task %s stopped half-way', onceward.counted(count(*), 'job'), h.task),
         jsonb_build_object('jobs', (array_agg(h.id order by h.id desc))[1:5])
    from half as h
   group by h.tenant, h.task
   order by count(*) desc limit 500
$$;

-- What became of the jobs that were created within the window, as far as it is known: the newest ten thousand that have
-- ended.  Ids tell the time of creation, so this reads the end of one index and needs no counter.
create or replace function onceward.recent_ends(p_window numeric)
  returns table (tenant text, task text, done bigint, failed bigint, dead bigint)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_from uuid := onceward.id_at(onceward.now() - make_interval(secs => p_window::double precision));
  v_low  uuid;
begin
  select a.id into v_low from onceward.archive_private as a where a.id >= v_from order by a.id desc offset 9999 limit 1;
  return query
    select e.tenant, e.task, count(*) filter (where e.outcome = 'done'), count(*) filter (where e.outcome = 'failed'),
           count(*) filter (where e.outcome = 'dead_letter')
      from (select a.tenant, a.task, a.state as outcome from onceward.archive_private as a
             where a.id >= coalesce(v_low, v_from) and a.state = 'done'
            union all
            (select t.tenant, t.task, case t.outcome when 'dead_letter' then t.outcome else 'failed' end
               from onceward.attempt_private as t
              where t.job_id >= coalesce(v_low, v_from) and t.outcome in ('failed', 'rescued', 'dead_letter')
              order by t.job_id desc limit 20000)) as e
     group by e.tenant, e.task;
end;
$$;

create or replace function onceward.check_failure_rate(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select e.tenant, e.task,
         case when e.ended >= (p_thresholds ->> 'least_jobs')::numeric then
           onceward.severity_at(e.share, (p_thresholds ->> 'warning_share')::numeric, (p_thresholds ->> 'critical_share')::numeric) end,
         e.share,
         format('%s %% of %s of task %s gave up', round(e.share * 100), onceward.counted(e.ended, 'job'), e.task)
    from (select r.tenant, r.task, r.done + r.dead as ended, round(r.dead::numeric / nullif(r.done + r.dead, 0), 4) as share
            from onceward.recent_ends((p_thresholds ->> 'window')::numeric) as r) as e
   where e.share > 0
   order by e.share desc limit 500
$$;

create or replace function onceward.check_retry_rate(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select e.tenant, e.task,
         case when e.ended >= (p_thresholds ->> 'least_attempts')::numeric then
           onceward.severity_at(e.share, (p_thresholds ->> 'warning_share')::numeric, (p_thresholds ->> 'critical_share')::numeric) end,
         e.share,
         format('%s %% of %s of task %s had to be repeated', round(e.share * 100), onceward.counted(e.ended, 'attempt'), e.task)
    from (select r.tenant, r.task, r.done + r.failed + r.dead as ended,
                 round(r.failed::numeric / nullif(r.done + r.failed + r.dead, 0), 4) as share
            from onceward.recent_ends((p_thresholds ->> 'window')::numeric) as r) as e
   where e.share > 0
   order by e.share desc limit 500
$$;

create or replace function onceward.check_long_running(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with running as materialized (
    select j.id, j.tenant, j.task, j.started_at from onceward.job_private as j
     where j.state = 'running'
     order by j.worker_id
     limit 50000
  )
  select o.tenant, o.task,
         onceward.severity_at(o.age, (p_thresholds ->> 'warning_age')::numeric, (p_thresholds ->> 'critical_age')::numeric),
         o.age,
         format('a job of task %s has run for %s', o.task, onceward.span_text(o.age)),
         jsonb_build_object('job', o.id)
    from (select distinct on (r.tenant, r.task) r.*, onceward.seconds_of(onceward.now() - r.started_at) as age
            from running as r
           order by r.tenant, r.task, r.started_at) as o
   order by o.age desc limit 500
$$;
