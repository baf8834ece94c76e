-- Explain, a job's turn in its lane; and a whole lane in one line.

-- Everything is there: a worker takes the job when its turn comes.
create or replace function onceward.why_turn(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  c_most  constant integer := 1000;
  v_ahead integer;
  v_busy  record;
begin
  if p_job.state <> 'ready'
     or exists (select from onceward.lane_private as l where l.name = p_job.lane and l.paused_at is not null)
     or not onceward.lane_knows(p_job.lane, p_job.task) then
    return;
  end if;
  v_ahead := onceward.ahead_of(p_job, c_most + 1);
  select * into v_busy from onceward.lane_busy(p_job.lane) as b;
  reason := 'turn';
  sentence := case
    when v_ahead = 0 and v_busy.running < v_busy.slots then
      format('Is the next in lane "%s", which has free slots: a worker takes it within about a second.', p_job.lane)
    when v_ahead = 0 then format('Is the next in lane "%s".  %s', p_job.lane, onceward.told_busy(v_busy.workers, v_busy.slots, v_busy.running, v_busy.tasks))
    else format('%s%s ahead of it in lane "%s".  %s', case when v_ahead > c_most then 'More than ' else '' end,
                onceward.counted(least(v_ahead, c_most), 'job') || case when v_ahead = 1 then ' is' else ' are' end, p_job.lane,
                onceward.told_busy(v_busy.workers, v_busy.slots, v_busy.running, v_busy.tasks)) end;
  detail := jsonb_build_object('lane', p_job.lane, 'priority', p_job.priority, 'ahead', least(v_ahead, c_most),
    'workers', v_busy.workers, 'slots', v_busy.slots, 'running', v_busy.running, 'busy_with', v_busy.tasks);
  next_step := case when v_busy.running >= v_busy.slots then 'Start more workers of the lane, or give the job a higher priority.' end;
  return next;
end;
$$;

-- How many ready jobs a claim takes before this one, counted up to a bound.  By the index of claims, in two ranges of it.
create or replace function onceward.ahead_of(p_job onceward.job_private, p_most integer)
  returns integer
  language sql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
  select count(*)
    from (select from (select from onceward.job_private as j
                        where j.lane = p_job.lane and j.state = 'ready' and j.priority > p_job.priority limit p_most) as higher
          union all
          select from (select from onceward.job_private as j
                        where j.lane = p_job.lane and j.state = 'ready' and j.priority = p_job.priority
                          and j.ready_seq < p_job.ready_seq limit p_most) as before
           limit p_most) as ahead
$$;

-- What the live workers of a lane do: of the jobs of others, only how many.
create or replace function onceward.lane_busy(p_lane text)
  returns table (workers integer, slots bigint, running bigint, tasks jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_live uuid[];
begin
  select array_agg(w.id), count(*), coalesce(sum(w.concurrency), 0) into v_live, workers, slots
    from onceward.worker_private as w
   where w.retired_at is null and w.expires_at > onceward.now() and p_lane = any (w.lanes);
  select coalesce(sum(t.n), 0), coalesce(jsonb_object_agg(t.task, t.n), '{}') into running, tasks
    from (select case when onceward.sees_tenant(j.tenant) then j.task else '(other tenants)' end as task, count(*) as n
            from (select r.tenant, r.task from onceward.job_private as r
                   where r.state = 'running' and r.worker_id = any (v_live) limit 10000) as j
           group by 1) as t;
  return next;
end;
$$;

create or replace function onceward.told_busy(p_workers integer, p_slots bigint, p_running bigint, p_tasks jsonb)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select format('The %s of the lane run%s %s of %s at once%s.', onceward.counted(p_workers, 'worker'),
                case when p_workers = 1 then 's' else '' end, p_running, p_slots,
                coalesce(', mostly ' || (select string_agg(format('%s %s', t.n, t.task), ', ' order by t.n desc, t.task)
                                           from (select e.key as task, e.value::text::bigint as n
                                                   from jsonb_each(p_tasks) as e order by 2 desc, 1 limit 3) as t), ''))
$$;

create or replace function onceward.explain_lane(p_lane text default null)
  returns table (lane text, reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_lane is not null and not exists (select from onceward.lane_private as l where l.name = p_lane) then
    perform onceward.no_such_lane(p_lane);
  end if;
  return query
    select l.name, r.*
      from onceward.lane_private as l
     cross join lateral onceward.reason_of_lane(l) as r
     where p_lane is null or l.name = p_lane
     order by l.name;
end;
$$;
comment on function onceward.explain_lane(text) is
  'One line per lane: paused and by whom, not served, waiting for a task that no worker knows, busy and with what, or idle.  Counts are of the jobs that the caller may see.';

-- The one line, from the look of it: what is ready (the first ten thousand), who works, what comes next.
create or replace function onceward.reason_of_lane(p_lane onceward.lane_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_look  record;
  v_busy  record;
  v_ready text;
begin
  select * into v_look from onceward.look_at_lane(p_lane.name) as k;
  select * into v_busy from onceward.lane_busy(p_lane.name) as b;
  v_ready := case when v_look.ready = 0 then 'nothing is ready'
                  else format('%s%s ready, the oldest due at %s', case when v_look.is_more then 'at least ' else '' end,
                              onceward.counted(v_look.ready, 'job') || case when v_look.ready = 1 then ' is' else ' are' end,
                              onceward.told(v_look.oldest_at)) end;
  detail := jsonb_build_object('ready', v_look.ready, 'oldest_at', v_look.oldest_at, 'next_run_at', v_look.next_at,
    'workers', v_busy.workers, 'slots', v_busy.slots, 'running', v_busy.running, 'busy_with', v_busy.tasks,
    'unknown_tasks', v_look.unknown);

  if p_lane.paused_at is not null then
    reason := 'lane_paused';
    sentence := format('Paused since %s by %s%s; %s.', onceward.told(p_lane.paused_at), p_lane.paused_by,
                       coalesce(': ' || onceward.told_text(p_lane.pause_reason), ''), v_ready);
    next_step := format('Open it with "onceward lane resume %s".', p_lane.name);
  elsif v_busy.workers = 0 then
    reason := 'no_worker';
    sentence := format('No live worker serves it; %s.', v_ready);
    next_step := format('Start one: "onceward worker package.module:app --lanes %s".', p_lane.name);
  elsif v_look.unknown_jobs > 0 and v_look.unknown_jobs >= v_look.ready then
    reason := 'no_worker_for_task';
    sentence := format('No live worker of the lane knows task "%s"; %s.', array_to_string(v_look.unknown, '", "'), v_ready);
    next_step := 'Deploy a worker with the task, or see "onceward job explain" of one of them.';
  elsif v_look.ready > 0 or v_busy.running > 0 then
    reason := case when v_busy.running >= v_busy.slots and v_look.ready > 0 then 'busy' else 'working' end;
    sentence := format('%s%s.  %s%s', upper(left(v_ready, 1)), substr(v_ready, 2),
                       onceward.told_busy(v_busy.workers, v_busy.slots, v_busy.running, v_busy.tasks),
                       case when v_look.unknown_jobs > 0 then format('  %s of tasks that no worker of the lane knows: %s.',
                              onceward.counted(v_look.unknown_jobs, 'job') || case when v_look.unknown_jobs = 1 then ' is' else ' are' end,
                              array_to_string(v_look.unknown, ', ')) else '' end);
    next_step := case when reason = 'busy' then 'If they wait too long, start more workers of the lane.' end;
  else
    reason := 'idle';
    sentence := format('Nothing is ready%s.', coalesce(', and the next job is due at ' || onceward.told(v_look.next_at), ''));
    until := v_look.next_at;
  end if;
  return next;
end;
$$;

-- What waits in a lane, as far as a bounded look shows.
create or replace function onceward.look_at_lane(p_lane text)
  returns table (ready bigint, is_more boolean, oldest_at timestamptz, unknown text[], unknown_jobs bigint, next_at timestamptz)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set jit = off
as $$
declare
  c_most constant integer := 10000;
begin
  select coalesce(sum(t.n) filter (where t.mine), 0), sum(t.n) >= c_most, min(t.oldest_at) filter (where t.mine),
         coalesce(array_agg(distinct t.task) filter (where t.mine and not k.known), '{}'),
         coalesce(sum(t.n) filter (where t.mine and not k.known), 0)
    into ready, is_more, oldest_at, unknown, unknown_jobs
    from (select f.task, onceward.sees_tenant(f.tenant) as mine, count(*) as n, min(f.run_at) as oldest_at
            from (select j.tenant, j.task, j.run_at from onceward.job_private as j
                   where j.lane = p_lane and j.state = 'ready'
                   order by j.priority desc, j.ready_seq
                   limit c_most) as f
           group by f.task, f.tenant) as t
   cross join lateral (select onceward.lane_knows(p_lane, t.task) as known) as k;
  next_at := (select min(f.run_at)
                from (select j.tenant, j.lane, j.run_at from onceward.job_private as j
                       where j.state = 'scheduled' and j.run_at < timestamptz '9999-01-01 00:00:00+00'
                       order by j.run_at
                       limit c_most) as f
               where f.lane = p_lane and onceward.sees_tenant(f.tenant));
  return next;
end;
$$;
