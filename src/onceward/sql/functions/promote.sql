-- Promote: what waited for its time or for its key becomes ready.  Bounded; run by any worker, about once a second
-- and at the moment it returned as the next one due.
-- Rows are changed at the place where they were locked (ctid): with the statistics of a queue that had run empty, a join by
-- id reads the whole table.
create or replace function onceward.promote(p_limit integer default 1000)
  returns table (promoted integer, expired integer, next_run_at timestamptz, next_in interval)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now   timestamptz := onceward.now();
  v_lanes text[];
  v_keys  jsonb;
  v_more  jsonb;
begin
  perform onceward.check_limit(p_limit);
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
           admit_pending = case when n.seq is null then true end
      from numbered as n
     where j.ctid = n.place
    returning j.state, j.lane
  )
  select count(*) filter (where m.state = 'ready'), array_agg(distinct m.lane) filter (where m.state = 'ready')
    into promoted, v_lanes
    from moved as m;

  -- Blocked jobs that nobody has looked at yet.  Once looked at, whoever holds the key lets the next one in.
  with pending as materialized (
    select j.ctid as place from onceward.job_private as j
     where j.state = 'blocked' and j.admit_pending
     order by j.id
     limit p_limit
       for update skip locked
  ), seen as (
    update onceward.job_private as j
       set admit_pending = null
      from pending as p
     where j.ctid = p.place
    returning j.tenant, j.concurrency_key
  )
  select jsonb_agg(distinct jsonb_build_array(s.tenant, s.concurrency_key)) into v_more from seen as s;
  v_keys := v_keys || coalesce(v_more, '[]');

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
  select jsonb_agg(distinct jsonb_build_array(a.tenant, a.concurrency_key)) into v_more from answered as a;
  v_keys := v_keys || coalesce(v_more, '[]');

  -- All keys in one call, after every lock on a job: that is the order in which everybody takes them.
  if v_keys <> '[]' then
    promoted := promoted + onceward.admit(v_keys);
  end if;

  if v_lanes is not null then
    perform onceward.wake(v_lanes);
  end if;
  next_run_at := (select min(j.run_at) from onceward.job_private as j where j.state = 'scheduled');
  next_in := next_run_at - onceward.now();
  return next;
end;
$$;
comment on function onceward.promote(integer) is
  'Makes due scheduled jobs and admissible blocked jobs ready, and cancels expired ones.  Returns how many, and when the next scheduled job is due.';

-- Let waiting jobs of these keys in, as far as each key has room.  p_keys: [[tenant, key], ...].
-- The row in concurrency_private is the lock; a job holds its place from ready until it stops running.
-- Called by what workers call, once in a transaction and last: callers' transactions must not hold these locks.
create or replace function onceward.admit(p_keys jsonb)
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_key    record;
  v_count  integer := 0;
  v_moved  integer;
  v_room   integer;
  v_lanes  text[] := '{}';
  v_locked integer := 0;
begin
  -- Counting needs a fresh snapshot after the lock; with an older one, leave it to the next promote.
  if current_setting('transaction_isolation') <> 'read committed' then
    perform onceward.ask_admission(k ->> 0, k ->> 1) from jsonb_array_elements(p_keys) as k;
    return 0;
  end if;
  insert into onceward.concurrency_private (tenant, concurrency_key)
  select k ->> 0, k ->> 1
    from jsonb_array_elements(p_keys) as k
   where not exists (select from onceward.concurrency_private as c where c.tenant = k ->> 0 and c.concurrency_key = k ->> 1)
   order by 1, 2
      on conflict do nothing;

  for v_key in
    select c.tenant, c.concurrency_key
      from onceward.concurrency_private as c
     where (c.tenant, c.concurrency_key) in (select k ->> 0, k ->> 1 from jsonb_array_elements(p_keys) as k)
     order by c.tenant, c.concurrency_key
       for update
  loop
    v_locked := v_locked + 1;
    with held as materialized (
      select count(*)::integer as n from onceward.job_private as h
       where h.state in ('ready', 'running') and h.tenant = v_key.tenant and h.concurrency_key = v_key.concurrency_key
    ), room as materialized (
      select greatest(b.concurrency_limit - held.n, 0) as n
        from held cross join lateral (
          select j.concurrency_limit from onceward.job_private as j
           where j.state = 'blocked' and j.tenant = v_key.tenant and j.concurrency_key = v_key.concurrency_key
           order by j.priority desc, j.id limit 1) as b
    ), next_ones as materialized (
      select j.ctid as place, j.id, j.priority
        from onceward.job_private as j
       where j.state = 'blocked' and j.tenant = v_key.tenant and j.concurrency_key = v_key.concurrency_key
       order by j.priority desc, j.id
       limit (select r.n from room as r)
         for update skip locked
    ), numbered as materialized (
      select n.place, nextval('onceward.ready_seq') as seq from (select * from next_ones order by priority desc, id) as n
    ), moved as (
      update onceward.job_private as j
         set state = 'ready', ready_seq = n.seq, admit_pending = null
        from numbered as n
       where j.ctid = n.place
      returning j.lane
    )
    select count(*), coalesce(array_agg(m.lane), '{}') || v_lanes, (select r.n from room as r)
      into v_moved, v_lanes, v_room
      from moved as m;
    v_count := v_count + v_moved;
    -- Room is left and somebody still waits: another transaction has the job locked, and may roll back.
    if v_moved < v_room and exists (select from onceward.job_private as b
                                     where b.state = 'blocked' and b.tenant = v_key.tenant
                                       and b.concurrency_key = v_key.concurrency_key) then
      perform onceward.ask_admission(v_key.tenant, v_key.concurrency_key);
    end if;
  end loop;
  if v_locked < (select count(distinct k) from jsonb_array_elements(p_keys) as k) then
    -- A row was tidied away between the two statements.
    if v_locked = 0 then
      return onceward.admit(p_keys);
    end if;
    -- To make it again now, while holding others, would break the order of locks.
    perform onceward.ask_admission(k ->> 0, k ->> 1) from jsonb_array_elements(p_keys) as k;
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
