-- Explain, the reasons of jobs that run, have ended or gave up, and of those that are not there.

create or replace function onceward.why_running(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'running',
         format('Runs since %s on worker "%s", attempt %s of %s.', onceward.told(p_job.started_at),
                onceward.shown(w.name), p_job.attempt, p_job.max_attempts),
         jsonb_build_object('since', p_job.started_at, 'worker_id', w.id, 'worker', w.name, 'host', w.host, 'pid', w.pid,
                            'attempt', p_job.attempt, 'max_attempts', p_job.max_attempts, 'progress', p_job.progress),
         p_job.started_at + p_job.timeout,
         null::text
    from onceward.worker_private as w
   where w.id = p_job.worker_id and w.retired_at is null and w.expires_at > onceward.now()
$$;

create or replace function onceward.why_cancelling(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'cancelling',
         format('Somebody asked it to stop at %s%s; its worker ends it as soon as the handler lets go.',
                onceward.told(p_job.cancel_at), coalesce(': ' || onceward.told_text(p_job.cancel_reason), '')),
         jsonb_build_object('asked_at', p_job.cancel_at, 'reason', p_job.cancel_reason),
         null::timestamptz,
         'A sync handler has to look at job.cancelled; one that does not is only stopped by its timeout or with its worker.'
   where p_job.cancel_at is not null
$$;

-- The worker is gone, or has kept the job past its timeout; the next rescue takes it.
create or replace function onceward.why_lease_over(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_worker onceward.worker_private;
  v_live   boolean := onceward.worker_is_live(p_job.worker_id);
  v_next   text;
begin
  if v_live and (p_job.timeout is null or p_job.started_at + p_job.timeout + interval '1 minute' >= onceward.now()) then
    return;
  end if;
  select * into v_worker from onceward.worker_private as w where w.id = p_job.worker_id;
  v_next := case when p_job.cancel_at is not null then 'it is cancelled then, as was asked'
                 when p_job.attempt >= p_job.max_attempts then 'it becomes a dead letter then, because its attempts are used up'
                 else 'it starts again then' end;
  reason := 'lease_over';
  sentence := case
    when v_live then format('Has run longer than its timeout of %s on worker "%s"; the next rescue takes it away, and %s.',
                            onceward.told_span(p_job.timeout), onceward.shown(v_worker.name), v_next)
    else format('Its worker %s is gone, last heard of at %s; the next rescue takes the job over, and %s.',
                coalesce('"' || onceward.shown(v_worker.name) || '"', p_job.worker_id::text),
                onceward.told(coalesce(v_worker.heartbeat_at, p_job.started_at)), v_next) end;
  detail := jsonb_build_object('worker_id', p_job.worker_id, 'worker', v_worker.name, 'host', v_worker.host,
    'since', p_job.started_at, 'heartbeat_at', v_worker.heartbeat_at, 'attempt', p_job.attempt, 'max_attempts', p_job.max_attempts);
  next_step := case when exists (select from onceward.worker_private as w
                                  where w.retired_at is null and w.expires_at > onceward.now())
                    then 'Any live worker does that within a few seconds.'
                    else 'No worker is alive to do that: start one.' end;
  return next;
end;
$$;

create or replace function onceward.why_dead_letter(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'dead_letter',
         format('Gave up at %s after attempt %s of %s%s.', onceward.told(p_job.dead_at), p_job.attempt, p_job.max_attempts,
                coalesce(': ' || onceward.told_error(p_job.last_error), '')),
         jsonb_build_object('dead_at', p_job.dead_at, 'attempt', p_job.attempt, 'max_attempts', p_job.max_attempts,
                            'error', p_job.last_error - 'traceback'),
         null::timestamptz,
         case p_job.last_error ->> 'category'
           when 'uncertain' then
             format('Find out whether it arrived, then "onceward delivery decide %s".', p_job.id)
           when 'payload' then
             format('The payload does not fit the handler: mend either, then "onceward dead-letter requeue %s", with --payload if it is the payload.', p_job.id)
           when 'result' then
             format('The work is done, and its result could not be kept: "onceward dead-letter resolve %s" with a note, or mend the handler and requeue.', p_job.id)
           when 'lost_worker' then
             format('Its worker died each time: look for memory or a crash of the handler, then "onceward dead-letter requeue %s".', p_job.id)
           when 'timeout' then
             format('It ran out of time: raise the timeout or make the handler faster, then "onceward dead-letter requeue %s".', p_job.id)
           when 'snoozes_used_up' then
             format('It was put off too often: see what it waits for, then "onceward dead-letter requeue %s".', p_job.id)
           else format('Mend the cause, then "onceward dead-letter requeue %s"; or resolve it with a note.', p_job.id)
         end
$$;

create or replace function onceward.why_ended(p_job onceward.archive_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select p_job.state,
         case p_job.state
           when 'done' then format('Done at %s, in attempt %s, which took %s.', onceward.told(p_job.finished_at), p_job.attempt,
                                   onceward.told_span(p_job.finished_at - coalesce(p_job.started_at, p_job.finished_at)))
           when 'cancelled' then format('Cancelled at %s%s.', onceward.told(p_job.finished_at), n.note)
           else format('Resolved by hand at %s%s.', onceward.told(p_job.finished_at), n.note) end,
         jsonb_build_object('finished_at', p_job.finished_at, 'attempt', p_job.attempt, 'max_attempts', p_job.max_attempts,
                            'note', p_job.finish_note, 'error', p_job.last_error - 'traceback'),
         null::timestamptz,
         case when p_job.state <> 'done' then format('To run it after all: "onceward job requeue %s".', p_job.id) end
    from (select coalesce(': ' || onceward.told_text(p_job.finish_note), '') as note) as n
$$;

-- An id of version 7 begins with the time of its making, in milliseconds.  Null for others.
create or replace function onceward.made_at(p_id uuid)
  returns timestamptz
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select to_timestamp(('x' || substring(replace(p_id::text, '-', '') from 1 for 12))::bit(48)::bigint / 1000.0)
   where substring(p_id::text from 15 for 1) = '7'
$$;

-- No job of this id that the caller may see.  What outlived the job may still know it.
create or replace function onceward.why_unknown(p_job_id uuid)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_trace   record;
  v_created timestamptz := onceward.made_at(p_job_id);
  -- To the day, as partitions are: when exactly somebody's oldest job was made is nobody else's business.
  v_oldest  timestamptz := date_trunc('day', onceward.made_at((select a.id from onceward.archive_private as a order by a.id limit 1)), 'UTC');
begin
  select t.tenant, t.task, t.what, t.at into v_trace
    from (select a.tenant, a.task, format('attempt %s ended as %s', a.attempt, a.outcome) as what, a.ended_at as at
            from onceward.attempt_private as a where a.job_id = p_job_id
          union all
          select s.tenant, s.task, format('step "%s" was %s', onceward.shown(s.name), s.state), coalesce(s.finished_at, s.started_at)
            from onceward.step_private as s where s.job_id = p_job_id
          union all
          select d.tenant, 'onceward.deliver', format('the delivery was %s', d.state), coalesce(d.ended_at, d.created_at)
            from onceward.delivery_private as d where d.id = p_job_id) as t
   where onceward.sees_tenant(t.tenant)
     and not exists (select from onceward.job_private as j where j.id = p_job_id)
     and not exists (select from onceward.archive_private as a where a.id = p_job_id)
   order by t.at desc
   limit 1;
  if found then
    reason := 'removed';
    sentence := format('The job itself is no longer kept.  It was of task "%s", and the last that is known: %s at %s.',
                       v_trace.task, v_trace.what, onceward.told(v_trace.at));
    detail := jsonb_build_object('task', v_trace.task, 'created_at', v_created, 'last_known_at', v_trace.at);
  elsif v_created < v_oldest then
    reason := 'removed';
    sentence := format('No such job is kept.  Its id was made at %s, and the archive begins later: it may have been removed since.',
                       onceward.told(v_created));
    detail := jsonb_build_object('created_at', v_created);
  else
    reason := 'unknown';
    sentence := 'No such job: it was never committed, or this session may not see it.';
    detail := jsonb_build_object('created_at', v_created);
    next_step := 'Look for it with "onceward job list"; a role that does not own the schema has to name the tenant.';
  end if;
  return next;
end;
$$;
