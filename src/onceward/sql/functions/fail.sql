-- The ends of an attempt that are not the end of the job: failure, snooze, hand-back.

-- Equal failures get equal fingerprints: numbers, ids, quoted parts and white space do not count.
create or replace function onceward.fingerprint(p_task text, p_error_type text, p_message text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select left(md5(concat_ws('|', p_task, p_error_type,
    regexp_replace(regexp_replace(regexp_replace(left(p_message, 2000),
      '[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9a-fA-F]{16,}', '#', 'g'),
      '''[^'']*''|"[^"]*"', '?', 'g'),
      '\d+(\.\d+)?', '#', 'g'))), 16)
$$;
comment on function onceward.fingerprint(text, text, text) is 'Sixteen hex digits that are equal for failures of the same kind.';

-- End the running attempt in one statement and leave its record.  Returns the job as it was, or no row.
create or replace function onceward.record_attempt(
  p_job      onceward.job_private,
  p_outcome  text,
  p_error    jsonb,
  p_retry_at timestamptz
)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  insert into onceward.attempt_private
    (job_id, epoch, tenant, task, attempt, worker_id, started_at, ended_at, outcome, error_type, category,
     message, fingerprint, traceback, retry_at)
  values
    (p_job.id, p_job.epoch, p_job.tenant, p_job.task, p_job.attempt, p_job.worker_id, p_job.started_at,
     onceward.now(), p_outcome, p_error ->> 'type', p_error ->> 'category', p_error ->> 'message',
     p_error ->> 'fingerprint', p_error ->> 'traceback', p_retry_at)
      on conflict (job_id, epoch) do nothing
$$;

-- Messages are capped: the beginning tells what, the end of a traceback tells where.
create or replace function onceward.error_record(
  p_task text, p_error_type text, p_message text, p_category text, p_traceback text
)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_strip_nulls(jsonb_build_object(
    'type', left(coalesce(p_error_type, 'Error'), 200),
    'category', left(coalesce(p_category, 'error'), 100),
    'message', left(coalesce(p_message, ''), 2000),
    'fingerprint', onceward.fingerprint(p_task, p_error_type, p_message),
    'traceback', case when length(p_traceback) > 20000
                      then left(p_traceback, 4000) || E'\n… shortened …\n' || right(p_traceback, 16000)
                      else p_traceback end))
$$;

create or replace function onceward.fail(
  p_job_id      uuid,
  p_epoch       bigint,
  p_error_type  text,
  p_message     text,
  p_category    text default 'error',
  p_traceback   text default null,
  p_permanent   boolean default false,
  p_retry_after interval default null
)
  returns table (state text, retry_at timestamptz)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A caller's open transaction may hold the job for long; a worker has other things to do.
  set lock_timeout = '2s'
as $$
declare
  v_job   onceward.job_private;
  v_error jsonb;
  v_again boolean;
begin
  select * into v_job from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null  -- running; see finish_many
     for update;
  if not found then
    -- The repetition of a call whose reply was lost gets the same answer.
    return query
      select case a.outcome when 'failed' then 'scheduled' else a.outcome end, a.retry_at
        from onceward.attempt_private as a
       where a.job_id = p_job_id and a.epoch = p_epoch
         and a.outcome in ('failed', 'dead_letter', 'cancelled')
         -- Not what others have recorded: rescue, the bound on snoozes, a cancellation.
         and a.error_type not in ('LeaseExpired', 'SnoozesUsedUp');
    if not found then
      perform onceward.lease_lost(p_job_id, p_epoch);
    end if;
    return;
  end if;

  v_error := onceward.error_record(v_job.task, p_error_type, p_message, p_category, p_traceback);
  if v_job.cancel_at is not null then
    -- Somebody wanted it to stop, and it has.
    state := 'cancelled';
    perform onceward.record_attempt(v_job, 'cancelled', v_error, null);
    perform onceward.archive_one(p_job_id, 'cancelled', v_job.cancel_reason);
    perform onceward.give_place(v_job);
    return next;
    return;
  end if;

  v_again := not coalesce(p_permanent, false) and v_job.attempt < v_job.max_attempts;
  if v_again then
    -- A failure must always be recordable, so what a server asks for is bounded, not refused.
    state := 'scheduled';
    retry_at := onceward.now()
      + case when p_retry_after is null then onceward.retry_wait(v_job.retry, v_job.attempt)
             else least(greatest(p_retry_after, interval '0'), interval '1 year') end;
  else
    state := 'dead_letter';
  end if;
  perform onceward.record_attempt(v_job, case when v_again then 'failed' else 'dead_letter' end, v_error, retry_at);
  perform onceward.end_attempt(v_job, case when v_again then 'failed' else state end, state, retry_at, v_error - 'traceback');
  perform onceward.give_place(v_job);
  return next;
end;
$$;
comment on function onceward.fail(uuid, bigint, text, text, text, text, boolean, interval) is
  'Records a failed attempt.  The job is scheduled again by its retry policy (or after p_retry_after, at most a year), or becomes a dead letter when it is permanent or the attempts are used up; one that was to be cancelled is cancelled.  Returns the new state.';

-- Leave `running`: to scheduled, ready or dead_letter.  The caller holds the row lock, has checked the epoch, and gives
-- the place in a concurrency key to the next one (a job that is ready again keeps it).
create or replace function onceward.end_attempt(
  p_job     onceward.job_private,
  p_outcome text,
  p_state   text,
  p_run_at  timestamptz,
  p_error   jsonb
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  update onceward.job_private as j
     set state      = p_state,
         worker_id  = null,
         -- A dead letter tells when its last attempt began.
         started_at = case when p_state = 'dead_letter' then j.started_at end,
         run_at     = coalesce(p_run_at, j.run_at),
         ready_seq  = case when p_state = 'ready' then nextval('onceward.ready_seq') end,
         dead_at    = case when p_state = 'dead_letter' then onceward.now() end,
         last_error = coalesce(p_error, j.last_error)
   where j.id = p_job.id;
  if p_state = 'dead_letter' or onceward.audits_all(p_job.lane) then
    -- Not the message of the error: it may quote what was worked on.
    perform onceward.audit_job(p_job, 'job.' || p_outcome, p_state, null,
      jsonb_build_object('error_type', p_error -> 'type', 'category', p_error -> 'category',
                         'fingerprint', p_error -> 'fingerprint', 'run_at', p_run_at));
  end if;
  if p_state = 'dead_letter' then
    perform onceward.ask_dependents(p_job.id, p_job.lane);
  end if;
  if p_state = 'dead_letter' and p_job.task = 'onceward.deliver' then
    perform onceward.delivery_follows(p_job.id, p_state, p_error);
  end if;
end;
$$;

create or replace function onceward.snooze(
  p_job_id  uuid,
  p_epoch   bigint,
  p_delay   interval,
  p_reason  text default null,
  p_counted boolean default true
)
  returns table (state text, run_at timestamptz)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A caller's open transaction may hold the job for long; a worker has other things to do.
  set lock_timeout = '2s'
as $$
declare
  v_job   onceward.job_private;
  v_error jsonb;
begin
  if p_delay is null or p_delay < interval '0' or p_delay > interval '10 years' then
    perform onceward.bad_argument('delay', p_delay::text, 'must be between 0 and 10 years');
  end if;
  select * into v_job from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null  -- running; see finish_many
     for update;
  if not found then
    return query
      select case a.outcome when 'snoozed' then 'scheduled' else a.outcome end, a.retry_at
        from onceward.attempt_private as a
       where a.job_id = p_job_id and a.epoch = p_epoch
         and (a.outcome = 'snoozed' or a.error_type = 'SnoozesUsedUp' or (a.outcome = 'cancelled' and a.category = 'snoozed'));
    if not found then
      perform onceward.lease_lost(p_job_id, p_epoch);
    end if;
    return;
  end if;

  if v_job.cancel_at is not null then
    state := 'cancelled';
    perform onceward.record_attempt(v_job, 'cancelled',
      jsonb_build_object('category', 'snoozed', 'message', left(v_job.cancel_reason, 2000)), null);
    perform onceward.archive_one(p_job_id, 'cancelled', v_job.cancel_reason);
    perform onceward.give_place(v_job);
    return next;
    return;
  end if;

  if p_counted and v_job.snoozes >= coalesce((v_job.retry ->> 'max_snoozes')::integer, 1000) then
    v_error := onceward.error_record(v_job.task, 'SnoozesUsedUp',
      format('snoozed %s times, the most allowed', v_job.snoozes), 'snoozes_used_up', null);
    state := 'dead_letter';
    perform onceward.record_attempt(v_job, 'dead_letter', v_error, null);
    perform onceward.end_attempt(v_job, 'dead_letter', 'dead_letter', null, v_error);
    perform onceward.give_place(v_job);
    return next;
    return;
  end if;

  state := 'scheduled';
  run_at := onceward.now() + p_delay;
  perform onceward.record_attempt(v_job, 'snoozed', jsonb_build_object('message', left(p_reason, 2000)), run_at);
  update onceward.job_private as j
     set attempt = j.attempt - 1, snoozes = j.snoozes + case when p_counted then 1 else 0 end
   where j.id = p_job_id;
  perform onceward.end_attempt(v_job, 'snoozed', 'scheduled', run_at, null);
  perform onceward.give_place(v_job);
  return next;
end;
$$;
comment on function onceward.snooze(uuid, bigint, interval, text, boolean) is
  'Puts a running job off without using up an attempt.  Snoozes are counted; past the most allowed (1000, or retry.max_snoozes) the job becomes a dead letter (p_counted => false leaves the count alone).  One that was to be cancelled is cancelled.  Returns the new state.';

-- Hand jobs back unstarted or interrupted: no attempt is used up, and they are ready at once.
-- With epochs, it is safe to repeat: by then, the same worker may run a job again, in a later epoch.
-- p_unstarted: nobody has begun them, and what they took of their limits goes back.
create or replace function onceward.release(
  p_worker_id uuid,
  p_job_ids   uuid[] default null,
  p_epochs    bigint[] default null,
  p_unstarted boolean default false
)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A caller's open transaction may hold the job for long; a worker has other things to do.
  set lock_timeout = '2s'
as $$
declare
  v_job   onceward.job_private;
  v_count integer := 0;
  v_lanes text[] := '{}';
  v_keys  jsonb := '[]';
  v_ids   uuid[];
  v_uses  jsonb := '[]';
begin
  if p_job_ids is null then
    -- A worker that leaves does not wait: what somebody has locked is rescued later.
    select array_agg(l.id) into v_ids
      from (select j.id from onceward.job_private as j
             where j.state = 'running' and j.worker_id = p_worker_id
             order by j.id
               for update skip locked) as l;
  else
    select array_agg(l.id) into v_ids
      from (select j.id from onceward.job_private as j
             where j.state = 'running' and j.worker_id = p_worker_id and j.id = any (p_job_ids)
               and (p_epochs is null or j.epoch = p_epochs[array_position(p_job_ids, j.id)])
             order by j.id
               for update) as l;
  end if;
  for v_job in
    select * from onceward.job_private as j where j.id = any (v_ids) order by j.id
  loop
    if v_job.cancel_at is not null then
      perform onceward.end_cancelled(v_job, v_job.cancel_reason);
      if v_job.concurrency_key is not null then
        v_keys := v_keys || jsonb_build_array(jsonb_build_array(v_job.tenant, v_job.concurrency_key));
      end if;
    else
      perform onceward.record_attempt(v_job, 'released', null, onceward.now());
      perform onceward.end_attempt(v_job, 'released', 'ready', null, null);
      -- It has stood in line already, and keeps its place.
      update onceward.job_private as j set attempt = j.attempt - 1, ready_seq = coalesce(v_job.ready_seq, j.ready_seq)
       where j.id = v_job.id;
      v_lanes := v_lanes || v_job.lane;
    end if;
    if p_unstarted then
      v_uses := v_uses || coalesce(v_job.uses, '[]');
    end if;
    v_count := v_count + 1;
  end loop;
  if v_uses <> '[]' then
    perform onceward.give_back(v_uses);
  end if;
  if v_keys <> '[]' then
    perform onceward.admit(v_keys);
  end if;
  perform onceward.wake(v_lanes);
  perform onceward.call_back(p_worker_id, v_lanes);
  return v_count;
end;
$$;
comment on function onceward.release(uuid, uuid[], bigint[], boolean) is
  'Hands running jobs of a worker back (all, or these in these epochs) without using up an attempt.  With p_unstarted, what they took of their limits goes back as well.  Returns how many.';
