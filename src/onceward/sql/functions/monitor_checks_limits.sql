-- The built-in checks on what is shared: limits, and the audit log.

-- Jobs whose limit has no room for them, and limits that are paused: by a person, or because a provider refuses again and again.
create or replace function onceward.check_limit_starvation(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  (select concat_ws(' ', w.limit_name, nullif(w.key, '')),
          onceward.severity_at(w.age, (p_thresholds ->> 'warning_wait')::numeric, (p_thresholds ->> 'critical_wait')::numeric),
          w.age,
          format('a job of lane %s has waited for %s, and limit %s has no room: %s', w.lane, onceward.span_text(w.age),
                 concat_ws(' ', w.limit_name, nullif(w.key, '')), w.why),
          jsonb_build_object('job', w.job_id, 'lane', w.lane, 'since', w.since)
     from (select distinct on (s.limit_name, s.key) s.limit_name, s.key, s.why, h.lane, h.job_id, h.since,
                  onceward.seconds_of(onceward.now() - h.since) as age
             from onceward.ready_heads() as h
             join onceward.job_private as j on j.id = h.job_id and j.uses is not null
            cross join lateral onceward.stops_of_line(j.lane, j.line) as s
            order by s.limit_name, s.key, h.since) as w
    order by w.age desc limit 250)
  union all
  (select 'paused ' || concat_ws(' ', p.limit_name, nullif(p.key, '')),
          onceward.severity_at(p.age, (p_thresholds ->> 'warning_pause')::numeric, (p_thresholds ->> 'critical_pause')::numeric),
          p.age,
          format('limit %s is paused for %s', concat_ws(' ', p.limit_name, nullif(p.key, '')), onceward.span_text(p.age))
            || coalesce(': ' || onceward.told_text(p.pause_reason), ''),
          jsonb_build_object('since', p.since, 'until', p.paused_until)
     from (select b.*, s.since, onceward.seconds_of(onceward.now() - s.since) as age
             from onceward.bucket_private as b
             join onceward.limit_private as l on l.name = b.limit_name
            -- Each refusal makes a new pause; since when there is one is known from the look that saw the first.
            cross join lateral (select coalesce(onceward.paused_since(concat_ws(' ', b.limit_name, nullif(b.key, ''))), onceward.now()) as since) as s
            where b.paused_until > onceward.now() or (b.paused_until is not null and onceward.is_probing(b))) as p
    order by p.age desc limit 250)
$$;

-- As the last run of the monitor has it.
create or replace function onceward.paused_since(p_bucket text)
  returns timestamptz
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select (f -> 'detail' ->> 'since')::timestamptz
    from (select r.result from onceward.monitor_run_private as r
           where r.monitor = 'limit_starvation' and r.ended_at is not null
           order by r.started_at desc limit 1) as r, jsonb_array_elements(r.result) as f
   where f ->> 'key' = 'paused ' || p_bucket
$$;

-- Entries that wait for their seal: nobody seals, or an open transaction holds it up.
create or replace function onceward.check_seal_lag(p_thresholds jsonb)
  returns table (key text, severity text, value numeric, summary text, detail jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'unsealed',
         onceward.severity_at(u.age, (p_thresholds ->> 'warning_age')::numeric, (p_thresholds ->> 'critical_age')::numeric),
         u.age,
         format('%s%s of the audit log not sealed, the oldest for %s%s', case when u.entries >= 10000 then 'at least ' else '' end,
                case when u.entries = 1 then '1 entry' else u.entries || ' entries' end, onceward.span_text(u.age),
                case when u.held >= u.entries then ', because a transaction is open' else '' end),
         jsonb_build_object('entries', u.entries, 'held', u.held, 'since', u.since)
    from (select n.*, onceward.seconds_of(onceward.now() - n.since) as age from onceward.unsealed(10000) as n) as u
   where u.entries > 0
$$;
