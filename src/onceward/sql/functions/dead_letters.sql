-- What a person does with a job that gave up: run it again, perhaps with another payload, or declare it settled.

create or replace function onceward.requeue(
  p_job_id  uuid,
  p_payload jsonb default null,
  p_run_at  timestamptz default null
)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job   onceward.job_private;
  v_state text;
  v_cap   integer;
  v_was   text := 'dead_letter';
begin
  select * into v_job from onceward.job_private as j where j.id = p_job_id for update;
  if not found then
    v_was := onceward.unarchive(p_job_id);
    select * into v_job from onceward.job_private as j where j.id = p_job_id for update;
  else
    perform onceward.check_tenant(v_job.tenant);
    if v_job.state <> 'dead_letter' then
      perform onceward.wrong_state('requeue', p_job_id, v_job.state,
        'Only dead letters and cancelled or resolved jobs are requeued; start a scheduled job now with onceward.run_now.');
    end if;
  end if;
  perform onceward.check_run_at(p_run_at);
  if p_payload is not null and p_payload <> v_job.payload then
    perform onceward.check_payload(p_payload);
    select max_payload_bytes into v_cap from onceward.lane_private where name = v_job.lane;
    if pg_column_size(p_payload) > v_cap then
      perform onceward.payload_too_large(p_payload, v_cap, v_job.lane);
    end if;
    insert into onceward.payload_edit_private (job_id, edited_at, tenant, edited_by, payload_before)
    values (p_job_id, clock_timestamp(), v_job.tenant, onceward.actor(), v_job.payload);
    -- Who repeats the call that made the job sends the old payload.
    update onceward.key_private as k
       set payload_hash = sha256(convert_to(v_job.payload::text, 'UTF8'))
     where k.tenant = v_job.tenant and k.task = v_job.task and k.key = v_job.key and k.job_id = p_job_id and k.payload_hash is null;
  end if;

  v_state := case when p_run_at > onceward.now() then 'scheduled'
                  when v_job.concurrency_key is not null then 'blocked'
                  else 'ready' end;
  update onceward.job_private as j
     set state      = v_state,
         payload    = coalesce(p_payload, j.payload),
         attempt    = 0,
         snoozes    = 0,
         run_at     = greatest(p_run_at, onceward.now()),
         started_at = null,
         ready_seq  = case when v_state = 'ready' then nextval('onceward.ready_seq') end,
         expires_at = case when j.expires_at > greatest(p_run_at, onceward.now()) then j.expires_at end,
         dead_at    = null,
         cancel_at  = null,
         cancel_reason = null,
         progress   = null
   where j.id = p_job_id;
  if v_job.task = 'onceward.deliver' then
    if p_payload <> v_job.payload then
      perform onceward.bad_argument('payload', p_payload::text, 'of a delivery cannot be changed',
        'Make a new delivery under another key.');
    end if;
    perform onceward.delivery_follows(p_job_id, 'requeued', null);
  end if;
  v_job.state := v_was;
  perform onceward.audit_job(v_job, 'job.requeued', v_state, null, jsonb_build_object(
    'run_at', p_run_at, 'payload_edited', case when p_payload <> v_job.payload then true end));
  if v_state = 'blocked' then
    perform onceward.ask_admission(v_job.tenant, v_job.concurrency_key);
  end if;
  perform onceward.wake(array[v_job.lane]);
  return v_state;
end;
$$;
comment on function onceward.requeue(uuid, jsonb, timestamptz) is
  'Runs a dead letter (or a cancelled or resolved job) again with fresh attempts, optionally with an edited payload; the old payload is kept.  Returns the new state.';

-- Bring a cancelled or resolved job back to the live table.  Returns the state it was in.
create or replace function onceward.unarchive(p_job_id uuid)
  returns text
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job    onceward.archive_private;
  v_holder uuid;
  v_again  boolean := false;
begin
  select * into v_job from onceward.archive_private as a where a.id = p_job_id for update;
  if not found then
    -- Somebody who was faster may have brought it back.
    perform onceward.wrong_state('requeue', p_job_id, j.state, 'Somebody else has just requeued it.')
       from onceward.job_private as j where j.id = p_job_id;
    perform onceward.no_such_job(p_job_id);
  end if;
  perform onceward.check_tenant(v_job.tenant);
  if v_job.state = 'done' then
    perform onceward.wrong_state('requeue', p_job_id, 'done', 'The work is done. Enqueue a new job to do it again.');
  end if;
  if v_job.key is not null then
    -- The key is still this job's when its window outlived it; a key that lived with the job is taken back.
    insert into onceward.key_private (tenant, task, key, job_id, payload_hash)
    values (v_job.tenant, v_job.task, v_job.key, p_job_id, sha256(convert_to(v_job.payload::text, 'UTF8')))
        on conflict do nothing;
    v_again := found;
    select k.job_id into v_holder from onceward.key_private as k
     where k.tenant = v_job.tenant and k.task = v_job.task and k.key = v_job.key and k.job_id <> p_job_id;
    if found then
      raise exception 'cannot requeue job %: its key "%" is taken', p_job_id, onceward.shown(v_job.key)
        using errcode = 'OW007', detail = format('Job %s holds the key.', v_holder),
              hint = 'That job does the work. Enqueue a new job under another key to do it again.';
    end if;
  end if;
  delete from onceward.archive_private as a where a.id = p_job_id;
  insert into onceward.job_private
    (id, tenant, lane, task, state, priority, epoch, attempt, max_attempts, created_at, run_at, payload,
     expires_at, timeout, retry, headers, key, key_is_live, concurrency_key, concurrency_limit, concurrency_hash, dead_at,
     last_error, workflow_id, parent_id, node, after, after_policy, line, uses)
  values
    (v_job.id, v_job.tenant, v_job.lane, v_job.task, 'dead_letter', v_job.priority, v_job.epoch, v_job.attempt,
     v_job.max_attempts, v_job.created_at, v_job.run_at, v_job.payload, v_job.expires_at, v_job.timeout,
     v_job.retry, v_job.headers, v_job.key, v_again, v_job.concurrency_key, v_job.concurrency_limit,
     hashtextextended(v_job.tenant || E'\x1f' || v_job.concurrency_key, 0), onceward.now(), v_job.last_error, v_job.workflow_id, v_job.parent_id, v_job.node, v_job.after, v_job.after_policy,
     onceward.line_of((select l.fair from onceward.lane_private as l where l.name = v_job.lane), v_job.tenant, v_job.uses), v_job.uses);
  return v_job.state;
end;
$$;

create or replace function onceward.resolve(p_job_id uuid, p_note text, p_override boolean default false)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job     onceward.job_private;
  v_check   text;
  v_problem text;
begin
  if p_note is null or length(trim(p_note)) = 0 then
    perform onceward.bad_argument('note', p_note, 'must say how the job was settled');
  end if;
  select * into v_job from onceward.job_private as j where j.id = p_job_id for update;
  if not found then
    if exists (select from onceward.archive_private as a where a.id = p_job_id) then
      perform onceward.check_tenant(a.tenant) from onceward.archive_private as a where a.id = p_job_id;
      perform onceward.wrong_state('resolve', p_job_id, (select a.state from onceward.archive_private as a where a.id = p_job_id),
        'Only a dead letter is resolved.');
    end if;
    perform onceward.no_such_job(p_job_id);
  end if;
  perform onceward.check_tenant(v_job.tenant);
  if v_job.state <> 'dead_letter' then
    perform onceward.wrong_state('resolve', p_job_id, v_job.state, 'Only a dead letter is resolved; cancel a job that waits.');
  end if;

  select t.resolve_check into v_check from onceward.task_private as t where t.name = v_job.task;
  if v_check is not null then
    begin
      execute format('select %s($1)', v_check) into v_problem using p_job_id;
    exception
      -- A check that is broken does not pass; a person can still override it.
      when others then
        v_problem := format('%s failed: %s', v_check, sqlerrm);
    end;
    if v_problem is not null and not coalesce(p_override, false) then
      raise exception 'check of task "%" does not pass for job %', v_job.task, p_job_id
        using errcode = 'OW010', detail = v_problem,
              hint = 'Mend what the check names, or resolve with the override; it is recorded.';
    end if;
  end if;
  perform onceward.archive_one(p_job_id, 'resolved',
    format('%s (by %s%s)', trim(p_note), onceward.actor(),
           case when v_problem is not null then '; check overridden: ' || v_problem else '' end));
end;
$$;
comment on function onceward.resolve(uuid, text, boolean) is
  'Settles a dead letter by hand.  The note is required; when the task names a check, it must pass or be overridden, which is recorded in the note.';

create or replace function onceward.set_resolve_check(p_task text, p_check regprocedure)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
  v_was  text := (select t.resolve_check from onceward.task_private as t where t.name = p_task);
begin
  if p_task is null or length(p_task) not between 1 and 200 or p_task ~ '[^A-Za-z0-9_.:/-]' then
    perform onceward.bad_argument('task', p_task, 'must be 1 to 200 letters, digits or . _ : / -');
  end if;
  select format('%I.%I', n.nspname, p.proname) into v_name
    from pg_proc as p
    join pg_namespace as n on n.oid = p.pronamespace
   where p.oid = p_check and p.pronargs = 1 and p.proargtypes[0] = 'uuid'::regtype and p.prorettype = 'text'::regtype;
  if not found and p_check is not null then
    perform onceward.bad_argument('check', p_check::text, 'must be a function (job_id uuid) returns text',
      'Return null when the job may be resolved, else say what is missing.');
  end if;
  insert into onceward.task_private (name, resolve_check, first_seen_at, last_seen_at)
  values (p_task, v_name, onceward.now(), onceward.now())
      on conflict (name) do update set resolve_check = excluded.resolve_check;
  if v_name is distinct from v_was then
    perform onceward.audit('task.changed', p_entity_type => 'task', p_entity_id => p_task,
      p_before => jsonb_build_object('resolve_check', v_was), p_after => jsonb_build_object('resolve_check', v_name));
  end if;
end;
$$;
comment on function onceward.set_resolve_check(text, regprocedure) is
  'Names the SQL function (job_id uuid) returns text that must return null before a dead letter of this task is resolved.  For owners only: the function runs with the owner''s rights.';

-- Start a waiting job without waiting for its time.
create or replace function onceward.run_now(p_job_id uuid)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job onceward.job_private;
begin
  select * into v_job from onceward.job_private as j where j.id = p_job_id for update;
  if not found then
    perform onceward.no_such_job(p_job_id);
  end if;
  perform onceward.check_tenant(v_job.tenant);
  if v_job.state <> 'scheduled' then
    perform onceward.wrong_state('start', p_job_id, v_job.state, 'Only a scheduled job is started early.');
  end if;
  update onceward.job_private as j
     set state     = case when j.concurrency_key is null then 'ready' else 'blocked' end,
         run_at    = onceward.now(),
         awaits    = null,
         ready_seq = case when j.concurrency_key is null then nextval('onceward.ready_seq') end
   where j.id = p_job_id;
  perform onceward.audit_job(v_job, 'job.run_now', case when v_job.concurrency_key is null then 'ready' else 'blocked' end);
  if v_job.concurrency_key is not null then
    perform onceward.ask_admission(v_job.tenant, v_job.concurrency_key);
  end if;
  perform onceward.wake(array[v_job.lane]);
  return (select j.state from onceward.job_private as j where j.id = p_job_id);
end;
$$;
comment on function onceward.run_now(uuid) is 'Makes a scheduled job ready now.  Returns its state.';
