-- Explain, what a lane lacks: its switch is off, it is full, nobody serves it, nobody knows the task.

create or replace function onceward.why_lane_paused(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'lane_paused',
         format('Lane "%s" is paused since %s by %s%s.', l.name, onceward.told(l.paused_at), l.paused_by,
                coalesce(': ' || onceward.told_text(l.pause_reason), '')),
         jsonb_build_object('lane', l.name, 'paused_at', l.paused_at, 'paused_by', l.paused_by, 'reason', l.pause_reason),
         null::timestamptz,
         format('Open it with "onceward lane resume %s".', l.name)
    from onceward.lane_private as l
   where l.name = p_job.lane and l.paused_at is not null
$$;

-- As many run as may run at once; null when the lane has no cap, or has room.  Of the jobs of others, only how many.
create or replace function onceward.lane_full(p_lane text)
  returns integer
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select l.max_running
    from onceward.lane_private as l
   where l.name = p_lane and l.max_running is not null and onceward.lane_running(l.name, l.max_running) >= l.max_running
$$;

create or replace function onceward.why_lane_full(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'lane_full',
         format('Lane "%s" is full: %s %s, and no more may run at once.', p_job.lane, onceward.counted(r.running, 'job'),
                case when r.running = 1 then 'runs' else 'run' end),
         jsonb_build_object('lane', p_job.lane, 'running', r.running, 'max_running', f.most),
         null::timestamptz,
         format('Wait until one ends, or raise the cap with "onceward lane set %s --max-running %s".', p_job.lane, r.running + 1)
    from (select onceward.lane_full(p_job.lane) as most) as f
    -- More than the cap when it was lowered meanwhile.
   cross join lateral (select onceward.lane_running(p_job.lane, 100000) as running) as r
   where p_job.state = 'ready' and f.most is not null
$$;

create or replace function onceward.why_no_worker(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'no_worker',
         format('No live worker serves lane "%s"%s.', p_job.lane,
                case when l.seen is not null then ', the last one was heard of at ' || onceward.told(l.seen) else '' end),
         jsonb_build_object('lane', p_job.lane, 'last_seen_at', l.seen, 'served', o.lanes),
         null::timestamptz,
         format('Start one: "onceward worker package.module:app --lanes %s".', p_job.lane)
    from (select max(w.heartbeat_at) as seen from onceward.worker_private as w where p_job.lane = any (w.lanes)) as l
   cross join (
     select coalesce(jsonb_agg(distinct n), '[]') as lanes
       from onceward.worker_private as w cross join lateral unnest(w.lanes) as n
      where w.retired_at is null and w.expires_at > onceward.now()) as o
   where not exists (select from onceward.worker_private as w
                      where w.retired_at is null and w.expires_at > onceward.now() and p_job.lane = any (w.lanes))
$$;

-- Whether a live worker of the lane has announced the task.  One that has announced none may know any.
create or replace function onceward.lane_knows(p_lane text, p_task text)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select exists (select from onceward.worker_private as w
                  where w.retired_at is null and w.expires_at > onceward.now() and p_lane = any (w.lanes)
                    and (p_task = any (w.tasks) or cardinality(w.tasks) = 0))
$$;

-- Whether a job was put off because the worker had no such task, and still nobody has.
create or replace function onceward.is_for_no_worker(p_job onceward.job_private, p_why text)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select coalesce(p_why like 'this worker has no task %', false)
     and not onceward.lane_knows(p_job.lane, p_job.task)
     and exists (select from onceward.worker_private as w
                  where w.retired_at is null and w.expires_at > onceward.now() and p_job.lane = any (w.lanes))
$$;

create or replace function onceward.why_no_worker_for_task(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_workers integer := (select count(*) from onceward.worker_private as w
                         where w.retired_at is null and w.expires_at > onceward.now() and p_job.lane = any (w.lanes));
  v_near    text;
  v_else    text[];
begin
  if v_workers = 0 or onceward.lane_knows(p_job.lane, p_job.task) then
    return;
  end if;
  v_near := onceward.nearest_task(p_job.task);
  -- Where it is known: the job may be in the wrong lane.
  v_else := array(select distinct n from onceward.worker_private as w cross join lateral unnest(w.lanes) as n
                   where w.retired_at is null and w.expires_at > onceward.now() and p_job.task = any (w.tasks) order by n limit 5);
  reason := 'no_worker_for_task';
  sentence := format('No live worker of lane "%s" knows task "%s"%s.', p_job.lane, p_job.task,
    case when cardinality(v_else) > 0 then format('; those of lane "%s" do', array_to_string(v_else, '", "'))
         when v_near is not null then format('; the nearest name is "%s"', v_near) else '' end);
  detail := jsonb_build_object('task', p_job.task, 'lane', p_job.lane, 'workers', v_workers, 'nearest', v_near, 'known_in_lanes', v_else);
  until := case when p_job.state = 'scheduled' then p_job.run_at end;
  next_step := case when cardinality(v_else) > 0 then format('Enqueue it in lane "%s", or let a worker that knows it serve lane "%s".', v_else[1], p_job.lane)
                    when v_near is not null then format('Deploy a worker with the task, or cancel the job and enqueue "%s".', v_near)
                    else 'Deploy a worker with the task.' end;
  return next;
end;
$$;

-- Steps were done by code of a version that no live worker of the lane has.  Good to know, and no reason to wait.
create or replace function onceward.why_new_version(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'new_version',
         format('%s done by version %s, and the live workers run %s: the next attempt takes over %s.',
                onceward.counted(s.done, 'step') || case when s.done = 1 then ' was' else ' were' end, onceward.shown(s.version),
                array_to_string(v.versions, ', '), case when s.done = 1 then 'its result' else 'their results' end),
         jsonb_build_object('steps', s.done, 'version', s.version, 'live_versions', v.versions),
         null::timestamptz,
         'If its steps were renamed or reordered meanwhile, the job ends as StepsChanged instead of doing them twice.'
    from (select count(*) as done, (array_agg(p.version order by p.seq desc))[1] as version
            from onceward.step_private as p
           where p.job_id = p_job.id and p.state = 'done' and p.version is not null) as s
   cross join (
     select array_agg(distinct onceward.shown(w.version)) as versions, bool_or(w.version is null) as unknown,
            array_agg(distinct w.version) as whole
       from onceward.worker_private as w
      where w.retired_at is null and w.expires_at > onceward.now() and p_job.lane = any (w.lanes) and p_job.task = any (w.tasks)) as v
   where s.done > 0 and not v.unknown and s.version <> all (v.whole)
$$;

-- The known task whose name is nearest, when it is near.
create or replace function onceward.nearest_task(p_task text)
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select n.name
    from (select t.name from onceward.task_private as t
           where t.name <> p_task and abs(length(t.name) - length(p_task)) <= 5
           order by t.last_seen_at desc limit 200) as n
   cross join lateral (select onceward.edit_distance(lower(n.name), lower(p_task)) as d) as e
   where e.d <= greatest(2, length(p_task) / 3)
   order by e.d, n.name
   limit 1
$$;

-- How many letters have to be put in, left out or changed.
create or replace function onceward.edit_distance(p_a text, p_b text)
  returns integer
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_b    text[] := string_to_array(p_b, null);
  v_row  integer[] := array(select g from generate_series(0, length(p_b)) as g);
  v_left integer;
  v_diag integer;
  v_up   integer;
  v_char text;
begin
  for v_i in 1 .. length(p_a) loop
    v_char := substr(p_a, v_i, 1);
    v_diag := v_row[1];
    v_left := v_i;
    v_row[1] := v_i;
    for v_j in 1 .. length(p_b) loop
      v_up := v_row[v_j + 1];
      v_left := least(v_left + 1, v_up + 1, v_diag + case when v_b[v_j] = v_char then 0 else 1 end);
      v_row[v_j + 1] := v_left;
      v_diag := v_up;
    end loop;
  end loop;
  return v_row[length(p_b) + 1];
end;
$$;
