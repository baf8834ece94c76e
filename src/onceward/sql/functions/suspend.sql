-- Suspend: a job that sleeps, or waits for an event or for other jobs, gives its slot back.  No attempt is used up.

-- Lock a running job that is to be suspended.  Null: there is nothing to do, because it was to be cancelled and now is,
-- or because this is the repetition of a call whose reply was lost.
create or replace function onceward.suspend(p_job_id uuid, p_epoch bigint)
  returns onceward.job_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job onceward.job_private;
begin
  select * into v_job from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null  -- running; see finish_many
     for update;
  if not found then
    perform from onceward.attempt_private as a
      where a.job_id = p_job_id and a.epoch = p_epoch
        and (a.outcome = 'suspended' or (a.outcome = 'cancelled' and a.category = 'suspended'));
    if not found then
      perform onceward.lease_lost(p_job_id, p_epoch);
    end if;
    return null;
  end if;
  if v_job.cancel_at is not null then
    perform onceward.record_attempt(v_job, 'cancelled',
      jsonb_build_object('category', 'suspended', 'message', left(v_job.cancel_reason, 2000)), null);
    perform onceward.archive_one(p_job_id, 'cancelled', v_job.cancel_reason);
    perform onceward.give_place(v_job);
    return null;
  end if;
  return v_job;
end;
$$;

-- The last step of a suspension: p_job is what suspend returned.
create or replace function onceward.end_suspended(
  p_job onceward.job_private, p_state text, p_run_at timestamptz, p_awaits text
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.record_attempt(p_job, 'suspended', null, null);
  update onceward.job_private as j set attempt = j.attempt - 1, awaits = p_awaits where j.id = p_job.id;
  perform onceward.end_attempt(p_job, 'suspended', p_state, p_run_at, null);
  perform onceward.give_place(p_job);
end;
$$;

create or replace function onceward.sleep(
  p_job_id uuid, p_epoch bigint, p_step text, p_delay interval, p_seq integer default 0, p_version text default null
)
  returns timestamptz
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_job   onceward.job_private;
  v_until timestamptz;
begin
  if p_delay is null or p_delay < interval '0' or p_delay > interval '10 years' then
    perform onceward.bad_argument('delay', p_delay::text, 'must be between 0 and 10 years');
  end if;
  v_job := onceward.suspend(p_job_id, p_epoch);
  v_until := coalesce((select s.until from onceward.step_private as s where s.job_id = p_job_id and s.name = p_step),
                      onceward.now() + p_delay);
  if v_job.id is not null then
    perform onceward.write_step(p_job_id, p_epoch, p_step, 'sleep', 'waiting', p_seq, 0, null, v_until, null, null, p_version);
    perform onceward.end_suspended(v_job, 'scheduled', v_until, null);
  end if;
  return v_until;
end;
$$;
comment on function onceward.sleep(uuid, bigint, text, interval, integer, text) is
  'Puts a running job to sleep; the slot is free meanwhile and no attempt is used up.  The step remembers until when, also across a repetition.  Returns that moment.';

create or replace function onceward.wait_event(
  p_job_id uuid, p_epoch bigint, p_step text, p_event text, p_timeout interval default null, p_seq integer default 0,
  p_version text default null
)
  returns timestamptz
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_job   onceward.job_private;
  v_until timestamptz;
begin
  perform onceward.check_event_name(p_event);
  if p_timeout < interval '0' or p_timeout > interval '10 years' then
    perform onceward.bad_argument('timeout', p_timeout::text, 'must be between 0 and 10 years');
  end if;
  v_job := onceward.suspend(p_job_id, p_epoch);
  -- Without a timeout it is scheduled for a day that does not come; promote knows it.
  v_until := coalesce((select s.until from onceward.step_private as s where s.job_id = p_job_id and s.name = p_step),
                      onceward.now() + p_timeout, timestamptz '9999-01-01 00:00:00+00');
  if v_job.id is not null then
    perform onceward.write_step(p_job_id, p_epoch, p_step, 'event', 'waiting', p_seq, 0, null, v_until, null, null, p_version);
    insert into onceward.recheck_private (kind, job_id) values ('job', p_job_id);
    perform onceward.end_suspended(v_job, 'scheduled', v_until, 'event:' || p_event);
  end if;
  return v_until;
end;
$$;
comment on function onceward.wait_event(uuid, bigint, text, text, interval, integer, text) is
  'Suspends a running job until an event comes or the timeout passes.  Returns when it gives up: in the year 9999 without a timeout.';

-- Has the event come?  Then the step is done, in the same statement.
create or replace function onceward.receive_event(
  p_job_id uuid, p_epoch bigint, p_step text, p_event text, p_seq integer default 0, p_version text default null
)
  returns table (state text, payload jsonb)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_tenant text;
  v_step   record;
begin
  perform onceward.check_event_name(p_event);
  select j.tenant into v_tenant from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  select s.state, s.result, s.until <= onceward.now() as is_over into v_step
    from onceward.step_private as s where s.job_id = p_job_id and s.name = p_step;
  -- What was heard once stays, also when the event came later or has expired since.
  if v_step.state = 'done' then
    state := v_step.result ->> 'state';
    payload := nullif(v_step.result -> 'payload', 'null');
    return next;
    return;
  end if;
  select 'received', e.payload into state, payload
    from onceward.event_private as e
   where e.tenant = v_tenant and e.name = p_event and e.expires_at > onceward.now();
  if not found then
    state := case when v_step.is_over then 'timeout' else 'waiting' end;
  end if;
  if state <> 'waiting' then
    perform onceward.write_step(p_job_id, p_epoch, p_step, 'event', 'done', p_seq, 1, null, null,
      jsonb_build_object('state', state, 'payload', payload), null, p_version);
  end if;
  return next;
end;
$$;
comment on function onceward.receive_event(uuid, bigint, text, text, integer, text) is
  'Whether an event has come for a running job that wants it (received, with its payload), the wait is over (timeout), or it has to wait (waiting).  The first two are stored as the step''s result.';

-- Children: enqueued together with the checkpoint that says so.
create or replace function onceward.spawn(
  p_job_id uuid, p_epoch bigint, p_step text, p_task text, p_payloads jsonb[], p_lane text default 'default',
  p_priority integer default 0, p_max_attempts integer default 8, p_retry jsonb default null, p_timeout interval default null,
  p_seq integer default 0, p_version text default null, p_uses jsonb default null,
  p_headers jsonb default null
)
  returns uuid[]
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_job  onceward.job_private;
  v_step record;
  v_ids  uuid[];
begin
  perform onceward.check_step_name(p_step);
  -- One at a time: the repetition of a call whose reply was lost may come before its forerunner has ended.
  select * into v_job from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null
     for no key update;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  select s.kind, s.result into v_step
    from onceward.step_private as s where s.job_id = p_job_id and s.name = p_step and s.state = 'done';
  if found then
    if v_step.kind <> 'spawn' then
      perform onceward.step_is_done(p_job_id, p_step);
    end if;
    return array(select e::uuid from jsonb_array_elements_text(v_step.result) with ordinality as u (e, i) order by u.i);
  end if;
  if cardinality(p_payloads) > 10000 then
    perform onceward.bad_argument('payloads', cardinality(p_payloads)::text, 'must be at most 10000',
      'Spawn the children in several steps.');
  end if;
  v_ids := array(select e.job_id from onceward.enqueue_many(
    p_task => p_task, p_payloads => p_payloads, p_lane => p_lane, p_priority => p_priority, p_max_attempts => p_max_attempts,
    p_retry => p_retry, p_timeout => p_timeout, p_tenant => v_job.tenant, p_headers => p_headers,
    p_workflow_id => coalesce(v_job.workflow_id, v_job.id), p_parent_id => v_job.id,
    p_uses => p_uses) as e);
  perform onceward.write_step(p_job_id, p_epoch, p_step, 'spawn', 'done', p_seq, 1, null, null, to_jsonb(v_ids), null, p_version);
  return v_ids;
end;
$$;
comment on function onceward.spawn(uuid, bigint, text, text, jsonb[], text, integer, integer, jsonb, interval, integer, text, jsonb, jsonb) is
  'Enqueues the children of a running job, once: the checkpoint is stored with them.  Returns their ids, also when it was done before.';

create or replace function onceward.join_jobs(
  p_job_id uuid, p_epoch bigint, p_step text, p_job_ids uuid[], p_seq integer default 0, p_version text default null
)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_job onceward.job_private;
begin
  v_job := onceward.suspend(p_job_id, p_epoch);
  if v_job.id is null then
    return;
  end if;
  perform onceward.check_after(v_job.tenant, p_job_ids, 'ignore', null);
  perform onceward.check_join(p_job_id, p_job_ids);
  perform onceward.write_step(p_job_id, p_epoch, p_step, 'join', 'waiting', p_seq, 0, null, null, null, null, p_version);
  -- What is left of an earlier wait.
  delete from onceward.dependency_private as d where d.job_id = p_job_id;
  perform onceward.add_dependencies(array[p_job_id], p_job_ids);
  perform onceward.end_suspended(v_job, 'blocked', onceward.now(), 'join');
end;
$$;
comment on function onceward.join_jobs(uuid, bigint, text, uuid[], integer, text) is
  'Suspends a running job until other jobs have ended or become dead letters.';

-- Nobody can wait for a job that waits for him, directly or through others.
create or replace function onceward.check_join(p_job_id uuid, p_job_ids uuid[])
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_other uuid;
begin
  with recursive dependent as (
    select p_job_id as id
    union
    select d.job_id from dependent as w join onceward.dependency_private as d on d.after_id = w.id and coalesce(d.outcome, '') = ''
  )
  select w.id into v_other from dependent as w where w.id = any (p_job_ids) limit 1;
  if found then
    raise exception 'job % cannot wait for job %, which waits for it', p_job_id, v_other
      using errcode = 'OW012', detail = 'Nothing was written.', hint = 'Join other jobs, or let that one start without waiting.';
  end if;
end;
$$;

create or replace function onceward.outcomes_of(p_job_id uuid, p_epoch bigint, p_job_ids uuid[])
  returns table (job_id uuid, state text, result jsonb, error jsonb)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text;
begin
  select j.tenant into v_tenant from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  return query
    select u.id, coalesce(j.state, a.state), a.result, coalesce(j.last_error, a.last_error)
      from unnest(p_job_ids) with ordinality as u (id, i)
      left join lateral (select l.state, l.last_error from onceward.job_private as l
                          where l.id = u.id and l.tenant = v_tenant) as j on true
      left join lateral (select r.state, r.result, r.last_error from onceward.archive_private as r
                          where r.id = u.id and r.tenant = v_tenant) as a on true
     order by u.i;
end;
$$;
comment on function onceward.outcomes_of(uuid, bigint, uuid[]) is
  'What became of other jobs, for the running job that waited for them: state, result and last error of each, in order.';
