-- Looking for jobs among millions, within a bounded time.  These run with the rights of the caller, so that row-level
-- security decides what is seen.  Numbers that make no sense find nothing.
-- A search goes from the newest job back and looks at p_scan jobs at most; scan_end says where it stopped, and the next
-- search goes on from there.  What is looked at is bounded, so a filter that hardly anything matches costs no more than one
-- that everything does, and no index has to be kept for it by those who enqueue and finish.
-- Each call is planned for what it asks: a plan for any filter reads every partition to its end, which takes a hundred times
-- as long.  (PostgreSQL 18 keeps plans of SQL functions, and earlier ones make them without the values.)  By the index, too,
-- when the planner thinks that sorting what is found is cheaper: it does not know how much of it is thrown away.

create or replace function onceward.find_jobs(
  p_states      text[] default null,
  p_lane        text default null,
  p_task        text default null,
  p_tenant      text default null,
  p_key         text default null,
  p_error       text default null,
  p_fingerprint text default null,
  p_since       timestamptz default null,
  p_until       timestamptz default null,
  p_before      uuid default null,
  p_limit       integer default 50,
  p_scan        integer default 20000
)
  returns table (id uuid, tenant text, lane text, task text, state text, priority smallint, attempt integer, max_attempts integer,
                 created_at timestamptz, run_at timestamptz, started_at timestamptz, finished_at timestamptz, key text,
                 error_type text, message text, note text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
  rows 50
as $$
#variable_conflict use_column
begin
  return query
  select f.id, f.tenant, f.lane, f.task, f.state, f.priority, f.attempt, f.max_attempts, f.created_at, f.run_at, f.started_at,
         f.finished_at, f.key, f.last_error ->> 'type', f.last_error ->> 'message', f.note
    from (
      -- Each half by its index on the id.  A half that cannot match is not begun: its condition is constant.
      (select j.id, j.tenant, j.lane, j.task, j.state, j.priority, j.attempt, j.max_attempts, j.created_at, j.run_at, j.started_at,
              null::timestamptz as finished_at, j.key, j.last_error, j.cancel_reason as note
         from onceward.job_private as j
        where (p_states is null or p_states && array['scheduled', 'ready', 'running', 'blocked', 'dead_letter'])
          and j.id >= coalesce(onceward.id_at(p_since), '00000000-0000-0000-0000-000000000000')
          and j.id < least(p_before, onceward.id_at(p_until), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
        order by j.id desc limit greatest(p_scan, 0))
      union all
      (select a.id, a.tenant, a.lane, a.task, a.state, a.priority, a.attempt, a.max_attempts, a.created_at, a.run_at, a.started_at,
              a.finished_at, a.key, a.last_error, a.finish_note
         from onceward.archive_private as a
        where (p_states is null or p_states && array['done', 'cancelled', 'resolved'])
          and a.id >= coalesce(onceward.id_at(p_since), '00000000-0000-0000-0000-000000000000')
          and a.id < least(p_before, onceward.id_at(p_until), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
        order by a.id desc limit greatest(p_scan, 0))
      order by id desc limit greatest(p_scan, 0)
    ) as f
   where (p_states is null or f.state = any (p_states))
     and (p_lane is null or f.lane = p_lane)
     and (p_task is null or f.task = p_task)
     and (p_tenant is null or f.tenant = p_tenant)
     and (p_key is null or f.key = p_key)
     and (p_fingerprint is null or f.last_error ->> 'fingerprint' = p_fingerprint)
     and (p_error is null or strpos(lower(f.last_error ->> 'message'), lower(p_error)) > 0)
   order by f.id desc
   limit greatest(p_limit, 0);
end;
$$;
comment on function onceward.find_jobs(text[], text, text, text, text, text, text, timestamptz, timestamptz, uuid, integer, integer) is
  'Jobs that match, newest first, without payloads and results.  Looks at p_scan jobs at most; onceward.scan_end tells where it stopped.';

-- Counting is a scan of its own: handing out as many rows to count them takes ten times as long.
create or replace function onceward.count_found(
  p_states      text[] default null,
  p_lane        text default null,
  p_task        text default null,
  p_tenant      text default null,
  p_key         text default null,
  p_error       text default null,
  p_fingerprint text default null,
  p_since       timestamptz default null,
  p_until       timestamptz default null,
  p_scan        integer default 20000
)
  returns table (found bigint, is_all boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
as $$
begin
  return query
  select count(*) filter (where (p_states is null or f.state = any (p_states))
                            and (p_lane is null or f.lane = p_lane)
                            and (p_task is null or f.task = p_task)
                            and (p_tenant is null or f.tenant = p_tenant)
                            and (p_key is null or f.key = p_key)
                            and (p_fingerprint is null or f.last_error ->> 'fingerprint' = p_fingerprint)
                            and (p_error is null or strpos(lower(f.last_error ->> 'message'), lower(p_error)) > 0)),
         count(*) < p_scan
    from (
      (select j.id, j.tenant, j.lane, j.task, j.state, j.key, j.last_error from onceward.job_private as j
        where (p_states is null or p_states && array['scheduled', 'ready', 'running', 'blocked', 'dead_letter'])
          and j.id >= coalesce(onceward.id_at(p_since), '00000000-0000-0000-0000-000000000000')
          and j.id < least(onceward.id_at(p_until), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
        order by j.id desc limit greatest(p_scan, 0))
      union all
      (select a.id, a.tenant, a.lane, a.task, a.state, a.key, a.last_error from onceward.archive_private as a
        where (p_states is null or p_states && array['done', 'cancelled', 'resolved'])
          and a.id >= coalesce(onceward.id_at(p_since), '00000000-0000-0000-0000-000000000000')
          and a.id < least(onceward.id_at(p_until), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
        order by a.id desc limit greatest(p_scan, 0))
      order by id desc limit greatest(p_scan, 0)
    ) as f;
end;
$$;
comment on function onceward.count_found(text[], text, text, text, text, text, text, timestamptz, timestamptz, integer) is
  'How many jobs match among the newest p_scan, and whether those are all that there are.';

create or replace function onceward.scan_end(
  p_states text[] default null,
  p_since  timestamptz default null,
  p_until  timestamptz default null,
  p_before uuid default null,
  p_scan   integer default 20000
)
  returns uuid
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set plan_cache_mode = force_custom_plan
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
as $$
begin
  return (
  select f.id
    from (
      (select j.id from onceward.job_private as j
        where (p_states is null or p_states && array['scheduled', 'ready', 'running', 'blocked', 'dead_letter'])
          and j.id >= coalesce(onceward.id_at(p_since), '00000000-0000-0000-0000-000000000000')
          and j.id < least(p_before, onceward.id_at(p_until), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
        order by j.id desc limit greatest(p_scan, 0))
      union all
      (select a.id from onceward.archive_private as a
        where (p_states is null or p_states && array['done', 'cancelled', 'resolved'])
          and a.id >= coalesce(onceward.id_at(p_since), '00000000-0000-0000-0000-000000000000')
          and a.id < least(p_before, onceward.id_at(p_until), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
          and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
        order by a.id desc limit greatest(p_scan, 0))
    ) as f
   order by f.id desc
  offset greatest(p_scan, 1) - 1 limit 1);
end;
$$;
comment on function onceward.scan_end(text[], timestamptz, timestamptz, uuid, integer) is
  'The last job that onceward.find_jobs looks at when it stops for having looked at p_scan of them; null when it reaches the end.';

create or replace function onceward.estimate_jobs()
  returns bigint
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case when onceward.sees_all_tenants() then
    -- Exactly, as long as that is quick.
    (select case when l.n <= 20000 then l.n else greatest(l.n, c.reltuples::bigint) end
       from (select count(*) as n from (select from onceward.job_private limit 20001) as j) as l
       join pg_class as c on c.oid = 'onceward.job_private'::regclass)
    + (select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint
         from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
        where i.inhparent = 'onceward.archive_private'::regclass) end
$$;
comment on function onceward.estimate_jobs() is
  'About how many jobs there are, live and archived, by the statistics of the server.  Null for who does not see every tenant.';

-- What happened per minute and lane.  On a busy day it looks at a sample of the pages, some hundreds of them, and multiplies:
-- about says so.  Jobs that were created more than a day before they ended are not counted.
create or replace function onceward.activity(p_minutes integer default 60, p_pages integer default 800)
  returns table (minute timestamptz, lane text, done bigint, failed bigint, about boolean)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_from  timestamptz := date_trunc('minute', onceward.now()) - make_interval(mins => least(greatest(p_minutes, 1), 1440) - 1);
  v_first uuid := onceward.id_at(onceward.now() - interval '25 hours');
  v_ended real;
  v_tries real;
begin
  select least(100, 100.0 * greatest(p_pages, 1) / greatest(sum(pg_relation_size(i.inhrelid)) filter (where c.relname like 'archive%') / 8192, 1)),
         least(100, 100.0 * greatest(p_pages, 1) / greatest(sum(pg_relation_size(i.inhrelid)) filter (where c.relname like 'attempt%') / 8192, 1))
    into v_ended, v_tries
    from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
   where i.inhparent in ('onceward.archive_private'::regclass, 'onceward.attempt_private'::regclass)
     and (c.relname like '%\_default' or right(c.relname, 8) >= to_char((onceward.now() - interval '25 hours') at time zone 'UTC', 'YYYYMMDD'));
  v_ended := coalesce(v_ended, 100);
  v_tries := coalesce(v_tries, 100);
  return query
    select e.minute, e.lane, round(sum(e.done))::bigint, round(sum(e.failed))::bigint, v_ended < 100 or v_tries < 100
      from (
        select date_trunc('minute', a.finished_at) as minute, a.lane, count(*) * 100 / v_ended as done, 0 as failed
          from onceward.archive_private as a tablesample system (v_ended)
         where a.id >= v_first and a.finished_at >= v_from and a.state = 'done'
           and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
         group by 1, 2
        union all
        -- An attempt does not name its lane; its job does.
        select date_trunc('minute', t.ended_at), coalesce(j.lane, d.lane, '?'), 0, count(*) * 100 / v_tries
          from (select t.job_id, t.ended_at from onceward.attempt_private as t tablesample system (v_tries)
                 where t.job_id >= v_first and t.ended_at >= v_from and t.outcome in ('failed', 'dead_letter', 'rescued')
                   and (t.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
                 limit 20000) as t
          left join onceward.job_private as j on j.id = t.job_id
          left join onceward.archive_private as d on d.id = t.job_id
         group by 1, 2
      ) as e
     group by e.minute, e.lane
     order by e.minute, e.lane;
end;
$$;
comment on function onceward.activity(integer, integer) is
  'Jobs done and attempts failed per minute and lane, of the last p_minutes.  Where about is true, the figures are multiplied from a sample.';

-- A page that is open asks for this once a second, and for the rest only when it differs.
create or replace function onceward.pulse()
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select md5(concat_ws('|',
    (select string_agg(concat_ws(',', l.name, l.paused, l.ready, l.running, l.scheduled, l.blocked, l.dead_letter), ';' order by l.name)
       from onceward.lanes as l),
    (select j.id from onceward.job_private as j
      where (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all())) order by j.id desc limit 1),
    (select a.id from onceward.archive_private as a
      where (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all())) order by a.id desc limit 1),
    (select string_agg(concat_ws(',', w.id, w.expires_at <= onceward.now()), ';' order by w.id)
       from onceward.worker_private as w where w.retired_at is null),
    (select count(*) from onceward.deliveries as d where d.state = 'uncertain'),
    (select concat_ws(',', count(*), count(a.acked_at), count(*) filter (where a.clear_since is null))
       from onceward.alert_private as a where a.closed_at is null and a.state = 'open'
        and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))),
    (select max(s.created_at) from onceward.silences as s where s.until > onceward.now()),
    (select c.id from onceward.comments as c order by c.id desc limit 1),
    (select concat_ws(',', count(*), max(a.assigned_at)) from onceward.assignments as a),
    (select string_agg(concat_ws(',', s.id, s.version, s.last_ticked_at), ';' order by s.id) from onceward.schedules as s)))
$$;
comment on function onceward.pulse() is
  'A text that changes when jobs, lanes, workers, schedules, uncertain deliveries, alerts or what is said about dead letters have changed, as far as the caller sees them.';
