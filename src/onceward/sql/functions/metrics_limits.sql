-- Metrics of limits, and of what watches over the rest: alerts and the audit log.

-- Of a limit per key, only sums and extremes over its keys: a key may be a tenant.
create or replace function onceward.metrics_of_limits(p_most integer)
  returns table (name text, labels jsonb, value double precision)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with measured as materialized (
    select l from onceward.limit_private as l order by l.name limit 200
  ), bucket as materialized (
    select (m.l).name as limit_name, onceward.level_of(m.l, b) as level,
           coalesce(b.paused_until > onceward.now() or onceward.is_probing(b), false) as paused
      from measured as m
     cross join lateral (select * from onceward.bucket_private as k where k.limit_name = (m.l).name order by k.key limit 1000) as b
  ), waiting as materialized (
    select u.name as limit_name, sum(onceward.depth_of_line(l, n.line, p_most)) as jobs
      from onceward.measured_lanes() as l
     cross join unnest(onceward.lines_of(l, null, 100)) as n (line)
     cross join lateral onceward.uses_in(onceward.uses_of_line(l, n.line)) as u
     where n.line like '%' || chr(31) || '%'
     group by u.name
  )
  select v.name, jsonb_build_object('limit', (m.l).name), v.value
    from measured as m
   cross join lateral (
     values ('onceward_limit_level', coalesce((select min(b.level) from bucket as b where b.limit_name = (m.l).name), 1)),
            ('onceward_limit_paused', (select count(*) from bucket as b where b.limit_name = (m.l).name and b.paused)::double precision),
            ('onceward_limit_waiting',
             coalesce((select least(w.jobs, p_most) from waiting as w where w.limit_name = (m.l).name), 0)::double precision)) as v (name, value)
$$;

-- How full a bucket is, from 0 to 1: what is the least of its requests, its weight and its slots.
create or replace function onceward.level_of(p_limit onceward.limit_private, p_bucket onceward.bucket_private)
  returns double precision
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select greatest(0, least(
    coalesce(onceward.refilled(p_bucket.level, p_limit.burst, p_limit.rate, p_bucket.refilled_at, onceward.now()) / p_limit.burst, 1),
    coalesce(onceward.refilled(p_bucket.weight_level, p_limit.weight_burst, p_limit.weight_rate, p_bucket.refilled_at, onceward.now())
             / p_limit.weight_burst, 1),
    case when p_limit.slots is null then 1 else 1 - (
      select count(*) from onceward.hold_private as h
       where h.limit_name = p_limit.name and h.key = p_bucket.key and onceward.is_held(h))::double precision / p_limit.slots end))
$$;

-- Once a minute, whoever comes first: what metrics say about limits, kept for a while.  Two hundred rows at most.
create or replace function onceward.sample_limits()
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_at    timestamptz := date_trunc('minute', onceward.now());
  v_count integer;
begin
  if exists (select from onceward.limit_level_private as l where l.at >= v_at) then
    return 0;
  end if;
  insert into onceward.limit_level_private (limit_name, at, level, waiting, paused)
  select m.labels ->> 'limit', v_at, max(m.value) filter (where m.name = 'onceward_limit_level'),
         max(m.value) filter (where m.name = 'onceward_limit_waiting'), max(m.value) filter (where m.name = 'onceward_limit_paused') > 0
    from onceward.metrics_of_limits(10000) as m
   group by 1
   order by 1
      on conflict do nothing;
  get diagnostics v_count = row_count;
  return v_count;
end;
$$;

create or replace function onceward.metrics_of_watch(p_most integer)
  returns table (name text, labels jsonb, value double precision)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'onceward_alerts_open', jsonb_build_object('severity', s.severity), (
           select count(*) from (select from onceward.alert_private as a
                                  where a.closed_at is null and a.state = 'open' and a.severity = s.severity limit p_most) as f)::double precision
    from unnest(array['info', 'warning', 'critical']) as s (severity)
  union all
  select v.name, '{}'::jsonb, v.value
    from onceward.unsealed(p_most) as u
   cross join lateral (
     values ('onceward_audit_unsealed_entries', u.entries::double precision),
            ('onceward_audit_unsealed_seconds', greatest(coalesce(extract(epoch from onceward.now() - u.since), 0), 0)::double precision))
            as v (name, value)
$$;
