-- What promote looks at after the commit of others: edges that are new, jobs that have ended, joins that crossed.
-- Each function takes only what nobody has locked, and leaves the rest marked for the next time.

-- New edges of these jobs: has the other end ended already?  What cannot be said now is looked at again.
-- Returns how many edges were looked at, at most 10000, and how many jobs became ready.
create or replace function onceward.verify_dependencies(p_job_ids uuid[], out seen integer, out freed integer)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
begin
  with edge as materialized (
    select e.place, e.after_id
      from unnest(p_job_ids) as u (id)
     cross join lateral (select d.ctid as place, d.after_id from onceward.dependency_private as d
                          where d.job_id = u.id and d.outcome is null and not d.verified
                          limit 10000
                            for update skip locked) as e
     limit 10000
  ), live as materialized (
    -- Whoever is about to end one of them has it locked; whoever comes later sees the edge.
    select j.id, j.state from onceward.job_private as j
     where j.id = any (array(select distinct e.after_id from edge as e))
       for key share skip locked
  ), sided as materialized (
    -- Side by side in one sorted list: a join of the two could be a loop in a loop, whatever the planner thinks of them.
    select u.place, u.after_id, max(u.state) over (partition by u.after_id) as live
      from (select e.place, e.after_id, null::text as state from edge as e
            union all
            select null::tid, l.id, l.state from live as l) as u
  ), found as materialized (
    select s.place, s.live,
           case when s.live is null then (select true from onceward.job_private as j where j.id = s.after_id) end as is_locked,
           case when s.live is null then (select a.state from onceward.archive_private as a where a.id = s.after_id) end as ended
      from sided as s
     where s.place is not null
  ), told as (
    update onceward.dependency_private as d
       set verified = true,
           outcome  = case when s.live = 'dead_letter' or s.ended = 'cancelled' then 'failed'
                           when s.live is not null then null
                           -- Also when it was archived so long ago that its partition is gone: it was there when the
                           -- edge was made.
                           else 'done' end
      from found as s
     where d.ctid = s.place and s.is_locked is null
  )
  select count(*) into seen from edge;
  insert into onceward.recheck_private (kind, job_id)
  select 'job', u.id from unnest(p_job_ids) as u (id)
   where (select true from onceward.dependency_private as d
           where d.job_id = u.id and d.outcome is null and not d.verified limit 1);
  freed := onceward.decide_waiting(p_job_ids);
end;
$$;

-- Two joins that crossed, neither of which saw the other: the youngest job of such a circle goes on, joins once more,
-- and is refused (OW012), as if it had come second.  Returns how many are ready.
create or replace function onceward.open_circles(p_job_ids uuid[])
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
declare
  v_job    uuid;
  v_victim uuid;
  v_locked uuid;
  v_ready  integer := 0;
begin
  for v_job in
    select j.id from onceward.job_private as j
     where j.id = any (p_job_ids) and coalesce(j.awaits, '') = 'join'  -- see decide_waiting
     order by j.id
  loop
    with recursive dependent as (
      select v_job as id
      union
      select d.job_id from dependent as w
        join onceward.dependency_private as d on d.after_id = w.id and coalesce(d.outcome, '') = ''
    ), awaited as (
      select d.after_id as id from onceward.dependency_private as d where d.job_id = v_job and d.outcome is null
      union
      -- Not through those that nobody reaches from the other side: most have no part in a circle.
      select d.after_id from awaited as w
        join onceward.dependency_private as d on d.job_id = w.id and d.outcome is null
       where w.id in (select u.id from dependent as u)
    )
    select w.id into v_victim
      from awaited as w join onceward.job_private as j on j.id = w.id
     where w.id in (select u.id from dependent as u) and coalesce(j.awaits, '') = 'join'
     order by w.id desc limit 1;
    continue when v_victim is null;
    select j.id into v_locked from onceward.job_private as j
     where j.id = v_victim and coalesce(j.awaits, '') = 'join' for update skip locked;
    if found then
      v_ready := v_ready + onceward.go_on(array[v_victim]);
    else
      insert into onceward.recheck_private (kind, job_id) values ('job', v_job);
    end if;
  end loop;
  return v_ready;
end;
$$;

-- What promote has to look at, in bounds.  Returns whether there is more to do at once, and how many jobs became ready.
create or replace function onceward.recheck(p_limit integer, out more boolean, out freed integer)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_count  integer;
  v_jobs   uuid[];
  v_ended  uuid[];
  v_events jsonb;
  v_part   record;
begin
  more := false;
  freed := 0;
  -- What was committed since an older snapshot would be missed.
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  -- What one round decides may be what others wait for, and so on.  Only such ends are taken in later rounds: what has
  -- been put back because somebody has it locked waits for the next promote.
  for v_round in 1..10 loop
    with taken as materialized (
      select r.id from onceward.recheck_private as r
       where v_round = 1 or r.kind = 'ended'
       order by r.id limit p_limit for update skip locked
    ), gone as (
      delete from onceward.recheck_private as r using taken as t where r.id = t.id
      returning r.kind, r.job_id, r.tenant, r.event
    )
    select count(*), array_agg(distinct g.job_id) filter (where g.kind = 'job'),
           array_agg(distinct g.job_id) filter (where g.kind in ('ended', 'again')),
           jsonb_agg(distinct jsonb_build_array(g.tenant, g.event)) filter (where g.kind = 'event')
      into v_count, v_jobs, v_ended, v_events
      from gone as g;
    exit when v_count = 0;
    more := more or v_count >= p_limit or v_round = 10;
    if v_ended is not null then
      select * into v_part from onceward.tell_ended(v_ended, p_limit);
      more := more or v_part.more;
      freed := freed + v_part.freed;
    end if;
    if v_jobs is not null then
      select * into v_part from onceward.verify_dependencies(v_jobs);
      more := more or v_part.seen >= 10000;
      freed := freed + v_part.freed + onceward.open_circles(v_jobs);
      perform onceward.hear_events(v_jobs);
    end if;
    if v_events is not null then
      more := onceward.spread_events(v_events, p_limit) or more;
    end if;
  end loop;
end;
$$;

-- By what became of them; one that was requeued meanwhile has not ended.  Returns as recheck does.
create or replace function onceward.tell_ended(p_job_ids uuid[], p_limit integer, out more boolean, out freed integer)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_done   uuid[];
  v_failed uuid[];
  v_part   record;
begin
  more := false;
  freed := 0;
  select array_agg(a.id) filter (where a.state <> 'cancelled'), array_agg(a.id) filter (where a.state = 'cancelled')
    into v_done, v_failed
    from onceward.archive_private as a where a.id = any (p_job_ids);
  v_failed := v_failed || array(select j.id from onceward.job_private as j
                                 where j.id = any (p_job_ids) and j.state = 'dead_letter');
  if cardinality(v_done) > 0 then
    select * into v_part from onceward.tell_dependents(v_done, 'done', p_limit);
    more := v_part.told >= p_limit;
    freed := v_part.freed;
  end if;
  if cardinality(v_failed) > 0 then
    select * into v_part from onceward.tell_dependents(v_failed, 'failed', p_limit);
    more := more or v_part.told >= p_limit;
    freed := freed + v_part.freed;
  end if;
end;
$$;
