-- Letting jobs in that wait for a place of their concurrency key.
-- The row in concurrency_private is the lock; a job holds its place from ready until it stops running.
-- Called by what workers call, once in a transaction and last: callers' transactions must not hold these locks.

-- Let waiting jobs of these keys in, as far as each key has room.  p_keys: [[tenant, key], ...].  Returns how many.
create or replace function onceward.admit(p_keys jsonb)
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenants text[];
  v_keys    text[];
begin
  select array_agg(d.tenant), array_agg(d.key) into v_tenants, v_keys
    from (select distinct k ->> 0 as tenant, k ->> 1 as key from jsonb_array_elements(p_keys) as k order by 1, 2) as d;
  perform onceward.add_key_locks(v_tenants, v_keys);
  return (select l.readied from onceward.let_in(v_tenants, v_keys) as l);
end;
$$;

create or replace function onceward.add_key_locks(p_tenants text[], p_keys text[])
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  insert into onceward.concurrency_private (tenant, concurrency_key)
  select k.tenant, k.key
    from unnest(p_tenants, p_keys) as k (tenant, key)
   where not exists (select from onceward.concurrency_private as c where c.tenant = k.tenant and c.concurrency_key = k.key)
   -- As let_in locks them.
   order by k.tenant collate "C", k.key collate "C"
      on conflict do nothing
$$;

-- Lock the rows of these keys, in order.  Returns how many there are.
create or replace function onceward.lock_keys(p_tenants text[], p_keys text[])
  returns bigint
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_bitmapscan = off
  set enable_indexscan = on
  set enable_nestloop = on
  set jit = off
as $$
  select count(*)
    from (select from unnest(p_tenants, p_keys) as k (tenant, key)
            join onceward.concurrency_private as c on c.tenant = k.tenant and c.concurrency_key = k.key
           order by c.tenant, c.concurrency_key
             for update of c) as locked
$$;

-- The same for keys whose rows are there, each named once.  Returns how many jobs were made ready.
-- p_freed: how many places of each key this transaction has given back.  If they are all the room that the key has, and there
-- is somebody for each, the places change hands in one transaction: whoever counts sees the old holder or the new one, and
-- no lock is needed.  Otherwise, and without p_freed, places are counted under the lock.
-- p_lanes, p_room: the caller has a worker with room for that many more jobs of lanes where nothing else is ready, and begins
-- those at the places `begun`, which are locked, without a turn in the line: to be made ready and then claimed would cost as
-- much again.
create or replace function onceward.let_in(
  p_tenants   text[],
  p_keys      text[],
  p_freed     integer[] default null,
  p_lanes     text[] default '{}',
  p_room      integer default 0,
  out begun   tid[],
  out readied integer
)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  -- Key by key through the index, whatever the statistics of an empty table say.
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  -- A plain index scan also marks the entries of jobs that are gone, so that the next one skips them; and in its order, the
  -- first job that waits is found without reading all that wait.
  set enable_bitmapscan = off
  set enable_sort = off
  set enable_indexscan = on
  set enable_indexonlyscan = on
  set enable_nestloop = on
  set enable_tidscan = on
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_now     timestamptz := onceward.now();
  v_tenants text[] := p_tenants;
  v_keys    text[] := p_keys;
  v_freed   integer[] := p_freed;
  v_count   bigint;
  -- Where the jobs are that become ready.
  v_ready   tid[] := '{}';
  v_round   record;
begin
  begun := '{}';
  readied := 0;
  -- Counting needs a fresh snapshot after the lock; with an older one, leave it to the next promote.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform onceward.ask_admission(k.tenant, k.key) from unnest(p_tenants, p_keys) as k (tenant, key);
    return;
  end if;
  loop
    if v_freed is null then
      v_count := onceward.lock_keys(v_tenants, v_keys);
      if v_count = 0 then
        -- All were tidied away.
        perform onceward.add_key_locks(v_tenants, v_keys);
        v_count := onceward.lock_keys(v_tenants, v_keys);
      end if;
      -- To make a row again that was tidied away, while holding others, would break the order of locks.
      if v_count < cardinality(v_keys) then
        perform onceward.ask_admission(k.tenant, k.key) from unnest(v_tenants, v_keys) as k (tenant, key);
        exit;
      end if;
    end if;

    with first_ones as materialized (
      -- The first that waits for each key; its limit is the one that counts.
      select k.tenant, k.key, k.freed, k.hash, w.place, w.may_begin,
             w.concurrency_limit - case when w.place is not null then (
               select count(*)::integer from onceward.job_private as h
                -- Ready or running, and no other state lies between them: one walk through the index instead of two.
                where h.concurrency_hash = k.hash and h.state between 'ready' and 'running' and h.awaits is null
                  and h.tenant = k.tenant and h.concurrency_key = k.key) end as room
        from (select u.tenant, u.key, u.freed, hashtextextended(u.tenant || E'\x1f' || u.key, 0) as hash
                from unnest(v_tenants, v_keys, v_freed) as u (tenant, key, freed)) as k
        left join lateral (
          select j.ctid as place, j.concurrency_limit,
                 j.lane = any (p_lanes) and j.line = '' and (j.expires_at is null or j.expires_at > v_now) as may_begin
            from onceward.job_private as j
           where j.concurrency_hash = k.hash and j.state = 'blocked' and j.awaits is null
             and j.tenant = k.tenant and j.concurrency_key = k.key
           order by j.priority desc, j.id
           limit 1
             for update skip locked) as w on true
    ), chosen as materialized (
      select f.*, case when f.room > 1 and f.room = coalesce(f.freed, f.room) then array(
               select j.ctid from onceward.job_private as j
                where j.concurrency_hash = f.hash and j.state = 'blocked' and j.awaits is null
                  and j.tenant = f.tenant and j.concurrency_key = f.key and j.ctid <> f.place
                order by j.priority desc, j.id
                limit f.room - 1
                  for update skip locked) else '{}' end as others
        from first_ones as f
    ), judged as materialized (
      select c.*, c.place is null or c.room > 1 + cardinality(c.others) as is_short,
             c.freed is null or coalesce(c.room = c.freed and c.room = 1 + cardinality(c.others), false) as is_settled
        from chosen as c
    )
    select array_agg(c.place) filter (where c.is_settled and c.room > 0 and c.may_begin) as begun,
           array_agg(c.place) filter (where c.is_settled and c.room > 0 and not c.may_begin) as ready,
           array(select unnest(o.others) from judged as o where o.is_settled and o.others <> '{}') as others,
           array_agg(c.tenant) filter (where c.is_short or not c.is_settled) as tenants,
           array_agg(c.key) filter (where c.is_short or not c.is_settled) as keys
      into v_round
      from judged as c;
    begun := begun || v_round.begun;
    v_ready := v_ready || v_round.ready || v_round.others;
    exit when v_round.keys is null;
    if v_freed is null then
      -- Somebody still waits: another transaction has the job locked, and may roll back.
      perform onceward.ask_admission(k.tenant, k.key)
         from unnest(v_round.tenants, v_round.keys) as k (tenant, key)
        where exists (select from onceward.job_private as b
                       where b.concurrency_hash = hashtextextended(k.tenant || E'\x1f' || k.key, 0) and b.state = 'blocked' and b.awaits is null
                         and b.tenant = k.tenant and b.concurrency_key = k.key);
      exit;
    end if;
    v_tenants := v_round.tenants;
    v_keys := v_round.keys;
    v_freed := null;
  end loop;

  if cardinality(begun) > p_room then
    v_ready := v_ready || begun[p_room + 1:];
    begun := begun[:p_room];
  end if;
  if v_ready <> '{}' then
    perform onceward.make_ready(v_ready);
    readied := cardinality(v_ready);
  end if;
end;
$$;

-- These blocked jobs, which the caller has locked, begin.
create or replace function onceward.begin_at(p_worker_id uuid, p_places tid[])
  returns setof onceward.claimed
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_nestloop = on
  set enable_tidscan = on
  set jit = off
as $$
  update onceward.job_private as j
     set state = 'running', ready_seq = nextval('onceward.ready_seq'), epoch = j.epoch + 1, attempt = j.attempt + 1,
         worker_id = p_worker_id, started_at = onceward.now()
    from unnest(p_places) as u (place)
   where j.ctid = u.place
  -- They never stood in line: their ready_seq bounds no later look.
  returning 'claimed'::text, j.id, j.epoch, j.task, j.payload, j.lane, j.priority, 0::bigint, j.attempt,
            j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line, j.uses
$$;

-- These blocked jobs, which the caller has locked, are ready; whoever sleeps is told.
create or replace function onceward.make_ready(p_places tid[])
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_lanes text[] := array(select distinct j.lane from onceward.job_private as j where j.ctid = any (p_places));
begin
  perform onceward.wake(v_lanes);
  if exists (select from onceward.lane_private as l where l.name = any (v_lanes) and l.audit = 'all') then
    insert into onceward.audit_private (at, kind, source, actor, role, tenant, job_id, before, after, meta)
    select onceward.now(), 'job.admitted', 'engine', onceward.actor(), onceward.caller(), j.tenant, j.id,
           '{"state": "blocked"}', '{"state": "ready"}', jsonb_build_object('lane', j.lane, 'task', j.task)
      from onceward.job_private as j
     where j.ctid = any (p_places)
       and exists (select from onceward.lane_private as l where l.name = j.lane and l.audit = 'all');
  end if;
  update onceward.job_private as j
     set state = 'ready', ready_seq = nextval('onceward.ready_seq')
    from unnest(p_places) as u (place)
   where j.ctid = u.place;
end;
$$;

-- Have the waiting jobs of a key looked at by the next promote.
create or replace function onceward.ask_admission(p_tenant text, p_key text)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$ insert into onceward.admission_private (tenant, concurrency_key) values (p_tenant, p_key) $$;

-- A job that held a place of its key has stopped running: let the next one in.
create or replace function onceward.give_place(p_job onceward.job_private)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_job.concurrency_key is not null then
    perform onceward.let_in(array[p_job.tenant], array[p_job.concurrency_key], array[1]);
  end if;
end;
$$;
