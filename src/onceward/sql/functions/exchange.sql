-- Finish a set and claim the next, in one round trip.  Safe to repeat: a job that this epoch has already
-- finished counts as finished.  Returns claimed jobs, and a row for each finish that came too late
-- (outcome `lost`), and one row `expired` when the worker's own lease is over and it may claim nothing.
-- For a lane that has lines (see lines.sql) there is a row `lines`: the line of the last turn, which the worker hands in
-- with p_lines next time, and in payload when to look again.  Lines are looked for when the lane is looked at from the
-- beginning, and when the worker knows of some.  p_start: how many jobs can begin at once, as those with limits have to, and
-- those of a lane with a cap, whose places must not wait in a worker's hand.  When such a lane gives nothing there is a row
-- `lines`, too: its payload says that the lane is full ({"full": true}), or when to look again because another worker was there.
-- Where a finish leaves a place of a concurrency key, and the lane has nothing else to give, the next job of the key comes with
-- the claimed ones; its ready_seq is 0, because it never stood in line.
create or replace function onceward.exchange(
  p_worker_id uuid,
  p_job_ids   uuid[] default '{}',
  p_epochs    bigint[] default '{}',
  p_results   jsonb[] default null,
  p_lanes     text[] default '{}',
  p_limits    integer[] default null,
  p_max       integer default 0,
  p_floors    jsonb default null,
  p_sleep     boolean default false,
  p_lines     jsonb default null,
  p_start     integer default null
)
  returns table (
    outcome text, job_id uuid, epoch bigint, task text, payload jsonb, lane text, priority smallint,
    ready_seq bigint, attempt integer, max_attempts integer, tenant text, timeout interval,
    headers jsonb, key text, line text
  )
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A caller's open transaction may hold the job for long; a worker has other things to do.
  set lock_timeout = '2s'
as $$
declare
  v_count  integer := 0;
  v_place  integer := 0;
  v_got    integer;
  v_most   integer;
  v_asleep timestamptz;
  v_live   boolean := false;
  v_name   text;
  v_lane   record;
  v_turns  boolean;
  v_end    record;
  -- Where the next jobs of concurrency keys are that begin at once, and how many have become ready.
  v_begun   tid[];
  v_readied integer;
  -- Whether there are free places of concurrency keys, and the lanes that have nothing else to give.
  v_places boolean := false;
  v_open   text[] := '{}';
begin
  if cardinality(p_job_ids) > 0 then
    v_end := onceward.finish_set(p_job_ids, p_epochs, p_results);
    v_places := v_end.keys is not null;
    if v_end.lost_ids is not null then
      return query
        select 'lost'::text, l.job_id, l.epoch, null::text, null::jsonb, null::text, null::smallint, null::bigint,
               null::integer, null::integer, null::text, null::interval, null::jsonb, null::text, null::text
          from unnest(v_end.lost_ids, v_end.lost_epochs) as l (job_id, epoch);
    end if;
  end if;

  if p_max > 0 then
    -- Lane by lane, because most workers serve one, and a join of them all costs three times as much.
    foreach v_name in array coalesce(p_lanes, '{}') loop
      exit when v_count >= p_max;
      v_place := v_place + 1;
      -- The lane, and what worker_is_live asks: each further statement is felt by a job that somebody waits for.
      select p.name, least(p_limits[v_place], p_max) as most, p_floors -> p.name as floors, onceward.now() - p.max_wait as overdue,
             p.audit = 'all' as audited, p.max_running, w.asleep_until
        into v_lane
        from onceward.lane_private as p
       cross join onceward.worker_private as w
       where p.name = v_name and p.paused_at is null
         and w.id = p_worker_id and w.retired_at is null and w.expires_at > onceward.now();
      if not found then
        exit when not onceward.worker_is_live(p_worker_id);
        v_live := true;
        continue;
      end if;
      v_live := true;
      v_asleep := v_lane.asleep_until;
      v_most := least(p_max - v_count, v_lane.most, case when v_lane.max_running is not null then coalesce(p_start, p_max) - v_count end);
      continue when v_most <= 0;
      v_turns := case when v_lane.floors is null then onceward.has_lines(v_lane.name) else coalesce(p_lines ? v_lane.name, false) end;
      if v_places and (v_turns or v_lane.max_running is not null) then
        -- Before the locks of a cap or of limits are taken: see the order of locks.
        perform onceward.let_in(v_end.tenants, v_end.keys, v_end.freed);
        v_places := false;
      end if;
      if v_lane.max_running is not null then
        v_most := onceward.lane_room(v_lane.name, v_most);
        if v_most is null or v_most <= 0 then
          select 'lines', v_lane.name, coalesce(p_lines -> v_lane.name ->> 'after', ''),
                 case when v_most is null then '{"next_in": 0.05}' else '{"full": true}' end::jsonb
            into outcome, lane, line, payload;
          return next;
          continue;
        end if;
      end if;
      if v_lane.audited then
        return query
          select case j.outcome when 'line' then 'lines' else j.outcome end, j.job_id, j.epoch, j.task, j.payload, j.lane, j.priority,
                 j.ready_seq, j.attempt, j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line
            from onceward.claim_audited(v_turns, p_worker_id, v_lane.name, v_most, coalesce(p_start, p_max) - v_count, v_lane.floors,
                                        p_lines -> v_lane.name, v_lane.overdue) as j;
      elsif v_turns then
        return query
          select case j.outcome when 'line' then 'lines' else j.outcome end, j.job_id, j.epoch, j.task, j.payload, j.lane, j.priority,
                 j.ready_seq, j.attempt, j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line
            from onceward.claim_shares(p_worker_id, v_lane.name, v_most, coalesce(p_start, p_max) - v_count, v_lane.floors,
                                       p_lines -> v_lane.name, v_lane.overdue) as j;
      else
        return query
          select j.outcome, j.job_id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt,
                 j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line
            from onceward.claim_lane(p_worker_id, v_lane.name, '', v_most, v_lane.floors, v_lane.overdue) as j;
      end if;
      get diagnostics v_got = row_count;
      -- The row that says where the turn is.
      v_got := v_got - v_turns::integer;
      if v_places and not v_turns and not v_lane.audited and v_got < v_most and v_lane.most >= p_max then
        v_open := v_open || v_lane.name;
      end if;
      v_count := v_count + v_got;
    end loop;
    if not v_live and not onceward.worker_is_live(p_worker_id) then
      if v_places then
        perform onceward.let_in(v_end.tenants, v_end.keys, v_end.freed);
      end if;
      outcome := 'expired';
      return next;
      return;
    end if;
  end if;

  if v_places then
    select l.begun, l.readied into v_begun, v_readied
      from onceward.let_in(v_end.tenants, v_end.keys, v_end.freed, v_open, p_max - v_count) as l;
    if v_begun <> '{}' then
      return query
        select j.outcome, j.job_id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt,
               j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line
          from onceward.begin_at(p_worker_id, v_begun) as j;
      v_count := v_count + cardinality(v_begun);
    end if;
    if v_readied > 0 and v_count < p_max then
      -- Nobody else may be awake: they are claimed as others are.
      return query
        select * from onceward.exchange(p_worker_id, p_lanes => p_lanes, p_limits => p_limits, p_max => p_max - v_count,
                                        p_lines => p_lines, p_start => p_start);
      get diagnostics v_got = row_count;
      v_count := v_count + v_got;
    end if;
  end if;

  -- Written when a worker falls asleep and renewed twice a minute, not at every empty poll.  Only a hint: whoever has
  -- the row locked may be waiting for a job that was finished above.
  if p_sleep and v_count = 0 and (v_asleep is null or v_asleep < onceward.now() + interval '30 seconds') then
    update onceward.worker_private as w
       set asleep_until = onceward.now() + interval '1 minute'
     where w.id = (select f.id from onceward.worker_private as f
                    where f.id = p_worker_id
                      and (f.asleep_until is null or f.asleep_until < onceward.now() + interval '30 seconds')
                      for update skip locked);
  elsif not p_sleep and v_count > 0 and v_count >= p_max and v_asleep is not null then
    update onceward.worker_private as w
       set asleep_until = null
     where w.id = (select f.id from onceward.worker_private as f
                    where f.id = p_worker_id and f.asleep_until is not null
                      for update skip locked);
  end if;
end;
$$;
comment on function onceward.exchange(uuid, uuid[], bigint[], jsonb[], text[], integer[], integer, jsonb, boolean, jsonb, integer) is
  'Finishes a set of jobs as done and claims the next, in one round trip.  Finishes that came too late are returned with outcome lost.';
