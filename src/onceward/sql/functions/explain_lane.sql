-- Explain, a job's turn in its lane; and a whole lane in one line.

-- Everything is there: a worker takes the job when its turn comes.
create or replace function onceward.why_turn(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  c_most  constant integer := 1000;
  v_ahead integer;
  v_busy  record;
  v_lines record;
  v_place text;
  v_full  boolean := onceward.lane_full(p_job.lane) is not null;
begin
  if p_job.state <> 'ready'
     or exists (select from onceward.lane_private as l where l.name = p_job.lane and l.paused_at is not null)
     or not onceward.lane_knows(p_job.lane, p_job.task) then
    return;
  end if;
  v_ahead := onceward.ahead_of(p_job, c_most + 1);
  if v_ahead = 0 and (v_full or exists (select from onceward.stops_of_line(p_job.lane, p_job.line))) then
    -- It waits for a place or a limit, and for nobody ahead of it.
    return;
  end if;
  select * into v_busy from onceward.lane_busy(p_job.lane) as b;
  select * into v_lines from onceward.lines_beside(p_job, 100) as b;
  reason := case when v_lines.tenants > 0 then 'tenant_turn' else 'turn' end;
  v_place := format(case when v_lines.tenants > 0 then 'its tenant''s line in lane "%s"'
                         when v_lines.lines > 0 then 'its line in lane "%s"' else 'lane "%s"' end, p_job.lane);
  sentence := case
    when v_ahead = 0 and v_busy.running < v_busy.slots then
      format('Is the next in %s, which has free slots: a worker takes it within about a second.', v_place)
    else concat_ws('  ',
      case when v_ahead = 0 then format('Is the next in %s.', v_place)
           else format('%s%s ahead of it in %s.', case when v_ahead > c_most then 'More than ' else '' end,
                       onceward.counted(least(v_ahead, c_most), 'job') || case when v_ahead = 1 then ' is' else ' are' end, v_place) end,
      onceward.told_lines(v_lines.lines, v_lines.tenants, 100),
      onceward.told_busy(v_busy.workers, v_busy.slots, v_busy.running, v_busy.tasks)) end;
  detail := jsonb_build_object('lane', p_job.lane, 'priority', p_job.priority, 'ahead', least(v_ahead, c_most),
    'workers', v_busy.workers, 'slots', v_busy.slots, 'running', v_busy.running, 'busy_with', v_busy.tasks,
    'other_lines', v_lines.lines, 'other_tenants', v_lines.tenants,
    'share', coalesce((select s.share from onceward.share_private as s where s.lane = p_job.lane and s.tenant = p_job.tenant), 1));
  next_step := case when v_full or v_busy.running < v_busy.slots then null
                    when v_lines.tenants > 0 then format('Start more workers of the lane, or give the tenant more turns: "onceward lane share %s".', p_job.lane)
                    else 'Start more workers of the lane, or give the job a higher priority.' end;
  return next;
end;
$$;

-- Null when there is one line only.
create or replace function onceward.told_lines(p_lines integer, p_tenants integer, p_most integer)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case when p_tenants > 0 then format('It takes turns with %s%s, whose jobs wait there, too.',
                                             case when p_lines >= p_most then 'at least ' else '' end,
                                             onceward.counted(p_tenants, 'other tenant'))
              when p_lines > 0 then format('It takes turns with %s of jobs that use other limits, or none.', onceward.counted(p_lines, 'line')) end
$$;

-- How many ready jobs of its line a claim takes before this one, counted up to a bound.  By the index of claims, in two ranges of it.
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
                        where j.lane = p_job.lane and j.line = p_job.line and j.state = 'ready' and j.priority > p_job.priority limit p_most) as higher
          union all
          select from (select from onceward.job_private as j
                        where j.lane = p_job.lane and j.line = p_job.line and j.state = 'ready' and j.priority = p_job.priority
                          and j.ready_seq < p_job.ready_seq limit p_most) as before
           limit p_most) as ahead
$$;

-- What the live workers of a lane do: of the jobs of others, only how many.
create or replace function onceward.lane_busy(p_lane text)
  returns table (workers integer, slots bigint, running bigint, tasks jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
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
  set jit = off
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
  set jit = off
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
  'One line per lane: paused and by whom, not served, waiting for a task that no worker knows, full, busy and with what, or idle.  Counts are of the jobs that the caller may see.';

-- The one line, from the look of it: what is ready (the first two thousand), who works, what comes next.
create or replace function onceward.reason_of_lane(p_lane onceward.lane_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_look  record;
  v_busy  record;
  v_stop  record;
  v_ready text;
  v_full  text := onceward.told_pressure(p_lane.name);
begin
  select * into v_look from onceward.look_at_lane(p_lane.name) as k;
  select * into v_busy from onceward.lane_busy(p_lane.name) as b;
  select * into v_stop from onceward.stops_of_lane(p_lane.name) as s;
  v_ready := case when v_look.ready = 0 then 'nothing is ready'
                  else format('%s%s ready, the oldest due at %s', case when v_look.is_more then 'at least ' else '' end,
                              onceward.counted(v_look.ready, 'job') || case when v_look.ready = 1 then ' is' else ' are' end,
                              onceward.told(v_look.oldest_at)) end;
  detail := jsonb_build_object('ready', v_look.ready, 'oldest_at', v_look.oldest_at, 'next_run_at', v_look.next_at,
    'workers', v_busy.workers, 'slots', v_busy.slots, 'running', v_busy.running, 'busy_with', v_busy.tasks,
    'unknown_tasks', v_look.unknown, 'lines', v_stop.lines, 'lines_without_room', v_stop.stopped, 'limits', v_stop.limits,
    'pressure', v_full, 'max_running', p_lane.max_running);

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
  elsif v_look.ready > 0 and onceward.lane_full(p_lane.name) is not null then
    reason := 'lane_full';
    sentence := format('Full: %s of at most %s run; %s.', onceward.lane_running(p_lane.name, 100000), p_lane.max_running, v_ready);
    next_step := format('If they wait too long, raise the cap with "onceward lane set %s --max-running".', p_lane.name);
  elsif v_look.ready > 0 and v_stop.stopped > 0 and v_stop.stopped = v_stop.lines then
    reason := 'waits_for_limit';
    sentence := format('%s%s, and all of it waits for %s%s.', upper(left(v_ready, 1)), substr(v_ready, 2), v_stop.told,
                       coalesce('; there is room at ' || onceward.told(v_stop.next_at), ''));
    until := v_stop.next_at;
    next_step := format('See "onceward limit show %s".', v_stop.limits ->> 0);
  elsif v_look.ready > 0 or v_busy.running > 0 then
    reason := case when v_busy.running >= v_busy.slots and v_look.ready > 0 then 'busy' else 'working' end;
    sentence := format('%s%s.  %s%s', upper(left(v_ready, 1)), substr(v_ready, 2),
                       onceward.told_busy(v_busy.workers, v_busy.slots, v_busy.running, v_busy.tasks),
                       case when v_look.unknown_jobs > 0 then format('  %s of tasks that no worker of the lane knows: %s.',
                              onceward.counted(v_look.unknown_jobs, 'job') || case when v_look.unknown_jobs = 1 then ' is' else ' are' end,
                              array_to_string(v_look.unknown, ', ')) else '' end
                       || case when v_stop.stopped > 0 then format('  %s of %s %s for %s.', v_stop.stopped,
                              onceward.counted(v_stop.lines, 'line'), case when v_stop.stopped = 1 then 'waits' else 'wait' end,
                              v_stop.told) else '' end);
    next_step := case when reason = 'busy' then 'If they wait too long, start more workers of the lane.' end;
  else
    reason := 'idle';
    sentence := format('Nothing is ready%s.', coalesce(', and the next job is due at ' || onceward.told(v_look.next_at), ''));
    until := v_look.next_at;
  end if;
  sentence := concat_ws('  ', sentence, v_full);
  return next;
end;
$$;

-- Which lines of a lane find no room in their limits, among the first hundred that the caller may see.
create or replace function onceward.stops_of_lane(
  p_lane text, out lines integer, out stopped integer, out limits jsonb, out told text, out next_at timestamptz
)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  with line as materialized (
    select l.line from unnest(onceward.lines_to_look_at(p_lane)) as l (line)
     where (onceward.has_no_tenant(l.line) or onceward.sees_tenant(onceward.tenant_of_line(l.line)))
       and onceward.depth_of_line(p_lane, l.line, 1) > 0
  ), stop as materialized (
    select l.line, s.* from line as l cross join lateral onceward.stops_of_line(p_lane, l.line) as s
  )
  select (select count(*) from line), (select count(distinct s.line) from stop as s),
         coalesce((select jsonb_agg(distinct s.limit_name) from stop as s), '[]'),
         -- The first that opens; the others only by their number.
         (select onceward.told_stop(f.limit_name, case when onceward.sees_tenant(f.key) then f.key else '' end, f.why, f.detail)
            from stop as f order by f.next_at nulls last, f.limit_name, f.key limit 1)
         || case when (select count(distinct (s.limit_name, s.key)) from stop as s) > 1
                 then format(' and %s others', (select count(distinct (s.limit_name, s.key)) - 1 from stop as s)) else '' end,
         (select min(s.next_at) from stop as s)
    into lines, stopped, limits, told, next_at;
end;
$$;

-- What an enqueue is answered at the moment, if anything but yes.  Null when all is well.
create or replace function onceward.told_pressure(p_lane text)
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case f.over when 'reject' then 'New jobs are refused: ' when 'defer' then 'New jobs are put off: ' else 'Its bound is passed: ' end
         || f.reason || '.'
    from (select b.over, p.reason from onceward.bound_private as b
            join onceward.pressure_private as p
              on p.kind = 'lane' and p.name = b.lane and (p.part = b.tenant or (b.tenant = '*' and p.part <> ''))
           where b.lane = p_lane and p.reason is not null and p.measured_at > onceward.now() - interval '1 minute'
             and (p.part = '' or onceward.sees_tenant(p.part))
           order by array_position(array['reject', 'defer', 'signal'], b.over), p.part
           limit 1) as f
$$;

-- Of no tenant: the main line, and lines of lanes in which tenants do not stand apart.
create or replace function onceward.has_no_tenant(p_line text)
  returns boolean
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$ select split_part(p_line, chr(31), 1) = '' $$;

-- The first hundred lines of a lane; for a session of one tenant, its own before all others.
create or replace function onceward.lines_to_look_at(p_lane text)
  returns text[]
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case when t.tenant is null then onceward.lines_of(p_lane, null, 100)
              else array_prepend(t.tenant, array_remove(onceward.lines_of(p_lane, t.tenant, 100), t.tenant)) end
    from (select nullif(onceward.current_tenant(), '*') as tenant) as t
$$;

-- What waits in a lane, as far as a bounded look shows: line by line, each as far as its part of the bound.
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
  c_most  constant integer := 2000;
  v_lines text[] := onceward.lines_to_look_at(p_lane);
  v_each  integer := c_most / cardinality(v_lines);
begin
  select coalesce(sum(t.n) filter (where t.mine), 0), coalesce(max(t.of_line), 0) >= v_each or cardinality(v_lines) >= 100, min(t.oldest_at) filter (where t.mine),
         coalesce(array_agg(distinct t.task) filter (where t.mine and not k.known), '{}'),
         coalesce(sum(t.n) filter (where t.mine and not k.known), 0)
    into ready, is_more, oldest_at, unknown, unknown_jobs
    from (select f.task, onceward.sees_tenant(f.tenant) as mine, count(*) as n, min(f.run_at) as oldest_at,
                 sum(count(*)) over (partition by l.line) as of_line
            from unnest(v_lines) as l (line)
           cross join lateral (
             select j.tenant, j.task, j.run_at from onceward.job_private as j
              where j.lane = p_lane and j.line = l.line and j.state = 'ready'
              order by j.priority desc, j.ready_seq
              limit v_each) as f
           group by l.line, f.task, f.tenant) as t
   cross join lateral (select onceward.lane_knows(p_lane, t.task) as known) as k;
  -- The first that is found, and not the least of all: those behind it are not looked at.
  next_at := (select f.run_at
                from (select j.tenant, j.lane, j.run_at from onceward.job_private as j
                       where j.state = 'scheduled' and j.run_at < timestamptz '9999-01-01 00:00:00+00'
                       order by j.run_at
                       limit c_most) as f
               where f.lane = p_lane and onceward.sees_tenant(f.tenant)
               order by f.run_at
               limit 1);
  return next;
end;
$$;
