-- Lanes: where jobs wait, with a pause switch, caps on payloads, results and jobs at once, and rules about whose turn it is.
create or replace function onceward.add_lane(
  p_name              text,
  p_max_payload_bytes integer default null,
  p_max_result_bytes  integer default null,
  p_fair              boolean default null,
  p_max_wait          interval default null,
  p_max_running       integer default null
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_was  onceward.lane_private;
  v_lane onceward.lane_private;
begin
  if p_name is null or p_name !~ '^[A-Za-z0-9_.:-]{1,100}$' then
    perform onceward.bad_argument('lane', p_name, 'must be 1 to 100 letters, digits or . _ : -');
  end if;
  -- No address could name them all: . and .. mean the place itself, and the one above.
  if p_name ~ '^[.]+$' then
    perform onceward.bad_argument('lane', p_name, 'must not be dots alone');
  end if;
  if p_max_payload_bytes not between 1024 and 268435456 then
    perform onceward.bad_argument('max_payload_bytes', p_max_payload_bytes::text, 'must be between 1024 and 268435456');
  end if;
  if p_max_result_bytes not between 1024 and 268435456 then
    perform onceward.bad_argument('max_result_bytes', p_max_result_bytes::text, 'must be between 1024 and 268435456');
  end if;
  if p_max_wait < interval '0' or p_max_wait > interval '1 year' then
    perform onceward.bad_argument('max_wait', p_max_wait::text, 'must be between 0 (never) and 1 year');
  end if;
  if p_max_running not between 0 and 100000 then
    perform onceward.bad_argument('max_running', p_max_running::text, 'must be between 0 (no cap) and 100000');
  end if;
  select * into v_was from onceward.lane_private as l where l.name = p_name for update;
  insert into onceward.lane_private as l (name, max_payload_bytes, max_result_bytes, fair, max_wait, max_running, created_at)
  values (p_name, coalesce(p_max_payload_bytes, 262144), coalesce(p_max_result_bytes, 262144), coalesce(p_fair, true),
          nullif(coalesce(p_max_wait, interval '5 minutes'), interval '0'), nullif(p_max_running, 0), onceward.now())
      on conflict (name) do update
     set max_payload_bytes = coalesce(p_max_payload_bytes, l.max_payload_bytes),
         max_result_bytes  = coalesce(p_max_result_bytes, l.max_result_bytes),
         fair              = coalesce(p_fair, l.fair),
         max_wait          = nullif(coalesce(p_max_wait, l.max_wait), interval '0'),
         max_running       = nullif(coalesce(p_max_running, l.max_running), 0)
   where num_nonnulls(p_max_payload_bytes, p_max_result_bytes, p_fair, p_max_wait, p_max_running) > 0
  returning l.* into v_lane;
  if v_lane.name is null then
    return false;
  end if;
  if v_was.name is null then
    perform onceward.audit('lane.created', p_entity_type => 'lane', p_entity_id => p_name, p_after => onceward.lane_settings(v_lane));
  elsif v_was <> v_lane then
    perform onceward.audit('lane.changed', p_entity_type => 'lane', p_entity_id => p_name, p_before => c.before, p_after => c.after)
       from onceward.changed_settings(onceward.lane_settings(v_was), onceward.lane_settings(v_lane)) as c;
  end if;
  if v_was.max_running is not null and (v_lane.max_running is null or v_lane.max_running > v_was.max_running) then
    perform onceward.wake(array[p_name], ' opened');
  end if;
  return true;
end;
$$;
comment on function onceward.add_lane(text, integer, integer, boolean, interval, integer) is
  'Creates a lane, or changes an existing one: caps, whether tenants take turns (p_fair), how long a job may be passed over for higher priorities (p_max_wait; 0 for ever), and how many of its jobs run at once over all workers (p_max_running; 0 for any number).  Returns whether anything changed.';

-- What an application declares in code.  Reads first: in the normal case nothing is written or locked.
create or replace function onceward.declare_lanes(p_names text[])
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_name  text;
  v_added integer := 0;
begin
  for v_name in
    select n from unnest(p_names) as n
     where not exists (select from onceward.lane_private as l where l.name = n)
     order by n
  loop
    if onceward.add_lane(v_name) then
      v_added := v_added + 1;
    end if;
  end loop;
  return onceward.declared('lanes', v_added);
end;
$$;
comment on function onceward.declare_lanes(text[]) is 'Creates those of these lanes that do not exist.  Returns how many this transaction has created, with this call and before.';

-- How much a transaction has declared so far.  A caller that hears 0 knows that nothing of it hangs on this transaction, and
-- need not declare it again.  The setting ends with the transaction, and with a savepoint that is rolled back.
create or replace function onceward.declared(p_what text, p_count integer)
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_setting text := 'onceward.declared_' || p_what;
  v_count   integer := coalesce(nullif(current_setting(v_setting, true), '')::integer, 0) + p_count;
begin
  if p_count > 0 then
    perform set_config(v_setting, v_count::text, true);
  end if;
  return v_count;
end;
$$;

create or replace function onceward.no_such_lane(p_name text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_known text := (select string_agg(name, ', ' order by name) from (select name from onceward.lane_private order by name limit 20) as l);
begin
  raise exception 'lane "%" does not exist', onceward.shown(p_name)
    using errcode = 'OW002',
          detail  = format('Known lanes: %s.', v_known),
          hint    = case when p_name ~ '^[A-Za-z0-9_.:-]{1,100}$'
                         then format('Create it with "onceward lane add %s" or select onceward.add_lane(%L).', p_name, p_name)
                         else 'A lane has a name of 1 to 100 letters, digits or . _ : -' end;
end;
$$;

create or replace function onceward.pause_lane(p_name text, p_reason text default null)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update onceward.lane_private
     set paused_at = onceward.now(), paused_by = onceward.actor(), pause_reason = left(p_reason, 1000)
   where name = p_name and paused_at is null;
  if found then
    perform onceward.audit('lane.paused', p_entity_type => 'lane', p_entity_id => p_name,
      p_before => '{"paused": false}', p_after => '{"paused": true}', p_message => p_reason);
    return true;
  end if;
  if not exists (select from onceward.lane_private where name = p_name) then
    perform onceward.no_such_lane(p_name);
  end if;
  return false;
end;
$$;
comment on function onceward.pause_lane(text, text) is
  'Stops claims from a lane.  Running jobs go on.  Returns false when it was paused already.';

create or replace function onceward.resume_lane(p_name text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update onceward.lane_private
     set paused_at = null, paused_by = null, pause_reason = null
   where name = p_name and paused_at is not null;
  if found then
    perform onceward.audit('lane.resumed', p_entity_type => 'lane', p_entity_id => p_name,
      p_before => '{"paused": true}', p_after => '{"paused": false}');
    perform onceward.wake(array[p_name]);
    return true;
  end if;
  if not exists (select from onceward.lane_private where name = p_name) then
    perform onceward.no_such_lane(p_name);
  end if;
  return false;
end;
$$;
comment on function onceward.resume_lane(text) is 'Lets workers claim from a paused lane again.  Returns false when it was not paused.';

-- How many jobs of a lane run, over all workers, counted up to p_most.
-- By the index of running jobs, which are few, and not by an index of its own that every claim of every lane would pay for.
-- A plain index scan also marks the entries of jobs that are gone, so that the next one skips them.
create or replace function onceward.lane_running(p_lane text, p_most integer)
  returns integer
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return (select count(*)
            from (select from onceward.job_private as j
                   where j.state = 'running' and j.worker_id is not null and j.lane = p_lane
                   order by j.worker_id
                   limit p_most) as r);
end;
$$;

-- For how many of p_most more jobs a lane with a cap has room.  Null: somebody else is claiming there.
-- The row of the lane is locked until the claim is committed, so that nobody counts in between; and not waited for, because
-- two workers that take their lanes in different orders would wait for each other.
-- Volatile, and two statements: at READ COMMITTED each has a snapshot of its own, so that the count sees what the last holder of
-- the lock has committed.  In one statement, or in a stable function, it would be counted by a snapshot from before the lock.
create or replace function onceward.lane_room(p_lane text, p_most integer)
  returns integer
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_cap integer;
begin
  -- A stricter isolation level has one snapshot, which may be older than the lock.
  if current_setting('transaction_isolation') <> 'read committed' then
    return 0;
  end if;
  select l.max_running into v_cap from onceward.lane_private as l where l.name = p_lane for no key update skip locked;
  if not found then
    return null;
  elsif v_cap is null then
    -- The cap was removed meanwhile.
    return p_most;
  end if;
  return least(p_most, v_cap - onceward.lane_running(p_lane, v_cap));
end;
$$;

-- A hint for sleeping workers, at most one per lane and statement.  Polling is the guarantee.
-- p_why ends the message: ' opened' is for workers that know the lane as full, and do not listen to what is enqueued there.
create or replace function onceward.wake(p_lanes text[], p_why text default '')
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select pg_notify('onceward', l.lane || p_why)
    from (select distinct unnest(p_lanes) as lane) as l
   where exists (select from onceward.worker_private as w
                  where w.asleep_until > onceward.now() and w.retired_at is null and l.lane = any (w.lanes))
$$;

-- Jobs have come back into the line where others have passed them already: a hint for workers under load, which claim from
-- their floors on.  Without it they look from the beginning about once a second.
create or replace function onceward.call_back(p_worker_id uuid, p_lanes text[])
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select pg_notify('onceward', l.lane || ' returned')
    from (select distinct unnest(p_lanes) as lane) as l
   where exists (select from onceward.worker_private as w
                  where w.id <> p_worker_id and w.retired_at is null and w.asleep_until is null and l.lane = any (w.lanes))
$$;
