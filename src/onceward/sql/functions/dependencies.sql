-- Jobs that wait for other jobs.
-- An edge is written in the caller's transaction, and the other job may end meanwhile.  So the new job is looked at once
-- more after its commit (recheck_private): an edge whose other end is alive and not about to change is `verified`, and
-- from then on whoever ends that job finds the edge.
-- Only what workers call touches edges of others, and only rows that nobody has locked.

create or replace function onceward.check_after_policy(p_policy text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_policy is null or p_policy not in ('fail', 'ignore', 'compensate') then
    perform onceward.bad_argument('after_policy', p_policy, 'must be fail, ignore or compensate');
  end if;
end;
$$;

-- Checks p_after and returns the workflow that a new job belongs to.
create or replace function onceward.check_after(p_tenant text, p_after uuid[], p_policy text, p_workflow_id uuid)
  returns uuid
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  -- Each by its id, whatever the statistics say.
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
declare
  v_missing uuid;
  v_first   uuid := p_after[1];
begin
  perform onceward.check_after_policy(p_policy);
  if p_after is null or cardinality(p_after) = 0 or array_position(p_after, null) is not null then
    perform onceward.bad_argument('after', p_after::text, 'must name at least one job, and no null');
  end if;
  if cardinality(p_after) > 10000 then
    perform onceward.bad_argument('after', cardinality(p_after)::text || ' jobs', 'must name at most 10000 jobs',
      'Let one job wait for each part, and the next one for those.');
  end if;
  select u.id into v_missing
    from unnest(p_after) as u (id)
   -- Not as joins: the archive, which has many partitions, is asked only for those that do not live.
   where (select true from onceward.job_private as j where j.id = u.id and j.tenant = p_tenant) is null
     and (select true from onceward.archive_private as a where a.id = u.id and a.tenant = p_tenant) is null
   limit 1;
  if found then
    perform onceward.no_such_job(v_missing);
  end if;
  return coalesce(p_workflow_id,
                  (select j.workflow_id from onceward.job_private as j where j.id = v_first),
                  (select a.workflow_id from onceward.archive_private as a where a.id = v_first),
                  v_first);
end;
$$;

create or replace function onceward.add_dependencies(p_job_ids uuid[], p_after uuid[])
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  if cardinality(p_job_ids)::bigint * cardinality(p_after) > 100000 then
    perform onceward.bad_argument('after', format('%s jobs after %s', cardinality(p_job_ids), cardinality(p_after)),
      'must make at most 100000 pairs', 'Put one job between the two groups.');
  end if;
  insert into onceward.dependency_private (job_id, after_id)
  select j.id, a.id from unnest(p_job_ids) as j (id) cross join (select distinct unnest(p_after) as id) as a;
  insert into onceward.recheck_private (kind, job_id) select 'job', j.id from unnest(p_job_ids) as j (id);
end;
$$;

-- These jobs have ended or become dead letters: tell whoever waits for them, p_limit at a time.  Called by what workers
-- call.  Returns how many were told, and how many jobs became ready.
create or replace function onceward.tell_dependents(
  p_ended uuid[], p_outcome text, p_limit integer default 1000, out told integer, out freed integer
)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
declare
  v_waiting uuid[];
begin
  told := 0;
  freed := 0;
  -- With an older snapshot, edges that were committed since would be missed.
  if current_setting('transaction_isolation') <> 'read committed' then
    insert into onceward.recheck_private (kind, job_id) select 'ended', u.id from unnest(p_ended) as u (id);
    return;
  end if;
  -- At the place where they were locked (see promote).  One that was changed in that moment is not found there; it is
  -- among those that are looked at again.
  with open as materialized (
    select e.place
      from unnest(p_ended) as u (id)
     -- A limit inside: one after the other, whatever the planner thinks.
     cross join lateral (select d.ctid as place from onceward.dependency_private as d
                          where d.after_id = u.id and coalesce(d.outcome, '') = ''  -- see decide_waiting
                          limit p_limit
                            for update skip locked) as e
     limit p_limit
  ), marked as (
    update onceward.dependency_private as d
       set outcome = p_outcome
      from open as o
     where d.ctid = o.place
    returning d.job_id
  )
  select count(*), array_agg(distinct m.job_id) into told, v_waiting from marked as m;
  -- More than one call takes, or locked by somebody who may roll back.
  insert into onceward.recheck_private (kind, job_id)
  select 'again', u.id from unnest(p_ended) as u (id)
   where (select true from onceward.dependency_private as d
           where d.after_id = u.id and coalesce(d.outcome, '') = '' limit 1);
  if v_waiting is not null then
    freed := onceward.decide_waiting(v_waiting);
  end if;
end;
$$;

-- A job ends otherwise than done, perhaps in a caller's transaction: leave the telling to the next promote.
create or replace function onceward.ask_dependents(p_job_id uuid, p_lane text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') <> 'read committed'
     or exists (select from onceward.dependency_private as d where d.after_id = p_job_id and coalesce(d.outcome, '') = '') then
    insert into onceward.recheck_private (kind, job_id) values ('ended', p_job_id);
    perform onceward.wake(array[p_lane]);
  end if;
end;
$$;

-- Jobs that wait for others: those for which everything is decided go on, or are cancelled.  Returns how many are ready.
create or replace function onceward.decide_waiting(p_job_ids uuid[])
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
declare
  v_locked uuid[];
  v_job    record;
  v_go     uuid[] := '{}';
begin
  -- Each by its id.  With coalesce, no index of those that wait, or are scheduled, comes into question: with the statistics
  -- of an empty table, the planner would read the whole of it.
  v_locked := array(select j.id from onceward.job_private as j
                     where j.id = any (p_job_ids) and coalesce(j.awaits, '') in ('jobs', 'join')
                     order by j.id
                       for update skip locked);
  -- Somebody else is deciding it, and does not see what we have written.
  insert into onceward.recheck_private (kind, job_id)
  select 'job', j.id from onceward.job_private as j
   where j.id = any (p_job_ids) and j.id <> all (v_locked) and coalesce(j.awaits, '') in ('jobs', 'join');

  for v_job in
    select w.id, w.policy, f.after_id as failed,
           exists (select from onceward.dependency_private as d where d.job_id = w.id and d.outcome is null) as is_open
      from (select j.id, case j.awaits when 'join' then 'ignore' else j.after_policy end as policy
              from onceward.job_private as j where j.id = any (v_locked)) as w
      left join lateral (select d.after_id from onceward.dependency_private as d
                          where d.job_id = w.id and d.outcome = 'failed' and w.policy <> 'ignore' limit 1) as f on true
     order by w.id
  loop
    if v_job.policy = 'fail' and v_job.failed is not null then
      perform onceward.end_waiting(v_job.id, format('job %s, which it waited for, failed', v_job.failed));
    elsif v_job.is_open then
      continue;
    elsif v_job.policy = 'compensate' and v_job.failed is null then
      perform onceward.end_waiting(v_job.id, 'not needed: every job that it waited for is done');
    else
      v_go := v_go || v_job.id;
    end if;
  end loop;
  return case when v_go = '{}' then 0 else onceward.go_on(v_go) end;
end;
$$;

create or replace function onceward.end_waiting(p_job_id uuid, p_why text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.drop_edges(array[p_job_id]);
  perform onceward.archive_one(p_job_id, 'cancelled', p_why);
end;
$$;

-- Edges of jobs that wait no more.  What somebody has locked is left to tidy.
create or replace function onceward.drop_edges(p_job_ids uuid[])
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  with free as materialized (
    select e.place
      from unnest(p_job_ids) as u (id)
     cross join lateral (select d.ctid as place from onceward.dependency_private as d
                          where d.job_id = u.id
                          limit 20000
                            for update skip locked) as e
  )
  delete from onceward.dependency_private as d using free as f where d.ctid = f.place
$$;

-- Nothing to wait for any more: ready, or scheduled, or in line for their keys.  The caller has locked them.  Returns how
-- many are ready.
create or replace function onceward.go_on(p_job_ids uuid[])
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
  -- Each by its id: with the statistics of an empty table, a plain index scan would be taken through all jobs; a bitmap scan
  -- has to name what it looks for.
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_indexscan = off
  set enable_bitmapscan = on
  set enable_nestloop = on
  set jit = off
as $$
declare
  v_now   timestamptz := onceward.now();
  v_lanes text[];
  v_ready integer;
begin
  perform onceward.drop_edges(p_job_ids);
  with next_ones as materialized (
    select j.id, case when j.run_at > v_now then 'scheduled' when j.concurrency_key is null then 'ready' else 'blocked' end as state
      from onceward.job_private as j
     where j.id = any (p_job_ids)
  ), numbered as materialized (
    select n.id, n.state, case n.state when 'ready' then nextval('onceward.ready_seq') end as seq
      from (select * from next_ones order by id) as n
  ), moved as (
    update onceward.job_private as j
       set awaits = null, state = n.state, ready_seq = n.seq
      from numbered as n
     where j.id = n.id
    returning j.id, j.state, j.lane, j.task, j.tenant, j.concurrency_key
  ), noted as (
    insert into onceward.audit_private (at, kind, source, actor, role, tenant, job_id, before, after, meta)
    select v_now, 'job.unblocked', 'engine', onceward.actor(), onceward.caller(), m.tenant, m.id, '{"state": "blocked"}',
           jsonb_build_object('state', m.state), jsonb_build_object('lane', m.lane, 'task', m.task)
      from moved as m
     where onceward.audits_all(m.lane)
  ), asked as (
    insert into onceward.admission_private (tenant, concurrency_key)
    select distinct m.tenant, m.concurrency_key from moved as m where m.state = 'blocked'
  )
  select array_agg(distinct m.lane) filter (where m.state <> 'scheduled'), count(*) filter (where m.state = 'ready')
    into v_lanes, v_ready from moved as m;
  if v_lanes is not null then
    perform onceward.wake(v_lanes);
  end if;
  return v_ready;
end;
$$;
