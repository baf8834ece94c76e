-- Targets and alerts, with the documented figures, as monitors of the engine: operators change a threshold there.

-- Jobs of the contract that ended, or became dead letters, within a time.  The newest are enough: a bound keeps a busy hour from
-- making the check slow.
create or replace function intake.recent_ends(p_since interval)
  returns table (job_id uuid, job_type text, job_lane text, is_dead boolean, retries integer, took interval)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select j.id, split_part(j.task, '.', 2), j.lane, false, greatest(0, j.attempt - 1), j.finished_at - j.created_at
    from onceward.jobs as j
   where j.lane in ('fast_queue', 'ai_queue') and j.task like 'intake.%' and j.state = 'done'
     -- Ids carry their time: an index finds them.
     and j.id >= onceward.id_at(onceward.now() - p_since - interval '1 hour') and j.finished_at > onceward.now() - p_since
  union all
  select d.id, split_part(d.task, '.', 2), d.lane, true, greatest(0, d.attempt - 1), d.dead_at - d.created_at
    from onceward.dead_letters as d
   where d.lane in ('fast_queue', 'ai_queue') and d.task like 'intake.%' and d.dead_at > onceward.now() - p_since
$$;

create or replace function intake.lane_p95(p_lane text, p_since interval)
  returns interval
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select make_interval(secs => percentile_cont(0.95) within group (order by extract(epoch from e.took)))
    from intake.recent_ends(p_since) as e
   where e.job_lane = p_lane and not e.is_dead and e.job_type in ('shell_file_processing', 'ai_processing')
$$;

-- What is measured, its target, and whether it is met: for pages; the monitors below ask the same.
create or replace function intake.service_levels()
  returns table (name text, title text, value double precision, shown text, target text, is_met boolean)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_fast  double precision := extract(epoch from intake.lane_p95('fast_queue', '1 hour'));
  v_ai    double precision := extract(epoch from intake.lane_p95('ai_queue', '1 hour'));
  v_all   bigint;
  v_dead  bigint;
  v_again bigint;
  v_five  bigint;
  v_wrong bigint;
  v_depth bigint;
begin
  select count(*), count(*) filter (where e.is_dead), count(*) filter (where e.retries > 0) into v_all, v_dead, v_again
    from intake.recent_ends('1 hour') as e;
  select count(*), count(*) filter (where a.outcome in ('failed', 'dead_letter', 'rescued')) into v_five, v_wrong
    from intake.recent_attempts('5 minutes') as a;
  select coalesce(sum(l.ready + l.scheduled + l.blocked), 0) into v_depth
    from onceward.lanes as l where l.name in ('fast_queue', 'ai_queue', 'standard_queue');
  return query values
    ('fast_queue_p95', 'Fast queue, 95 of 100', v_fast, coalesce(round(v_fast::numeric, 1) || ' s', '–'), 'under 2 min', coalesce(v_fast, 0) < 120),
    ('ai_queue_p95', 'AI queue, 95 of 100', v_ai, coalesce(round(v_ai::numeric, 1) || ' s', '–'), 'under 10 min', coalesce(v_ai, 0) < 600),
    ('success_rate', 'Success', 1 - v_dead / nullif(v_all, 0)::double precision,
       coalesce(round(100 - 100.0 * v_dead / nullif(v_all, 0), 2) || ' %', '–'), 'at least 99.5 %', v_dead <= 0.005 * v_all),
    ('retry_rate', 'Retried', v_again / nullif(v_all, 0)::double precision,
       coalesce(round(100.0 * v_again / nullif(v_all, 0), 2) || ' %', '–'), 'under 5 %', v_all = 0 or v_again < 0.05 * v_all),
    ('dead_letter_rate', 'Dead letters', v_dead / nullif(v_all, 0)::double precision,
       coalesce(round(100.0 * v_dead / nullif(v_all, 0), 3) || ' %', '–'), 'under 0.1 %', v_all = 0 or v_dead < 0.001 * v_all),
    ('queue_depth', 'Waiting', v_depth::double precision, v_depth::text, 'under 1,000', v_depth < 1000),
    ('error_rate', 'Errors, 5 min', v_wrong / nullif(v_five, 0)::double precision,
       coalesce(round(100.0 * v_wrong / nullif(v_five, 0), 1) || ' %', '–'), 'under 10 %', v_five = 0 or v_wrong < 0.1 * v_five),
    ('health', 'Health checks missed', intake.missed_checks()::double precision, intake.missed_checks()::text, 'under 3', intake.missed_checks() < 3);
end;
$$;
comment on function intake.service_levels() is 'The documented targets, what the last hour has, and whether each is met.';

create or replace function intake.recent_attempts(p_since interval)
  returns table (outcome text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select a.outcome from onceward.attempts as a
    join onceward.jobs as j on j.id = a.job_id
   where a.job_id >= onceward.id_at(onceward.now() - p_since - interval '1 hour') and a.ended_at > onceward.now() - p_since
     and j.lane in ('fast_queue', 'ai_queue') and j.task like 'intake.%' and a.outcome in ('done', 'failed', 'dead_letter', 'rescued')
$$;

-- A worker's sign of life is a health check: how many the best one of our lanes has missed in a row.
create or replace function intake.missed_checks()
  returns integer
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(floor(extract(epoch from onceward.now() - max(w.heartbeat_at))
                        / intake.setting_number('worker.heartbeat_interval_seconds', 30))::integer, 0)
    from onceward.workers as w
   where w.lanes && array['fast_queue', 'ai_queue'] and w.host is distinct from 'sql'
     and (w.retired_at is null or w.retired_why = 'lease expired')
$$;

create or replace function intake.check_level(p_thresholds jsonb, p_level text, p_above boolean, p_summary text)
  returns table (key text, summary text, value numeric)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select p_level, format(p_summary, l.shown), l.value::numeric
    from intake.service_levels() as l
   where l.name = p_level and l.value is not null
     and case when p_above then l.value >= (p_thresholds ->> 'bound')::double precision
              else l.value < (p_thresholds ->> 'bound')::double precision end
$$;

-- One function and one monitor for each: name, bound, unit, severity, what it says.
do $$
declare
  v_level record;
begin
  for v_level in
    select * from (values
      ('fast_queue_p95', 120, 'seconds', true, 'warning', 'the fast queue takes %s for 95 of 100 files', 'Fast queue: 95 of 100 files take less'),
      ('ai_queue_p95', 600, 'seconds', true, 'warning', 'the AI queue takes %s for 95 of 100 files', 'AI queue: 95 of 100 files take less'),
      ('success_rate', 0.995, 'count', false, 'warning', 'only %s of the jobs of the last hour succeeded', 'Share of jobs that succeed'),
      ('retry_rate', 0.05, 'count', true, 'warning', '%s of the jobs of the last hour had to be retried', 'Share of jobs that are retried'),
      ('dead_letter_rate', 0.001, 'count', true, 'warning', '%s of the jobs of the last hour are dead letters', 'Share of jobs that are dead letters'),
      ('queue_depth', 1000, 'count', true, 'warning', '%s jobs are waiting', 'Jobs that wait'),
      ('error_rate', 0.1, 'count', true, 'critical', '%s of the attempts of the last 5 minutes failed', 'Share of attempts that fail within 5 minutes'),
      ('health', 3, 'count', true, 'critical', 'no worker has answered %s health checks in a row', 'Health checks missed in a row')
    ) as l (name, bound, unit, above, severity, summary, description)
  loop
    execute format(
      'create or replace function intake.monitor_%1$s(p_thresholds jsonb) returns table (key text, summary text, value numeric) '
      'language sql stable set search_path = pg_catalog, pg_temp '
      'as $f$ select * from intake.check_level(p_thresholds, %1$L, %2$L, %3$L) $f$', v_level.name, v_level.above, v_level.summary);
    perform onceward.add_monitor('intake_' || v_level.name, ('intake.monitor_' || v_level.name || '(jsonb)')::regprocedure,
      p_every => case when v_level.name in ('error_rate', 'health') then interval '30 seconds' else interval '1 minute' end,
      p_thresholds => jsonb_build_array(jsonb_build_object('name', 'bound', 'unit', v_level.unit, 'value', v_level.bound,
                                                           'description', v_level.description)),
      p_severity => v_level.severity, p_description => 'Health intake: ' || v_level.description);
  end loop;
end;
$$;
