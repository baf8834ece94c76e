-- Ending an attempt.  Every function names (job, epoch); the statement that checks the lease also changes the row.

create or replace function onceward.lease_lost(p_job_id uuid, p_epoch bigint)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'lease on job % is no longer held', p_job_id
    using errcode = 'OW001',
          detail  = format('Epoch %s is not the current epoch of a running job.', p_epoch),
          hint    = 'Discard the result. The job was rescued, cancelled or finished, and another attempt may own it.';
end;
$$;

-- Move done jobs to the archive, with their last attempt: a set in one statement, a single job in three short ones, because
-- what makes sets of rows takes longer than to write one.  Returns those that were lost, and the concurrency keys in which
-- places have become free, each once and in order, and how many: the caller lets others in.
create or replace function onceward.finish_set(
  p_job_ids uuid[], p_epochs bigint[], p_results jsonb[],
  out lost_ids uuid[], out lost_epochs bigint[], out tenants text[], out keys text[], out freed integer[]
)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  -- By the index, also when it was planned for a queue that had run empty.
  set enable_seqscan = off
  set enable_indexscan = on
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_nestloop = on
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_now   timestamptz := onceward.now();
  v_ids   uuid[];
  v_keyed uuid[];
  v_job   onceward.job_private;
begin
  if p_results is not null then
    perform onceward.check_result(f.id, f.result)
       from unnest(p_job_ids, p_results) as f (id, result)
      where pg_column_size(f.result) > 1024;
  end if;
  if cardinality(p_job_ids) = 1 and p_job_ids[1] is not null then
    delete from onceward.job_private as j
     -- Not state = 'running': see finish_many.
     where j.id = p_job_ids[1] and j.epoch = p_epochs[1] and j.worker_id is not null
    returning * into v_job;
    if found then
      insert into onceward.archive_private
        (id, tenant, lane, task, state, priority, epoch, attempt, max_attempts, snoozes, created_at, run_at,
         started_at, finished_at, worker_id, payload, result, expires_at, timeout, retry, headers, key,
         concurrency_key, concurrency_limit, progress, last_error, workflow_id, parent_id, node, after, after_policy, uses)
      values
        (v_job.id, v_job.tenant, v_job.lane, v_job.task, 'done', v_job.priority, v_job.epoch, v_job.attempt,
         v_job.max_attempts, v_job.snoozes, v_job.created_at, v_job.run_at, v_job.started_at, v_now, v_job.worker_id,
         v_job.payload, p_results[1], v_job.expires_at, v_job.timeout, v_job.retry, v_job.headers, v_job.key,
         v_job.concurrency_key, v_job.concurrency_limit, v_job.progress, v_job.last_error, v_job.workflow_id,
         v_job.parent_id, v_job.node, v_job.after, v_job.after_policy, v_job.uses);
      insert into onceward.audit_private (at, kind, source, actor, role, tenant, jobs)
      values (v_now, 'job.done', 'engine', onceward.actor(), onceward.caller(), v_job.tenant, array[v_job.id]);
      v_ids := array[v_job.id];
      if v_job.key_is_live then
        v_keyed := v_ids;
      end if;
      if v_job.concurrency_key is not null then
        tenants := array[v_job.tenant];
        keys := array[v_job.concurrency_key];
        freed := array[1];
      end if;
    end if;
  else
    select m.ids, m.keyed, m.tenants, m.keys, m.freed into v_ids, v_keyed, tenants, keys, freed
      from onceward.finish_many(p_job_ids, p_epochs, p_results) as m;
  end if;

  -- Most jobs are not waited for: a look into the index costs less than the call.
  if v_ids is not null
     and (exists (select from unnest(v_ids) as u (id)
                   where (select true from onceward.dependency_private as d
                           where d.after_id = u.id and coalesce(d.outcome, '') = '' limit 1))
          or current_setting('transaction_isolation') <> 'read committed') then
    perform onceward.tell_dependents(v_ids, 'done');
  end if;
  if v_keyed is not null then
    perform onceward.free_keys(v_keyed);
  end if;
  if v_ids is null or cardinality(v_ids) < cardinality(p_job_ids) then
    -- Rare: either the lease was lost, or this is the repetition of a call whose reply was lost.
    select array_agg(f.id), array_agg(f.epoch) into lost_ids, lost_epochs
      from unnest(p_job_ids, p_epochs) as f (id, epoch)
     where (select true from onceward.archive_private as a
             where a.id = f.id and a.epoch = f.epoch and a.state = 'done' limit 1) is null;
  end if;
end;
$$;

-- The statement for a set.  ids: those that were running under these epochs; keyed: those of them whose keys end with them.
-- It is alone with its settings, because whatever a function calls is planned under its own, too.
create or replace function onceward.finish_many(
  p_job_ids uuid[], p_epochs bigint[], p_results jsonb[],
  out ids uuid[], out keyed uuid[], out tenants text[], out keys text[], out freed integer[]
)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  -- One walk through the index for all ids, in their order, and a hash of what belongs to each: to look for them one by one took
  -- half as long again.  It does not depend on the statistics, which may be those of a queue that ran empty.  A hash that has
  -- no room for the results would be taken in parts, and jobs be locked out of order.
  set work_mem = '256MB'
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_indexscan = on
  set enable_nestloop = off
  set enable_mergejoin = off
  set enable_hashjoin = on
  set plan_cache_mode = force_generic_plan
  -- Until 17, a plan with a switched-off node seems so dear that it would be compiled each time.
  set jit = off
as $$
declare
  v_now timestamptz := onceward.now();
begin
  with finished as materialized (
    -- In the order in which everybody locks jobs: a repeated call and its forerunner may run at once.
    select f.id, f.epoch, f.result
      from unnest(p_job_ids, p_epochs, p_results) as f (id, epoch, result)
     order by f.id
  ), gone as (
    delete from onceward.job_private as j
     using finished as f
     where j.id = any (p_job_ids)
       and j.id = f.id
       and j.epoch = f.epoch
       -- The same as state = 'running' (a constraint says so), but it keeps the planner from the index of
       -- running jobs, through which this join would be quadratic.
       and j.worker_id is not null
    returning j.id, j.tenant, j.lane, j.task, j.priority, j.epoch, j.attempt, j.max_attempts, j.snoozes,
              j.created_at, j.run_at, j.started_at, j.worker_id, j.payload, f.result, j.expires_at, j.timeout,
              j.retry, j.headers, j.key, j.key_is_live, j.concurrency_key, j.concurrency_limit, j.progress, j.last_error,
              j.workflow_id, j.parent_id, j.node, j.after, j.after_policy, j.uses
  ), archived as (
    insert into onceward.archive_private
      (id, tenant, lane, task, state, priority, epoch, attempt, max_attempts, snoozes, created_at, run_at,
       started_at, finished_at, worker_id, payload, result, expires_at, timeout, retry, headers, key,
       concurrency_key, concurrency_limit, progress, last_error, workflow_id, parent_id, node, after, after_policy, uses)
    select g.id, g.tenant, g.lane, g.task, 'done', g.priority, g.epoch, g.attempt, g.max_attempts, g.snoozes,
           g.created_at, g.run_at, g.started_at, v_now, g.worker_id, g.payload, g.result, g.expires_at, g.timeout,
           g.retry, g.headers, g.key, g.concurrency_key, g.concurrency_limit, g.progress, g.last_error,
           g.workflow_id, g.parent_id, g.node, g.after, g.after_policy, g.uses
      from gone as g
  ), noted as (
    -- One entry for the whole batch (and tenant): see onceward.audit_of.
    insert into onceward.audit_private (at, kind, source, actor, role, tenant, jobs)
    select v_now, 'job.done', 'engine', onceward.actor(), onceward.caller(), g.tenant, array_agg(g.id)
      from gone as g
     group by g.tenant
  )
  select g.ids, g.keyed, k.tenants, k.keys, k.freed
    into ids, keyed, tenants, keys, freed
    from (select array_agg(g.id) as ids, array_agg(g.id) filter (where g.key_is_live) as keyed from gone as g) as g
   cross join (select array_agg(d.tenant) as tenants, array_agg(d.concurrency_key) as keys, array_agg(d.freed) as freed
                 from (select g.tenant, g.concurrency_key, count(*)::integer as freed
                         from gone as g
                        where g.concurrency_key is not null
                        group by g.tenant, g.concurrency_key
                        order by g.tenant, g.concurrency_key) as d) as k;
end;
$$;

-- Give back the keys whose window is the life of the job.
create or replace function onceward.free_keys(p_job_ids uuid[])
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
  -- Key by key: with the statistics of an empty table, a plain index scan would be taken through all keys; a bitmap scan has
  -- to name what it looks for.
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set enable_indexscan = off
  set enable_bitmapscan = on
  set enable_nestloop = on
  set jit = off
as $$
  with held as materialized (
    select a.tenant, a.task, a.key, a.id
      from onceward.archive_private as a
     where a.id = any (p_job_ids) and a.key is not null
     order by a.key collate "C", a.task collate "C", a.tenant collate "C"
  )
  delete from onceward.key_private as k
   using held as h
   where k.tenant = h.tenant and k.task = h.task and k.key = h.key and k.job_id = h.id
$$;

-- Who calls this has found it large enough for a look.
create or replace function onceward.check_result(p_job_id uuid, p_result jsonb)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_cap integer;
begin
  perform onceward.check_depth('result', p_result);
  select l.max_result_bytes into v_cap
    from onceward.job_private as j join onceward.lane_private as l on l.name = j.lane
   where j.id = p_job_id;
  if pg_column_size(p_result) > v_cap then
    raise exception 'result must be at most % bytes, got %', v_cap, pg_column_size(p_result)
      using errcode = 'OW004',
            detail  = format('Job %s is still running.', p_job_id),
            hint    = 'Store the data elsewhere and return a reference, or raise the lane''s cap with onceward.add_lane.';
  end if;
end;
$$;

create or replace function onceward.complete(p_job_id uuid, p_epoch bigint, p_result jsonb default null)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A caller's open transaction may hold the job for long; a worker has other things to do.
  set lock_timeout = '2s'
as $$
declare
  v_end record := onceward.finish_set(array[p_job_id], array[p_epoch], array[p_result]);
begin
  if v_end.lost_ids is not null then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  if v_end.keys is not null then
    perform onceward.let_in(v_end.tenants, v_end.keys, v_end.freed);
  end if;
end;
$$;
comment on function onceward.complete(uuid, bigint, jsonb) is
  'Finishes a job as done.  Raises OW001 when the lease was lost; repeating a successful call is harmless.';

-- One job from the live table to the archive, for ends other than done.  The caller holds its row lock, and
-- gives its place in a concurrency key to the next one.
create or replace function onceward.archive_one(p_job_id uuid, p_state text, p_note text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job onceward.job_private;
begin
  delete from onceward.job_private as j where j.id = p_job_id returning * into v_job;
  insert into onceward.archive_private
    (id, tenant, lane, task, state, priority, epoch, attempt, max_attempts, snoozes, created_at, run_at,
     started_at, finished_at, worker_id, payload, expires_at, timeout, retry, headers, key,
     concurrency_key, concurrency_limit, progress, finish_note, last_error, workflow_id, parent_id, node, after,
     after_policy, uses)
  values
    (v_job.id, v_job.tenant, v_job.lane, v_job.task, p_state, v_job.priority, v_job.epoch, v_job.attempt,
     v_job.max_attempts, v_job.snoozes, v_job.created_at, v_job.run_at, v_job.started_at, onceward.now(),
     v_job.worker_id, v_job.payload, v_job.expires_at, v_job.timeout, v_job.retry, v_job.headers, v_job.key,
     v_job.concurrency_key, v_job.concurrency_limit, v_job.progress, left(p_note, 2000), v_job.last_error,
     v_job.workflow_id, v_job.parent_id, v_job.node, v_job.after, v_job.after_policy, v_job.uses);
  perform onceward.audit_job(v_job, 'job.' || p_state, p_state, p_note);
  if v_job.key_is_live then
    perform onceward.free_keys(array[p_job_id]);
  end if;
  perform onceward.ask_dependents(p_job_id, v_job.lane);
  if v_job.task = 'onceward.deliver' then
    perform onceward.delivery_follows(p_job_id, p_state, null);
  end if;
end;
$$;

create or replace function onceward.progress(p_job_id uuid, p_epoch bigint, p_progress jsonb)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if pg_column_size(p_progress) > 16384 then
    perform onceward.bad_argument('progress', pg_column_size(p_progress)::text || ' bytes', 'must be at most 16384 bytes');
  end if;
  perform onceward.check_depth('progress', p_progress);
  update onceward.job_private
     set progress = p_progress
   -- Not state = 'running': see finish_many.
   where id = p_job_id and epoch = p_epoch and worker_id is not null;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
end;
$$;
comment on function onceward.progress(uuid, bigint, jsonb) is 'Stores the progress of a running job.  Raises OW001 when the lease was lost.';
