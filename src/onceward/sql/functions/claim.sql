-- Claim ready jobs for a worker.  Each claim raises the job's epoch; every later write must name it.

-- One line of a lane, at most p_max jobs; priority first, then the order in which they became ready.
-- p_floors: {"priority": ready_seq, ...} bounds the scan from below, so that index entries of jobs that are
-- gone but cannot be vacuumed yet are not walked again and again.  Null looks from the beginning, and then at
-- p_overdue: jobs that were due before it are not passed over for higher priorities, as far as a quarter of p_max goes.
-- The planner is pinned: a claim must take what was asked for by the index, whatever the statistics say.  Places are picked by
-- one statement and changed by another, because to begin an update costs more than to find that there is nothing.
create or replace function onceward.claim_lane(
  p_worker_id uuid,
  p_lane      text,
  p_line      text,
  p_max       integer,
  p_floors    jsonb,
  p_overdue   timestamptz
)
  returns setof onceward.claimed
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_indexscan = on
  set enable_nestloop = on
  set enable_tidscan = on
  set plan_cache_mode = force_generic_plan
  -- Until 17, a plan with a switched-off node seems so dear that it would be compiled each time.
  set jit = off
as $$
declare
  v_now    timestamptz := onceward.now();
  v_left   integer := p_max;
  v_late   integer;
  v_count  integer;
  v_high   smallint;
  v_floor  record;
  v_places tid[];
begin
  if p_floors is null then
    -- Of four jobs one: a claim of a single job takes an overdue one every fourth time.
    v_late := case when p_overdue is null then 0 else floor(p_max / 4.0 + random())::integer end;
    for v_round in 1 .. 2 loop
      v_places := array(
        select j.ctid
          from onceward.job_private as j
         where j.lane = p_lane
           and j.line = p_line
           and j.state = 'ready'
           and (j.expires_at is null or j.expires_at > v_now)
         order by j.priority desc, j.ready_seq
         limit v_left - v_late
           for update skip locked);
      if v_late > 0 and cardinality(v_places) = v_left - v_late then
        -- The highest priority there is; null when nothing was to be picked.
        v_high := (select j.priority from onceward.job_private as j where j.ctid = v_places[1]);
      end if;
      if v_places <> '{}' then
        return query
          update onceward.job_private as j
             set state = 'running', epoch = j.epoch + 1, attempt = j.attempt + 1,
                 worker_id = p_worker_id, started_at = v_now
            from unnest(v_places) as u (place)
           where j.ctid = u.place
          returning 'claimed'::text, j.id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt,
                    j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line, j.uses;
      end if;
      v_left := v_left - cardinality(v_places);
      -- Who got less than that has left nobody behind.
      exit when v_late = 0 or v_left > v_late;
      return query select * from onceward.claim_overdue(p_worker_id, p_lane, p_line, v_late, p_overdue, v_high);
      get diagnostics v_count = row_count;
      v_left := v_left - v_count;
      exit when v_left = 0;
      v_late := 0;
    end loop;
    return;
  end if;

  for v_floor in
    select f.key::smallint as priority, f.value::bigint as ready_seq
      from jsonb_each_text(p_floors) as f
     order by 1 desc
  loop
    v_places := array(
      select j.ctid
        from onceward.job_private as j
       where j.lane = p_lane
         and j.line = p_line
         and j.state = 'ready'
         and j.priority = v_floor.priority
         and j.ready_seq > v_floor.ready_seq
         and (j.expires_at is null or j.expires_at > v_now)
       order by j.ready_seq
       limit v_left
         for update skip locked);
    if v_places <> '{}' then
      return query
        update onceward.job_private as j
           set state = 'running', epoch = j.epoch + 1, attempt = j.attempt + 1,
               worker_id = p_worker_id, started_at = v_now
          from unnest(v_places) as u (place)
         where j.ctid = u.place
        returning 'claimed'::text, j.id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt,
                  j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line, j.uses;
    end if;
    v_left := v_left - cardinality(v_places);
    exit when v_left <= 0;
  end loop;
end;
$$;

-- Jobs of lower priorities than p_high that were due before p_overdue: the lowest priority first, p_max at most.
-- Priorities are found by a look into the index each, the first twenty of them.
create or replace function onceward.claim_overdue(
  p_worker_id uuid,
  p_lane      text,
  p_line      text,
  p_max       integer,
  p_overdue   timestamptz,
  p_high      smallint
)
  returns setof onceward.claimed
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now   timestamptz := onceward.now();
  v_left  integer := p_max;
  v_late  smallint[] := '{}';
  v_count integer;
  v_next  record;
begin
  -- The first below the highest: where all jobs have one priority, there is none, and nothing else to do.
  select j.priority, j.run_at into v_next from onceward.job_private as j
   where j.lane = p_lane and j.line = p_line and j.state = 'ready'
     -- Handed in by those who know it: to find it, entries of jobs that are gone have to be walked.
     and j.priority < coalesce(p_high, (select h.priority from onceward.job_private as h
                                         where h.lane = p_lane and h.line = p_line and h.state = 'ready'
                                         order by h.priority desc, h.ready_seq limit 1))
   order by j.priority desc, j.ready_seq limit 1;
  for v_look in 1 .. 20 loop
    exit when v_next.priority is null;
    if v_next.run_at < p_overdue then
      v_late := v_next.priority || v_late;
    end if;
    exit when v_look = 20;
    select j.priority, j.run_at into v_next from onceward.job_private as j
     where j.lane = p_lane and j.line = p_line and j.state = 'ready' and j.priority < v_next.priority
     order by j.priority desc, j.ready_seq limit 1;
  end loop;
  for i in 1 .. cardinality(v_late) loop
    exit when v_left <= 0;
    return query
      with first_ones as materialized (
        select j.ctid as place, j.run_at
          from onceward.job_private as j
         where j.lane = p_lane
           and j.line = p_line
           and j.state = 'ready'
           and j.priority = v_late[i]
           and (j.expires_at is null or j.expires_at > v_now)
         order by j.ready_seq
         limit greatest(1, v_left / (cardinality(v_late) - i + 1))
           for update skip locked
      )
      update onceward.job_private as j
         set state = 'running', epoch = j.epoch + 1, attempt = j.attempt + 1,
             worker_id = p_worker_id, started_at = v_now
        from first_ones as f
       where j.ctid = f.place and f.run_at < p_overdue
      returning 'claimed'::text, j.id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt,
                j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line, j.uses;
    get diagnostics v_count = row_count;
    v_left := v_left - v_count;
  end loop;
end;
$$;

-- For workers that call claim: where the turn is among the lines is kept in the worker's own row.
create or replace function onceward.claim_lanes(p_worker_id uuid, p_lanes text[], p_max integer)
  returns setof onceward.claimed
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_left  integer := p_max;
  v_most  integer;
  v_turns jsonb;
  v_lined boolean;
  v_after jsonb;
  v_lane  record;
  v_job   onceward.claimed;
begin
  for v_lane in
    select l.name, onceward.now() - p.max_wait as overdue, p.audit = 'all' as audited, p.max_running
      from unnest(p_lanes) with ordinality as l (name, i)
      join onceward.lane_private as p on p.name = l.name and p.paused_at is null
     order by l.i
  loop
    exit when v_left <= 0;
    v_most := v_left;
    if v_lane.max_running is not null then
      v_most := coalesce(onceward.lane_room(v_lane.name, v_left), 0);
      continue when v_most <= 0;
    end if;
    v_lined := onceward.has_lines(v_lane.name);
    if v_lined then
      v_turns := coalesce(v_turns, (select coalesce(w.turns, '{}') from onceward.worker_private as w where w.id = p_worker_id));
      v_after := jsonb_build_object('after', v_turns -> v_lane.name);
    end if;
    for v_job in
      select * from onceward.claim_audited(v_lined, p_worker_id, v_lane.name, v_most, v_most, null, v_after, v_lane.overdue)
       where v_lane.audited
      union all
      select * from onceward.claim_shares(p_worker_id, v_lane.name, v_most, v_most, null, v_after, v_lane.overdue)
       where v_lined and not v_lane.audited
      union all
      select * from onceward.claim_lane(p_worker_id, v_lane.name, '', v_most, null, v_lane.overdue)
       where not v_lined and not v_lane.audited
    loop
      if v_job.outcome = 'line' then
        v_turns := v_turns || jsonb_build_object(v_lane.name, v_job.line);
      else
        v_left := v_left - 1;
        return next v_job;
      end if;
    end loop;
  end loop;
  if v_turns is not null then
    update onceward.worker_private as w
       set turns = v_turns
     where w.id = (select f.id from onceward.worker_private as f
                    where f.id = p_worker_id and f.turns is distinct from v_turns
                      for update skip locked);
  end if;
end;
$$;

create or replace function onceward.claim(
  p_worker_id uuid,
  p_lanes     text[] default array['default'],
  p_max       integer default 1
)
  returns table (
    job_id uuid, epoch bigint, task text, payload jsonb, lane text, priority smallint, ready_seq bigint,
    attempt integer, max_attempts integer, tenant text, timeout interval, headers jsonb,
    key text, line text
  )
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_lane  text;
  v_count integer;
begin
  if p_max is null or p_max not between 1 and 10000 then
    perform onceward.bad_argument('max', p_max::text, 'must be between 1 and 10000');
  end if;
  if p_lanes is null or cardinality(p_lanes) = 0 then
    perform onceward.bad_argument('lanes', p_lanes::text, 'must name at least one lane');
  end if;
  select n into v_lane from unnest(p_lanes) as n
   where not exists (select from onceward.lane_private as l where l.name = n) limit 1;
  if found then
    perform onceward.no_such_lane(v_lane);
  end if;
  if not onceward.worker_is_live(p_worker_id) then
    perform onceward.no_such_worker(p_worker_id);
  end if;

  -- Twice: due and admissible jobs become ready only when the ready ones have run out.
  for v_round in 1 .. 2 loop
    return query
      select j.job_id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt, j.max_attempts,
             j.tenant, j.timeout, j.headers, j.key, j.line
        from onceward.claim_lanes(p_worker_id, p_lanes, p_max) as j;
    get diagnostics v_count = row_count;
    p_max := p_max - v_count;
    exit when p_max <= 0 or v_round = 2;
    -- Not bounded by p_max: jobs that turn out to wait for their key must not hide one that does not.
    exit when (select p.promoted from onceward.promote() as p) = 0;
  end loop;
end;
$$;
comment on function onceward.claim(uuid, text[], integer) is
  'Claims up to p_max ready jobs of these lanes for a registered worker.  Each claim raises the epoch that every later write of this attempt must name.';

-- Jobs that this worker holds and does not know of, because the reply to a claim was lost.
create or replace function onceward.adopt(p_worker_id uuid, p_known uuid[])
  returns table (
    job_id uuid, epoch bigint, task text, payload jsonb, lane text, priority smallint, ready_seq bigint,
    attempt integer, max_attempts integer, tenant text, timeout interval, headers jsonb,
    key text, line text
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select j.id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt, j.max_attempts,
         j.tenant, j.timeout, j.headers, j.key, j.line
    from onceward.job_private as j
   where j.state = 'running' and j.worker_id = p_worker_id and j.id <> all (coalesce(p_known, '{}'))
$$;
comment on function onceward.adopt(uuid, uuid[]) is
  'The running jobs of this worker that are not in p_known: after a lost reply, the worker goes on with them.';
