-- Promote: what waited for its time or for its key becomes ready.  Bounded; run by any worker, about once a second
-- and at the moment it returned as the next one due.
-- Rows are changed at the place where they were locked (ctid): with the statistics of a queue that had run empty, a join by
-- id reads the whole table.
create or replace function onceward.promote(p_limit integer default 1000)
  returns table (promoted integer, expired integer, next_run_at timestamptz, next_in interval, more boolean)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now   timestamptz := onceward.now();
  v_lanes text[];
  v_keys  jsonb;
  v_more  jsonb;
  v_again boolean;
  v_freed integer;
begin
  perform onceward.check_limit(p_limit);
  select r.more, r.freed into v_again, v_freed from onceward.recheck(p_limit) as r;
  select e.expired, e.keys into expired, v_keys from onceward.expire(p_limit) as e;

  with due as materialized (
    select j.ctid as place, j.id, j.run_at, j.concurrency_key
      from onceward.job_private as j
     where j.state = 'scheduled' and j.run_at <= v_now
     order by j.run_at
     limit p_limit
       for update skip locked
  ), numbered as materialized (
    select d.place, case when d.concurrency_key is null then nextval('onceward.ready_seq') end as seq
      from (select * from due order by run_at, id) as d
  ), moved as (
    update onceward.job_private as j
       set state     = case when n.seq is null then 'blocked' else 'ready' end,
           ready_seq = n.seq,
           awaits    = null
      from numbered as n
     where j.ctid = n.place
    returning j.id, j.state, j.lane, j.task, j.tenant, j.concurrency_key
  ), noted as (
    insert into onceward.audit_private (at, kind, source, actor, role, tenant, job_id, before, after, meta)
    select v_now, 'job.due', 'engine', onceward.actor(), onceward.caller(), m.tenant, m.id, '{"state": "scheduled"}',
           jsonb_build_object('state', m.state), jsonb_build_object('lane', m.lane, 'task', m.task)
      from moved as m
     where onceward.audits_all(m.lane)
  )
  select count(*) filter (where m.state = 'ready'), array_agg(distinct m.lane) filter (where m.state = 'ready'),
         jsonb_agg(distinct jsonb_build_array(m.tenant, m.concurrency_key)) filter (where m.state = 'blocked'),
         count(*) >= p_limit
    into promoted, v_lanes, v_more, more
    from moved as m;
  v_keys := v_keys || coalesce(v_more, '[]');
  promoted := promoted + v_freed;

  with asked as materialized (
    select a.id from onceward.admission_private as a
     order by a.id
     limit p_limit
       for update skip locked
  ), answered as (
    delete from onceward.admission_private as a
     using asked
     where a.id = asked.id
    returning a.tenant, a.concurrency_key
  )
  select jsonb_agg(distinct jsonb_build_array(a.tenant, a.concurrency_key)),
         more or v_again or expired >= p_limit or count(*) >= p_limit
    into v_more, more
    from answered as a;
  v_keys := v_keys || coalesce(v_more, '[]');

  -- All keys in one call, after every lock on a job: that is the order in which everybody takes them.
  if v_keys <> '[]' then
    promoted := promoted + onceward.admit(v_keys);
  end if;

  if v_lanes is not null then
    perform onceward.wake(v_lanes);
  end if;
  if exists (select from onceward.bound_private)
     or exists (select from onceward.limit_private as l where l.over = 'defer') then
    perform onceward.measure_pressure();
  end if;
  -- Not the day that does not come: see wait_event.
  next_run_at := (select min(j.run_at) from onceward.job_private as j
                   where j.state = 'scheduled' and j.run_at < timestamptz '9999-01-01 00:00:00+00');
  next_in := next_run_at - onceward.now();
  return next;
end;
$$;
comment on function onceward.promote(integer) is
  'Makes due scheduled jobs, admissible blocked jobs and those that need not wait any more ready, and cancels expired ones.  Returns how many, when the next scheduled job is due, and whether there is more to do at once.';

-- Let waiting jobs of these keys in, as far as each key has room.  p_keys: [[tenant, key], ...].
-- The row in concurrency_private is the lock; a job holds its place from ready until it stops running.
-- Called by what workers call, once in a transaction and last: callers' transactions must not hold these locks.
create or replace function onceward.admit(p_keys jsonb)
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
  -- Key by key through the index, whatever the statistics of an empty table say.
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  -- A plain index scan also marks the entries of jobs that are gone, so that the next one skips them.
  set enable_bitmapscan = off
  -- Said, because finish_done has switched them off: with no way left on, the whole table was read for each key.
  set enable_indexscan = on
  set enable_indexonlyscan = on
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_count  integer;
  v_locked integer;
  v_lanes  text[];
  v_short  jsonb;
begin
  -- Counting needs a fresh snapshot after the lock; with an older one, leave it to the next promote.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform onceward.ask_admission(k ->> 0, k ->> 1) from jsonb_array_elements(p_keys) as k;
    return 0;
  end if;
  p_keys := (select jsonb_agg(distinct k) from jsonb_array_elements(p_keys) as k);
  insert into onceward.concurrency_private (tenant, concurrency_key)
  select k ->> 0, k ->> 1
    from jsonb_array_elements(p_keys) as k
   where not exists (select from onceward.concurrency_private as c where c.tenant = k ->> 0 and c.concurrency_key = k ->> 1)
   order by 1, 2
      on conflict do nothing;

  select count(*) into v_locked
    from (select from jsonb_array_elements(p_keys) as k
            join onceward.concurrency_private as c on c.tenant = k ->> 0 and c.concurrency_key = k ->> 1
           order by c.tenant, c.concurrency_key
             for update of c) as locked;
  if v_locked < jsonb_array_length(p_keys) then
    -- A row was tidied away between the two statements.
    if v_locked = 0 then
      return onceward.admit(p_keys);
    end if;
    -- To make it again now, while holding others, would break the order of locks.
    perform onceward.ask_admission(k ->> 0, k ->> 1) from jsonb_array_elements(p_keys) as k;
    return 0;
  end if;

  with room as materialized (
    select k.key ->> 0 as tenant, k.key ->> 1 as concurrency_key, waiting.concurrency_limit - held.n as n
      from jsonb_array_elements(p_keys) as k (key)
     cross join lateral (
       select j.concurrency_limit from onceward.job_private as j
        where j.state = 'blocked' and j.awaits is null and j.tenant = k.key ->> 0 and j.concurrency_key = k.key ->> 1
        order by j.priority desc, j.id limit 1) as waiting
     cross join lateral (
       select count(*)::integer as n from onceward.job_private as h
        where h.state in ('ready', 'running') and h.awaits is null and h.tenant = k.key ->> 0 and h.concurrency_key = k.key ->> 1) as held
     where waiting.concurrency_limit > held.n
  ), next_ones as materialized (
    select r.tenant, r.concurrency_key, r.n,
           array(select j.ctid from onceward.job_private as j
                  where j.state = 'blocked' and j.awaits is null
                    and j.tenant = r.tenant and j.concurrency_key = r.concurrency_key
                  order by j.priority desc, j.id
                  limit r.n
                    for update skip locked) as places
      from room as r
  ), moved as (
    update onceward.job_private as j
       set state = 'ready', ready_seq = nextval('onceward.ready_seq')
      from (select unnest(n.places) as place from next_ones as n) as n
     where j.ctid = n.place
    returning j.id, j.lane, j.task, j.tenant
  ), noted as (
    insert into onceward.audit_private (at, kind, source, actor, role, tenant, job_id, before, after, meta)
    select onceward.now(), 'job.admitted', 'engine', onceward.actor(), onceward.caller(), m.tenant, m.id,
           '{"state": "blocked"}', '{"state": "ready"}', jsonb_build_object('lane', m.lane, 'task', m.task)
      from moved as m
     -- What audits_all asks; called for each job, it took a twentieth of the whole.
     where exists (select from onceward.lane_private as l where l.name = m.lane and l.audit = 'all')
  )
  select (select count(*) from moved), (select array_agg(distinct m.lane) from moved as m),
         jsonb_agg(jsonb_build_array(n.tenant, n.concurrency_key)) filter (where n.n > cardinality(n.places))
    into v_count, v_lanes, v_short
    from next_ones as n;
  -- Room is left and somebody still waits: another transaction has the job locked, and may roll back.
  if v_short is not null then
    perform onceward.ask_admission(k ->> 0, k ->> 1)
       from jsonb_array_elements(v_short) as k
      where exists (select from onceward.job_private as b
                     where b.state = 'blocked' and b.awaits is null and b.tenant = k ->> 0 and b.concurrency_key = k ->> 1);
  end if;
  if v_count > 0 then
    perform onceward.wake(v_lanes);
  end if;
  return v_count;
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
    perform onceward.admit(jsonb_build_array(jsonb_build_array(p_job.tenant, p_job.concurrency_key)));
  end if;
end;
$$;

-- A job is never started after expires_at.  Returns the keys in which a place has become free: [[tenant, key], ...].
create or replace function onceward.expire(p_limit integer)
  returns table (expired integer, keys jsonb)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job onceward.job_private;
begin
  expired := 0;
  keys := '[]';
  for v_job in
    select * from onceward.job_private as j
     where j.expires_at <= onceward.now() and j.state in ('scheduled', 'ready', 'blocked') and j.expires_at is not null
     order by j.expires_at
     limit p_limit
       for update skip locked
  loop
    perform onceward.end_cancelled(v_job, format('expired at %s before it could start', v_job.expires_at));
    expired := expired + 1;
    if v_job.state = 'ready' and v_job.concurrency_key is not null then
      keys := keys || jsonb_build_array(jsonb_build_array(v_job.tenant, v_job.concurrency_key));
    end if;
  end loop;
  return next;
end;
$$;
