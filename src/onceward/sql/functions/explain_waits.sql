-- Explain, what a job itself waits for: its time, an event, other jobs, its concurrency key.

create or replace function onceward.why_expired(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'expired',
         format('Expired at %s before it could start; the next worker that looks cancels it.', onceward.told(p_job.expires_at)),
         jsonb_build_object('expires_at', p_job.expires_at),
         null::timestamptz,
         'Enqueue it again with a later expires_at if it is still wanted.'
   where p_job.expires_at <= onceward.now()
$$;

create or replace function onceward.why_waits_for_event(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select 'waits_for_event',
         case when e.has_come then format('Event "%s" has come; the next worker that looks lets it go on.', n.name)
              else format('Waits for event "%s"%s.', n.name,
                          coalesce(' and gives up at ' || onceward.told(u.at), '')) end,
         jsonb_build_object('event', n.name, 'gives_up_at', u.at, 'has_come', e.has_come),
         u.at,
         case when not e.has_come then format('It goes on with "onceward event emit %s".', onceward.told_word(n.name)) end
    from (select substring(p_job.awaits from 7) as name) as n
   -- The year 9999: it waits for ever.
   cross join (select case when p_job.run_at < timestamptz '9999-01-01 00:00:00+00' then p_job.run_at end as at) as u
   cross join lateral (
     select exists (select from onceward.event_private as e
                     where e.tenant = p_job.tenant and e.name = n.name and e.expires_at > onceward.now()) as has_come) as e
   where p_job.state = 'scheduled' and p_job.awaits like 'event:%'
$$;

-- Blocked by other jobs: those of `after`, or those that it joins in the middle of its work.
create or replace function onceward.why_waits_for_jobs(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  c_most  constant integer := 1000;
  v_open  integer;
  v_first jsonb;
  v_step  text;
begin
  if p_job.state <> 'blocked' or p_job.awaits is null then
    return;
  end if;
  select count(*) into v_open
    from (select from onceward.dependency_private as d where d.job_id = p_job.id and d.outcome is null limit c_most + 1) as o;
  -- An edge leads to a job of the same tenant; if one ever did not, it would stay nameless.
  select jsonb_agg(case when onceward.sees_tenant(o.tenant)
                        then jsonb_build_object('job_id', o.after_id, 'task', o.task, 'node', o.node, 'state', o.state)
                        else jsonb_build_object('job_id', null, 'state', 'a job of another tenant') end)
    into v_first
    from (select d.after_id, coalesce(j.tenant, a.tenant) as tenant, coalesce(j.task, a.task) as task,
                 coalesce(j.node, a.node) as node, coalesce(j.state, a.state) as state
            from (select x.after_id from onceward.dependency_private as x
                   where x.job_id = p_job.id and x.outcome is null order by x.after_id limit 5) as d
            left join onceward.job_private as j on j.id = d.after_id
            left join onceward.archive_private as a on a.id = d.after_id) as o;
  if p_job.awaits = 'join' then
    select s.name into v_step from onceward.step_private as s
     where s.job_id = p_job.id and s.kind = 'join' and s.state = 'waiting' order by s.seq desc limit 1;
  end if;

  reason := 'waits_for_jobs';
  if v_open = 0 then
    sentence := 'Every job that it waits for has ended; the next worker that looks lets it go on.';
  else
    sentence := format('Waits%s for %s%s, the first: %s.',
      coalesce(' in step "' || onceward.shown(v_step) || '"', ''),
      case when v_open > c_most then 'more than ' else '' end, onceward.counted(least(v_open, c_most), 'job'),
      (select string_agg(format('%s (%s)', coalesce(f ->> 'node', f ->> 'task', 'a job of another tenant'),
                                concat_ws(', ', f ->> 'state', f ->> 'job_id')), '; ') from jsonb_array_elements(v_first) as f));
    next_step := (select format('Ask the same of it: "onceward job explain %s".', v_first -> 0 ->> 'job_id')
                   where v_first -> 0 ->> 'job_id' is not null);
  end if;
  detail := jsonb_build_object('open', least(v_open, c_most), 'jobs', coalesce(v_first, '[]'), 'policy', p_job.after_policy, 'step', v_step);
  return next;
end;
$$;

-- Scheduled: by whoever enqueued it, after a failure, put off by its handler, or asleep in a step.
create or replace function onceward.why_waits_for_time(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_last  record;
  v_sleep text;
begin
  if p_job.state <> 'scheduled' or p_job.awaits is not null then
    return;
  end if;
  select a.outcome, a.error_type, a.category, a.message, a.ended_at into v_last
    from onceward.attempt_private as a
   where a.job_id = p_job.id and a.epoch = p_job.epoch and (a.retry_at = p_job.run_at or a.outcome = 'suspended');
  if v_last.outcome = 'suspended' then
    select s.name into v_sleep from onceward.step_private as s
     where s.job_id = p_job.id and s.kind = 'sleep' and s.state = 'waiting' and s.until = p_job.run_at limit 1;
  end if;
  detail := jsonb_strip_nulls(jsonb_build_object('run_at', p_job.run_at, 'attempt', p_job.attempt, 'max_attempts', p_job.max_attempts));
  next_step := format('To start it without waiting: "onceward job run-now %s".', p_job.id);
  until := p_job.run_at;

  if v_last.outcome = 'snoozed' and onceward.is_for_no_worker(p_job, v_last.message) then
    -- That nobody knows its task is the reason, and is told as such.
    return;
  elsif p_job.run_at <= onceward.now() then
    reason := 'due';
    sentence := format('Its time has come, %s; the next worker that looks makes it ready, within about a second.', onceward.told(p_job.run_at));
    next_step := null;
    if not exists (select from onceward.worker_private as w where w.retired_at is null and w.expires_at > onceward.now()) then
      sentence := format('Its time has come, %s, and no worker is alive to make it ready.', onceward.told(p_job.run_at));
      next_step := 'Start a worker: "onceward worker package.module:app".';
    end if;
  elsif v_last.outcome = 'failed' then
    reason := 'retry';
    sentence := format('Attempt %s of %s failed%s; it is tried again at %s.', p_job.attempt, p_job.max_attempts,
      coalesce(' with ' || onceward.told_error(jsonb_build_object('type', v_last.error_type, 'message', v_last.message)), ''),
      onceward.told(p_job.run_at));
    detail := detail || jsonb_build_object('error', jsonb_strip_nulls(jsonb_build_object(
      'type', v_last.error_type, 'category', v_last.category, 'message', v_last.message, 'at', v_last.ended_at)));
  elsif v_last.outcome = 'snoozed' and v_last.message like 'this worker has no %' then
    -- The worker's own word: the handler was never asked, or could do nothing.
    reason := 'snoozed';
    sentence := format('The worker that took it has no %s. It is offered again at %s.',
                       substr(onceward.told_text(v_last.message), length('this worker has no ') + 1), onceward.told(p_job.run_at));
    detail := detail || jsonb_build_object('snoozes', p_job.snoozes, 'why', v_last.message);
  elsif v_last.outcome = 'snoozed' then
    reason := 'snoozed';
    sentence := format('Its handler put it off until %s%s.', onceward.told(p_job.run_at),
                       coalesce(': ' || onceward.told_text(v_last.message), ''));
    detail := detail || jsonb_build_object('snoozes', p_job.snoozes, 'why', v_last.message);
  elsif v_sleep is not null then
    reason := 'sleeps';
    sentence := format('Sleeps in step "%s" until %s.', onceward.shown(v_sleep), onceward.told(p_job.run_at));
    detail := detail || jsonb_build_object('step', v_sleep);
  elsif p_job.epoch = 0 and p_job.headers ? 'onceward.deferred' then
    reason := 'deferred';
    sentence := format('Was put off until %s when it was enqueued: %s.', onceward.told(p_job.run_at),
                       onceward.told_text(p_job.headers ->> 'onceward.deferred'));
    detail := detail || jsonb_build_object('why', p_job.headers ->> 'onceward.deferred');
  else
    reason := 'run_at';
    sentence := format('Is to start at %s, not before.', onceward.told(p_job.run_at));
  end if;
  return next;
end;
$$;

-- At most N jobs of its key are ready or running, and N are.
create or replace function onceward.why_waits_for_key(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  c_most    constant integer := 1000;
  v_held    integer;
  v_ahead   integer;
  v_holders jsonb;
begin
  if p_job.state <> 'blocked' or p_job.awaits is not null then
    return;
  end if;
  select count(*),
         coalesce(jsonb_agg(jsonb_build_object('job_id', h.id, 'task', h.task, 'state', h.state, 'since', h.started_at,
                                               'worker', h.worker) order by h.n) filter (where h.n <= 5), '[]')
    into v_held, v_holders
    from (select j.id, j.task, j.state, j.started_at, w.name as worker, row_number() over (order by j.started_at nulls last, j.id) as n
            from (select k.* from onceward.job_private as k
                   where k.concurrency_hash = p_job.concurrency_hash and k.tenant = p_job.tenant and k.concurrency_key = p_job.concurrency_key
                     and k.state in ('ready', 'running') and k.awaits is null limit c_most) as j
            left join onceward.worker_private as w on w.id = j.worker_id) as h;
  select count(*) into v_ahead
    from (select from onceward.job_private as j
           where j.concurrency_hash = p_job.concurrency_hash and j.state = 'blocked' and j.awaits is null
             and j.tenant = p_job.tenant and j.concurrency_key = p_job.concurrency_key
             and (j.priority > p_job.priority or (j.priority = p_job.priority and j.id < p_job.id))
           limit c_most) as a;

  reason := 'waits_for_key';
  sentence := case
    when v_held < p_job.concurrency_limit and v_ahead = 0 then
      format('Its concurrency key "%s" has room; the next worker that looks lets it in, within about a second.', onceward.shown(p_job.concurrency_key))
    else
      format('Waits for its concurrency key "%s": at most %s at once, held by %s%s.', onceward.shown(p_job.concurrency_key),
        p_job.concurrency_limit,
        (select string_agg(format('job %s (%s)', h ->> 'job_id',
                  case h ->> 'state' when 'running'
                    then format('%s, on worker "%s" since %s', h ->> 'task', h ->> 'worker', onceward.told((h ->> 'since')::timestamptz))
                    else format('%s, ready and not yet claimed', h ->> 'task') end), '; ')
           from jsonb_array_elements(v_holders) as h),
        case when v_ahead > 0 then format('; %s of the key %s before it', onceward.counted(v_ahead, 'job'),
                                          case when v_ahead = 1 then 'waits' else 'wait' end) else '' end) end;
  detail := jsonb_build_object('key', p_job.concurrency_key, 'limit', p_job.concurrency_limit, 'held', v_held, 'ahead', v_ahead,
                               'holders', v_holders);
  next_step := (select format('Ask what holds it: "onceward job explain %s".', v_holders -> 0 ->> 'job_id')
                 where v_held > 0 and (v_held >= p_job.concurrency_limit or v_ahead > 0));
  return next;
end;
$$;
