-- Metrics: gauges of the whole database, for any number of scrapers.
-- What each is called and means is in src/onceward/metrics.py, and a test holds the two together.
-- Every count stops at p_most and goes by an index: measuring a lane of ten million must not add to its trouble.
-- Labels are names of lanes, limits, states and tables: no tenant, no key, nothing that a payload holds.

create or replace function onceward.metrics(p_most integer default 100000)
  returns table (name text, labels jsonb, value double precision)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if p_most is null or p_most not between 1 and 100000000 then
    perform onceward.bad_argument('most', p_most::text, 'must be between 1 and 100000000');
  end if;
  return query select m.* from onceward.metrics_of_jobs(p_most) as m;
  return query select m.* from onceward.metrics_of_lanes() as m;
  return query select m.* from onceward.metrics_of_ledgers(p_most) as m;
  return query select m.* from onceward.metrics_of_limits(p_most) as m;
  return query select m.* from onceward.metrics_of_watch(p_most) as m;
  return query select m.* from onceward.metrics_of_storage() as m;
end;
$$;
comment on function onceward.metrics(integer) is
  'Gauges of the whole database, by name and labels: jobs by lane and state, ages, workers, limits, deliveries, schedules, alerts, the audit log, storage.  Counts stop at p_most.';

-- Lanes that get labels of their own.  More than these would swamp whoever stores the series.
create or replace function onceward.measured_lanes()
  returns setof text
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$ select l.name from onceward.lane_private as l order by l.name limit 200 $$;

create or replace function onceward.metrics_of_jobs(p_most integer)
  returns table (name text, labels jsonb, value double precision)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
begin
  return query
    with lane as materialized (select l as name from onceward.measured_lanes() as l),
    counted as (
      select l.name as lane, 'ready' as state, r.n
        from lane as l
       cross join lateral (
         select count(*) as n from (select from onceward.job_private as j
                                     where j.lane = l.name and j.state = 'ready' limit p_most) as f) as r
      union all
      select f.lane, 'running', count(*)
        from (select j.lane from onceward.job_private as j where j.state = 'running' order by j.worker_id limit p_most) as f
       group by f.lane
      union all
      select f.lane, 'scheduled', count(*)
        from (select j.lane from onceward.job_private as j where j.state = 'scheduled' order by j.run_at limit p_most) as f
       group by f.lane
      union all
      select f.lane, 'dead_letter', count(*)
        from (select j.lane from onceward.job_private as j where j.state = 'dead_letter' order by j.dead_at limit p_most) as f
       group by f.lane
      union all
      -- Those that wait for other jobs, and those that wait for their key: an index each, in which others stand too.
      select f.lane, 'blocked', count(*)
        from ((select j.lane, j.state from onceward.job_private as j where j.awaits is not null
                order by j.tenant, j.awaits limit p_most)
              union all
              (select j.lane, j.state from onceward.job_private as j where j.concurrency_hash is not null and j.awaits is null
                order by j.concurrency_hash limit p_most)) as f
       where f.state = 'blocked'
       group by f.lane
    )
    select 'onceward_jobs', jsonb_build_object('lane', l.name, 'state', s.state), coalesce(sum(c.n), 0)::double precision
      from lane as l
     cross join unnest(array['ready', 'running', 'scheduled', 'blocked', 'dead_letter']) as s (state)
      left join counted as c on c.lane = l.name and c.state = s.state
     group by l.name, s.state;

  return query
    select 'onceward_oldest_ready_seconds', jsonb_build_object('lane', l),
           greatest(coalesce(extract(epoch from onceward.now() - onceward.oldest_ready(l)), 0), 0)::double precision
      from onceward.measured_lanes() as l;

  -- Due and not made ready: every worker does that, so it says whether any does.
  return query
    select 'onceward_promotion_lag_seconds', '{}'::jsonb,
           greatest(coalesce(extract(epoch from onceward.now() - min(j.run_at)), 0), 0)::double precision
      from onceward.job_private as j where j.state = 'scheduled' and j.run_at <= onceward.now();

  -- Some steps are done, and the job has failed: among the first thousand dead letters and the first thousand that wait.
  return query
    select 'onceward_partial_completions', '{}'::jsonb, count(*)::double precision
      from ((select j.id, j.run_at from onceward.job_private as j where j.state = 'dead_letter' order by j.dead_at limit 1000)
            union all
            (select f.id, f.run_at from (select j.id, j.run_at, j.last_error from onceward.job_private as j
                                          where j.state = 'scheduled' order by j.run_at limit 1000) as f
              where f.last_error is not null
                and not exists (select from onceward.step_private as w
                                 where w.job_id = f.id and w.state = 'waiting' and w.until = f.run_at))) as f
     where exists (select from onceward.step_private as s where s.job_id = f.id and s.state = 'done');
end;
$$;

-- The first ready job of each priority of each line: a look into the index of claims for each, at most a hundred lines and
-- fifty priorities of one.
create or replace function onceward.heads_of_lane(p_lane text)
  returns setof onceward.job_private
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_line text;
  v_last integer;
  v_job  onceward.job_private;
begin
  foreach v_line in array onceward.lines_of(p_lane, null, 100) loop
    v_last := 32768;
    for i in 1 .. 50 loop
      select * into v_job from onceward.job_private as j
       where j.lane = p_lane and j.line = v_line and j.state = 'ready' and j.priority < v_last
       order by j.priority desc, j.ready_seq
       limit 1;
      exit when not found;
      v_last := v_job.priority;
      return next v_job;
    end loop;
  end loop;
end;
$$;

-- Since when the oldest ready job of a lane is due.
create or replace function onceward.oldest_ready(p_lane text)
  returns timestamptz
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$ select min(j.run_at) from onceward.heads_of_lane(p_lane) as j $$;

create or replace function onceward.metrics_of_lanes()
  returns table (name text, labels jsonb, value double precision)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with live as materialized (
    select w.lanes, w.concurrency from onceward.worker_private as w
     where w.retired_at is null and w.expires_at > onceward.now()
  ), served as materialized (
    select n as lane, count(*) as workers, sum(l.concurrency) as slots
      from live as l cross join lateral unnest(l.lanes) as n group by n
  ), lane as materialized (
    select l.name, l.paused_at is not null as paused, coalesce(s.workers, 0) as workers, coalesce(s.slots, 0) as slots
      from onceward.lane_private as l left join served as s on s.lane = l.name
     where l.name in (select m from onceward.measured_lanes() as m)
  )
  select 'onceward_lane_paused', jsonb_build_object('lane', l.name), l.paused::integer::double precision from lane as l
  union all
  select 'onceward_lane_workers', jsonb_build_object('lane', l.name), l.workers::double precision from lane as l
  union all
  select 'onceward_lane_slots', jsonb_build_object('lane', l.name), l.slots::double precision from lane as l
  union all
  select 'onceward_workers', jsonb_build_object('state', s.state),
         (select count(*) from onceward.worker_private as w
           where w.retired_at is null and (w.expires_at > onceward.now()) = (s.state = 'live'))::double precision
    from unnest(array['live', 'expired']) as s (state)
$$;

create or replace function onceward.metrics_of_ledgers(p_most integer)
  returns table (name text, labels jsonb, value double precision)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set jit = off
as $$
  select 'onceward_deliveries', jsonb_build_object('state', o.state), o.n::double precision
    from (select s.state, (select count(*) from (select from onceward.delivery_private as d
                                                  where d.state = s.state and d.state in ('pending', 'sending') limit p_most) as f) as n
            from unnest(array['pending', 'sending']) as s (state)
          union all
          select s.state, (select count(*) from (select from onceward.delivery_private as d
                                                  where d.state = s.state and d.state in ('uncertain', 'abandoned') limit p_most) as f)
            from unnest(array['uncertain', 'abandoned']) as s (state)) as o
  union all
  select 'onceward_schedules_late', '{}'::jsonb, count(*)::double precision
    from (select from onceward.schedule_private as s
           where s.paused_at is null and s.next_at < onceward.now() - interval '1 minute' limit p_most) as f
  union all
  select 'onceward_schedule_lateness_seconds', '{}'::jsonb,
         greatest(coalesce(extract(epoch from onceward.now() - min(s.next_at)), 0), 0)::double precision
    from onceward.schedule_private as s where s.paused_at is null
$$;

-- What vacuum is kept from, and what that costs.  By clock time of the server: none of it is a rule of the engine.
create or replace function onceward.metrics_of_storage()
  returns table (name text, labels jsonb, value double precision)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'onceward_xmin_age_transactions', '{}'::jsonb, coalesce(max(h.age), 0)::double precision
    from (select greatest(age(a.backend_xmin), age(a.backend_xid)) as age from pg_stat_activity as a
           where a.datname = current_database() and a.pid <> pg_backend_pid()
          union all
          select age(p.transaction) from pg_prepared_xacts as p where p.database = current_database()
          union all
          select greatest(age(r.xmin), age(r.catalog_xmin)) from pg_replication_slots as r
          union all
          select age(s.backend_xmin) from pg_stat_replication as s) as h
  union all
  select s.metric, jsonb_build_object('table', s.relation), s.value
    from (select c.relation, sum(pg_stat_get_dead_tuples(c.oid)) as dead, sum(pg_total_relation_size(c.oid)) as bytes
            from (select r.oid, coalesce(p.relname, r.relname) as relation
                    from pg_class as r
                    left join pg_inherits as i on i.inhrelid = r.oid
                    left join pg_class as p on p.oid = i.inhparent
                   where r.relnamespace = 'onceward'::regnamespace and r.relkind = 'r') as c
           group by c.relation) as t
   cross join lateral (values ('onceward_dead_rows', t.relation, t.dead::double precision),
                              ('onceward_table_bytes', t.relation, t.bytes::double precision)) as s (metric, relation, value)
$$;
