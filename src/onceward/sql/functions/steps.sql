-- Steps: checkpoints inside a job.  Every write names (job, epoch), and the statement that checks the lease also writes.

create or replace function onceward.check_step_name(p_name text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_name is null or length(p_name) not between 1 and 200 or p_name ~ '[[:cntrl:]]' then
    perform onceward.bad_argument('step', p_name, 'must be 1 to 200 characters without control characters');
  end if;
end;
$$;

-- Write a step of a running job.  A step that is done stays as it is: the repetition of a call whose reply was lost
-- changes nothing.  The lock on the job keeps it from being rescued or ended before this transaction ends; it lets
-- others report progress meanwhile.
create or replace function onceward.write_step(
  p_job_id  uuid,
  p_epoch   bigint,
  p_name    text,
  p_kind    text,
  p_state   text,
  p_seq     integer,
  p_tries   integer,
  p_took    interval,
  p_until   timestamptz,
  p_result  jsonb,
  p_error   jsonb,
  p_version text
)
  returns onceward.job_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job onceward.job_private;
begin
  if p_name is null or length(p_name) not between 1 and 200 or p_name ~ '[[:cntrl:]]' then
    perform onceward.check_step_name(p_name);
  end if;
  if p_kind is null or p_kind not in ('step', 'transaction', 'sleep', 'event', 'spawn', 'join') then
    perform onceward.bad_argument('kind', p_kind, 'must be step, transaction, sleep, event, spawn or join');
  end if;
  select * into v_job from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null  -- running; see finish_many
     for key share;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  -- Ids of children are bounded by what may be spawned.
  if pg_column_size(p_result) > 1024 and p_kind <> 'spawn' then
    perform onceward.check_result(p_job_id, p_result);
  end if;
  insert into onceward.step_private as s
    (job_id, name, tenant, task, kind, state, seq, epoch, attempt, tries, started_at, finished_at, until, result, error, version)
  values
    (p_job_id, p_name, v_job.tenant, v_job.task, p_kind, p_state, coalesce(p_seq, 0), p_epoch, v_job.attempt,
     least(greatest(coalesce(p_tries, 1), 0), 1000000),
     onceward.now() - least(greatest(coalesce(p_took, interval '0'), interval '0'), interval '1 year'), case when p_state <> 'waiting' then onceward.now() end,
     p_until, p_result, p_error, left(p_version, 200))
      on conflict (job_id, name) do update
     set state = excluded.state, kind = excluded.kind, seq = excluded.seq, epoch = excluded.epoch, attempt = excluded.attempt,
         -- The same once more is the repetition of a call whose reply was lost: a step has one name, and fails once an attempt.
         tries = case when s.epoch = excluded.epoch and s.state = excluded.state then s.tries
                      else least(s.tries + excluded.tries, 1000000) end,
         -- A wait began when it was first written.
         started_at = case when s.state = 'waiting' then s.started_at else excluded.started_at end,
         finished_at = excluded.finished_at, until = coalesce(excluded.until, s.until), result = excluded.result,
         error = excluded.error, version = excluded.version
   where s.state <> 'done';
  -- The rows that the caller commits with it would be there twice.
  if not found and p_kind = 'transaction' and p_state = 'done' then
    perform onceward.step_is_done(p_job_id, p_name);
  end if;
  return v_job;
end;
$$;

create or replace function onceward.step_is_done(p_job_id uuid, p_name text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'step "%" of job % is already done', p_name, p_job_id
    using errcode = 'OW007',
          detail  = 'Another transaction has committed it.',
          hint    = 'Roll back: what this transaction did was done before. Read the result with onceward.steps_of.';
end;
$$;

create or replace function onceward.finish_step(
  p_job_id  uuid,
  p_epoch   bigint,
  p_name    text,
  p_result  jsonb default null,
  p_kind    text default 'step',
  p_seq     integer default 0,
  p_tries   integer default 1,
  p_took    interval default null,
  p_version text default null
)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
begin
  perform onceward.write_step(p_job_id, p_epoch, p_name, p_kind, 'done', p_seq, p_tries, p_took, null, p_result, null, p_version);
end;
$$;
comment on function onceward.finish_step(uuid, bigint, text, jsonb, text, integer, integer, interval, text) is
  'Stores the result of a step of a running job; one that is done stays as it is.  Called in the caller''s transaction, the caller''s rows and the checkpoint are committed together; with p_kind => ''transaction'', a step that is done is refused (OW007), so that those rows are not committed twice.';

create or replace function onceward.fail_step(
  p_job_id     uuid,
  p_epoch      bigint,
  p_name       text,
  p_error_type text,
  p_message    text,
  p_kind       text default 'step',
  p_seq        integer default 0,
  p_tries      integer default 1,
  p_took       interval default null,
  p_version    text default null
)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
begin
  perform onceward.write_step(p_job_id, p_epoch, p_name, p_kind, 'failed', p_seq, p_tries, p_took, null, null,
    jsonb_build_object('type', left(p_error_type, 200), 'message', left(p_message, 2000)), p_version);
end;
$$;
comment on function onceward.fail_step(uuid, bigint, text, text, text, text, integer, integer, interval, text) is
  'Records that a step of a running job failed.  The next attempt runs it again.';

create or replace function onceward.steps_of(p_job_id uuid, p_epoch bigint)
  returns table (name text, kind text, state text, result jsonb, is_over boolean, version text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform from onceward.job_private as j
    where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  return query
    select s.name, s.kind, s.state, s.result, s.until <= onceward.now(), s.version
      from onceward.step_private as s
     where s.job_id = p_job_id
     order by s.seq, s.name;
end;
$$;
comment on function onceward.steps_of(uuid, bigint) is
  'The steps of a running job, for the worker that holds it: what an earlier attempt has done.';
