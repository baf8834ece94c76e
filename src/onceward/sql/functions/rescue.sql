-- Rescue: jobs of workers whose lease is over go back to their lane.  Bounded, on by default, run by any worker.
-- The attempt counts (a job that kills its worker must not be retried for ever); the lease was the wait.
create or replace function onceward.rescue(p_limit integer default 500, p_thorough boolean default true)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now    timestamptz := onceward.now();
  v_count  integer := 0;
  v_lanes  text[] := '{}';
  v_job    onceward.job_private;
  v_keys   jsonb := '[]';
  v_gone   uuid[];
  v_here   uuid[];
  v_found  uuid[];
begin
  perform onceward.check_limit(p_limit);
  -- Mark first: from here on the worker can neither claim nor renew.
  update onceward.worker_private as w
     set retired_at = v_now, retired_why = 'lease expired', asleep_until = null
   where w.id in (select d.id from onceward.worker_private as d
                   where d.retired_at is null and d.expires_at <= v_now
                   order by d.id
                     for update skip locked);

  -- A claim that was under way while its worker was marked commits afterwards: look at the recently retired
  -- again, and, when thorough, at every running job.
  -- Lists and not joins, in the order of the index: otherwise, with the statistics of a queue that had run empty,
  -- the whole table is read.
  v_gone := array(select w.id from onceward.worker_private as w where w.retired_at > v_now - interval '10 minutes');
  v_found := array(
    select j.id from onceward.job_private as j
     where j.state = 'running' and j.worker_id = any (v_gone)
     order by j.worker_id
     limit p_limit);
  if p_thorough then
    v_here := array(select w.id from onceward.worker_private as w where w.retired_at is null);
    v_found := v_found || array(
      select j.id from onceward.job_private as j
       where j.state = 'running'
         and (j.worker_id <> all (v_here) or j.started_at + j.timeout + interval '1 minute' < v_now)
       order by j.worker_id
       limit p_limit);
  end if;
  for v_job in
    select j.* from onceward.job_private as j
     where j.id = any (v_found) and j.worker_id is not null
     order by j.id
     limit p_limit
       for update skip locked
  loop
    -- Looked at again under its lock: meanwhile it may have been rescued and claimed by a worker that is alive.
    continue when onceward.worker_is_live(v_job.worker_id)
              and (v_job.timeout is null or v_job.started_at + v_job.timeout + interval '1 minute' >= v_now);
    v_count := v_count + 1;
    if onceward.rescue_one(v_job) = 'ready' then
      v_lanes := v_lanes || v_job.lane;
    elsif v_job.concurrency_key is not null then
      v_keys := v_keys || jsonb_build_array(jsonb_build_array(v_job.tenant, v_job.concurrency_key));
    end if;
  end loop;
  if v_keys <> '[]' then
    perform onceward.admit(v_keys);
  end if;
  perform onceward.wake(v_lanes);
  return v_count;
end;
$$;
comment on function onceward.rescue(integer, boolean) is
  'Takes jobs from workers whose lease is over (and jobs a minute past their timeout) and makes them ready again, or dead letters when their attempts are used up.  Returns how many.';

-- Returns the new state of the job.
create or replace function onceward.rescue_one(p_job onceward.job_private)
  returns text
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_error jsonb;
begin
  if p_job.cancel_at is not null then
    perform onceward.end_cancelled(p_job, p_job.cancel_reason);
    return 'cancelled';
  end if;
  if onceward.worker_is_live(p_job.worker_id) then
    v_error := onceward.error_record(p_job.task, 'LeaseExpired',
      format('attempt %s ran longer than its timeout of %s, and its worker did not end it', p_job.attempt, p_job.timeout),
      'timeout', null);
  else
    v_error := onceward.error_record(p_job.task, 'LeaseExpired',
      format('worker %s stopped renewing its lease during attempt %s', p_job.worker_id, p_job.attempt), 'lost_worker', null);
  end if;
  if onceward.keeps_its_try(p_job) then
    perform onceward.record_attempt(p_job, 'rescued', v_error, onceward.now());
    perform onceward.end_attempt(p_job, 'rescued', 'ready', null, v_error);
    update onceward.job_private as j set attempt = j.attempt - 1 where j.id = p_job.id;
    return 'ready';
  end if;
  if p_job.attempt >= p_job.max_attempts then
    perform onceward.record_attempt(p_job, 'dead_letter', v_error, null);
    perform onceward.end_attempt(p_job, 'dead_letter', 'dead_letter', null, v_error);
    return 'dead_letter';
  end if;
  perform onceward.record_attempt(p_job, 'rescued', v_error, onceward.now());
  perform onceward.end_attempt(p_job, 'rescued', 'ready', null, v_error);
  return 'ready';
end;
$$;

-- The tries of a delivery and the waits between them are for its receiver, who has no part in the death of a worker: such a
-- try is given back, ten times.  Not the last one once it has begun: it may have arrived, and a person is told at once.
create or replace function onceward.keeps_its_try(p_job onceward.job_private)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select p_job.task = 'onceward.deliver'
     and exists (select from onceward.delivery_private as d
                  where d.id = p_job.id and (d.state = 'pending' or p_job.attempt < p_job.max_attempts))
     and (select count(*) from onceward.attempt_private as a where a.job_id = p_job.id and a.outcome = 'rescued') < 10
$$;
