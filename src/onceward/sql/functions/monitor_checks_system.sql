-- The built-in checks on what jobs rest on: schedules, deliveries, workers, the server.

create or replace function onceward.check_missed_ticks(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with lost as materialized (
    select t.tenant, t.schedule, t.slots from onceward.tick_private as t
     where (t.outcome = 'failed'
            -- Whoever declares missed => none says that a lost slot does not matter.
            or t.outcome = 'missed' and not exists (
              select from onceward.schedule_private as s where s.tenant = t.tenant and s.name = t.schedule and s.missed = 'none'))
       and t.ticked_at > onceward.now() - make_interval(secs => (p_thresholds ->> 'window')::double precision)
     order by t.ticked_at desc
     limit 10000
  )
  (select l.tenant, l.schedule,
          onceward.severity_at(sum(l.slots), (p_thresholds ->> 'warning_slots')::numeric, (p_thresholds ->> 'critical_slots')::numeric),
          sum(l.slots),
          format('%s of schedule %s missed or refused within %s', onceward.counted(sum(l.slots), 'slot'), l.schedule,
                 onceward.span_text((p_thresholds ->> 'window')::numeric))
     from lost as l
    group by l.tenant, l.schedule
    order by sum(l.slots) desc limit 250)
  union all
  -- Nobody ticks.
  (select s.tenant, 'overdue: ' || s.name, 'critical', onceward.seconds_of(onceward.now() - s.next_at),
          format('schedule %s is overdue by %s: nobody ticks', s.name, onceward.span_text(onceward.seconds_of(onceward.now() - s.next_at)))
     from onceward.schedule_private as s
    where s.paused_at is null
      and s.next_at < onceward.now() - make_interval(secs => (p_thresholds ->> 'late')::double precision)
    order by s.next_at limit 250)
$$;

-- Deliveries that are due and have not got through.  Those that are for later do not count.
create or replace function onceward.check_delivery_backlog(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with waiting as materialized (
    select d.id, d.tenant, d.kind from onceward.delivery_private as d
     where d.state in ('pending', 'sending')
       and d.created_at < onceward.now() - make_interval(secs => (p_thresholds ->> 'late')::double precision)
     order by d.created_at
     limit 10000
  )
  select w.tenant, w.kind,
         onceward.severity_at(count(*), (p_thresholds ->> 'warning_count')::numeric, (p_thresholds ->> 'critical_count')::numeric),
         count(*),
         format('%s (%s) waiting for more than %s', case when count(*) = 1 then '1 delivery' else count(*) || ' deliveries' end,
                w.kind, onceward.span_text((p_thresholds ->> 'late')::numeric))
    from waiting as w join onceward.job_private as j on j.id = w.id
   where j.state <> 'scheduled' or j.epoch > 0
   group by w.tenant, w.kind
   order by count(*) desc limit 500
$$;

-- Deliveries that need a person: uncertain ones, and abandoned ones whose job nobody has resolved.
create or replace function onceward.check_delivery_trouble(p_thresholds jsonb)
  returns table (tenant text, key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with trouble as materialized (
    (select d.id, d.tenant, d.kind, d.state from onceward.delivery_private as d
      where d.state = 'uncertain' order by d.id desc limit 10000)
    union all
    (select d.id, d.tenant, d.kind, d.state from onceward.delivery_private as d
      where d.state = 'abandoned' order by d.id desc limit 10000)
  )
  select t.tenant, t.state || ' ' || t.kind,
         onceward.severity_at(count(*), (p_thresholds ->> ('warning_' || t.state))::numeric,
                              (p_thresholds ->> ('critical_' || t.state))::numeric),
         count(*),
         format('%s (%s) %s', case when count(*) = 1 then '1 delivery' else count(*) || ' deliveries' end, t.kind,
                case t.state when 'uncertain' then 'may or may not have arrived: decide' else 'given up' end),
         jsonb_build_object('deliveries', (array_agg(t.id order by t.id desc))[1:5])
    from trouble as t
   where t.state = 'uncertain' or exists (select from onceward.job_private as j where j.id = t.id and j.state = 'dead_letter')
   group by t.tenant, t.state, t.kind
   order by count(*) desc limit 500
$$;

-- Lanes with ready jobs that no living worker serves, and workers that were lost.
create or replace function onceward.check_workers(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'lane ' || h.lane,
         onceward.severity_at(h.age, (p_thresholds ->> 'warning_unserved')::numeric, (p_thresholds ->> 'critical_unserved')::numeric),
         h.age,
         format('lane %s has ready jobs since %s and no living worker', h.lane, onceward.span_text(h.age)),
         jsonb_build_object('job', h.job_id)
    from (select distinct on (r.lane) r.*, onceward.seconds_of(onceward.now() - r.since) as age
            from onceward.ready_heads() as r
           order by r.lane, r.since) as h
   where not exists (select from onceward.worker_private as w
                      where w.retired_at is null and w.expires_at > onceward.now() and h.lane = any (w.lanes))
  union all
  select 'lost',
         onceward.severity_at(count(*), (p_thresholds ->> 'warning_lost')::numeric, (p_thresholds ->> 'critical_lost')::numeric),
         count(*),
         format('%s lost within %s', onceward.counted(count(*), 'worker'), onceward.span_text((p_thresholds ->> 'window')::numeric)),
         jsonb_build_object('workers', (array_agg(distinct w.name))[1:5], 'hosts', (array_agg(distinct w.host))[1:5])
    from onceward.worker_private as w
   where w.retired_why = 'lease expired'
     and w.retired_at > onceward.now() - make_interval(secs => (p_thresholds ->> 'window')::double precision)
  having count(*) > 0
$$;

-- Who keeps vacuum from removing dead rows in this database.  Sessions of other roles are visible only to members of
-- pg_read_all_stats, which onceward_owner should be.
create or replace function onceward.pins()
  returns table (kind text, name text, who text, state text, transactions bigint, since timestamptz)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select p.kind, p.name, p.who, p.state, p.transactions, p.since
    from (select 'session' as kind, 'pid ' || s.pid as name,
                 concat_ws(' ', s.usename, nullif(s.application_name, '')) as who, s.state,
                 greatest(age(s.backend_xmin), age(s.backend_xid))::bigint as transactions, s.xact_start as since
            from pg_stat_activity as s
           where s.datname = current_database() and s.pid <> pg_backend_pid()
             and (s.backend_xmin is not null or s.backend_xid is not null)
          union all
          select 'prepared transaction', x.gid, x.owner::text, 'prepared', age(x.transaction)::bigint, x.prepared
            from pg_prepared_xacts as x where x.database = current_database()
          union all
          select 'replication slot', s.slot_name::text, null, case when s.active then 'active' else 'inactive' end,
                 greatest(age(s.xmin), age(s.catalog_xmin))::bigint, null
            from pg_replication_slots as s where s.xmin is not null or s.catalog_xmin is not null
          union all
          select 'standby feedback', coalesce(nullif(r.application_name, ''), 'pid ' || r.pid), r.usename::text, r.state,
                 age(r.backend_xmin)::bigint, null
            from pg_stat_replication as r where r.backend_xmin is not null) as p
   order by p.transactions desc nulls last
   limit 20
$$;

-- A slot or a standby has no beginning; how many transactions it is behind says as much.
create or replace function onceward.pin_severity(p_thresholds jsonb, p_age numeric, p_transactions bigint)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case when p_age is not null
              then onceward.severity_at(p_age, (p_thresholds ->> 'warning_age')::numeric, (p_thresholds ->> 'critical_age')::numeric)
              else onceward.severity_at(p_transactions, (p_thresholds ->> 'warning_transactions')::numeric,
                                        (p_thresholds ->> 'critical_transactions')::numeric) end
$$;

create or replace function onceward.check_pinned_xmin(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select p.kind || ' ' || p.name,
         onceward.pin_severity(p_thresholds, p.age, p.transactions),
         coalesce(p.age, p.transactions),
         concat_ws(', ', p.kind || ' ' || p.name, p.who, p.state) || ' keeps dead rows alive'
           || coalesce(' for ' || onceward.span_text(p.age), format(' (%s transactions behind)', p.transactions)),
         jsonb_build_object('transactions', p.transactions, 'since', p.since)
    from (select n.*, onceward.seconds_of(onceward.now() - n.since) as age from onceward.pins() as n) as p
  union all
  select 'not visible', null, null, 'sessions of other roles are not visible: grant pg_read_all_stats to onceward_owner', null
   where not pg_has_role('onceward_owner', 'pg_read_all_stats', 'usage')
$$;

create or replace function onceward.check_bloat(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select s.relname::text,
         case when s.n_dead_tup >= s.n_live_tup * (p_thresholds ->> 'least_share')::numeric then
           onceward.severity_at(s.n_dead_tup, (p_thresholds ->> 'warning_dead')::numeric, (p_thresholds ->> 'critical_dead')::numeric) end,
         s.n_dead_tup,
         format('table %s has %s dead rows and %s live ones', s.relname, s.n_dead_tup, s.n_live_tup),
         jsonb_build_object('live', s.n_live_tup, 'bytes', pg_relation_size(s.relid),
                            'vacuumed_at', greatest(s.last_autovacuum, s.last_vacuum))
    from pg_stat_all_tables as s
   where s.schemaname = 'onceward' and s.n_dead_tup > 0
   order by s.n_dead_tup desc limit 20
$$;

-- The server does not tell how much room is left, so the size is held against a bound that somebody has set, and against
-- itself: how fast it grows, by the runs of the last day.
create or replace function onceward.check_disk(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_size   numeric := pg_database_size(current_database());
  v_bound  numeric := (p_thresholds ->> 'bound')::numeric;
  v_before record;
  v_growth numeric;
begin
  key := 'size';
  value := v_size;
  severity := onceward.severity_at(v_size / nullif(v_bound, 0), (p_thresholds ->> 'warning_share')::numeric,
                                   (p_thresholds ->> 'critical_share')::numeric);
  summary := format('the database has %s', pg_size_pretty(v_size))
             || case when v_bound > 0 then format(', %s %% of its bound of %s', round(v_size / v_bound * 100), pg_size_pretty(v_bound))
                     else '' end;
  return next;

  select (f ->> 'value')::numeric as size, onceward.seconds_of(onceward.now() - r.started_at) as age into v_before
    from onceward.monitor_run_private as r, jsonb_array_elements(r.result) as f
   where r.monitor = 'disk' and f ->> 'key' = 'size'
     and r.started_at between onceward.now() - interval '25 hours' and onceward.now() - interval '1 hour'
   order by r.started_at limit 1;
  if found and v_before.age > 0 then
    v_growth := round((v_size - v_before.size) * 86400 / v_before.age);
    key := 'growth';
    value := v_growth;
    severity := case when v_growth >= (p_thresholds ->> 'growth_bytes')::numeric
                      and v_growth >= v_before.size * (p_thresholds ->> 'growth_share')::numeric then 'warning' end;
    summary := format('the database grows by %s a day, from %s', pg_size_pretty(v_growth), pg_size_pretty(v_before.size));
    return next;
  end if;
end;
$$;

-- Monitors that nobody runs: the application that declared them is gone, or no worker knows them.
create or replace function onceward.check_monitors_overdue(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select m.name, onceward.severity_at(onceward.seconds_of(onceward.now() - m.next_at), (p_thresholds ->> 'warning_late')::numeric,
                                      (p_thresholds ->> 'critical_late')::numeric),
         onceward.seconds_of(onceward.now() - m.next_at),
         format('monitor %s has not run for %s: no worker knows it', m.name,
                onceward.span_text(onceward.seconds_of(onceward.now() - coalesce(m.last_run_at, m.created_at))))
    from onceward.monitor_private as m
   where m.enabled and m.next_at < onceward.now() - interval '1 minute' and m.name <> 'monitors'
   order by m.next_at limit 500
$$;
