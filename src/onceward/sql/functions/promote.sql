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
