-- What a program calls that works jobs in SQL, beside or instead of Onceward's worker.
-- A claim is a lease on the engine's job; every later call is checked against it, so that a late report is refused.

create or replace function intake.claim_next_job_v3(worker_id text, job_types text[] default null, job_lanes text[] default null)
  returns setof intake.claimed_job
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  p_worker alias for $1;
  p_types  alias for $2;
  p_lanes  alias for $3;
  v_lanes  text[];
  v_engine uuid;
  v_job    record;
begin
  if p_worker is null or p_worker !~ '^[[:graph:]]{1,100}$' then
    raise exception 'worker_id must be 1 to 100 characters without spaces' using errcode = 'OW008';
  end if;
  v_lanes := array(select distinct t.job_lane from intake.job_types() as t
                    where (p_types is null or t.job_type = any (p_types)) and (p_lanes is null or t.job_lane = any (p_lanes)));
  -- Where no worker runs, nobody else takes back what a dead program held, or lets in what is due.
  perform onceward.rescue(100, false);
  perform onceward.promote();
  if cardinality(v_lanes) = 0
     or not exists (select from onceward.jobs as j where j.lane = any (v_lanes) and j.state = 'ready') then
    return;
  end if;
  v_engine := onceward.register_worker(p_worker, v_lanes, p_host => 'sql', p_pid => pg_backend_pid(),
    p_lease => make_interval(secs => intake.setting_number('worker.timeout_seconds', 300)::double precision));
  -- A lane has jobs of several types: the first that is wanted is kept, the others go back and lose nothing.
  for v_job in
    select c.job_id, c.epoch, split_part(c.task, '.', 2) as task_type, c.payload, c.attempt
      from onceward.claim(v_engine, v_lanes, 50) as c
     order by c.priority desc, c.ready_seq
  loop
    exit when v_job.task_type in (select t.job_type from intake.job_types() as t) and (p_types is null or v_job.task_type = any (p_types));
    v_job := null;
  end loop;
  if v_job is null then
    perform onceward.retire_worker(v_engine);
    return;
  end if;
  perform onceward.release(v_engine, array_agg(j.id))
     from onceward.jobs as j
    where j.worker_id = v_engine and j.state = 'running' and j.id <> v_job.job_id
   having count(*) > 0;
  insert into intake.job_claims as k (job_id, epoch, engine_worker, worker_id, claimed_at)
  values (v_job.job_id, v_job.epoch, v_engine, p_worker, onceward.now())
      on conflict on constraint job_claims_pkey do update
     set epoch = excluded.epoch, engine_worker = excluded.engine_worker, worker_id = excluded.worker_id, claimed_at = excluded.claimed_at;
  return next row (v_job.job_id, v_job.task_type, v_job.payload, v_job.attempt - 1)::intake.claimed_job;
end;
$$;
comment on function intake.claim_next_job_v3(text, text[], text[]) is
  'Claims the next job of these types and lanes for worker.timeout_seconds, or returns no row.  An attempt is counted here.';

-- The claim under which this worker holds the job, or no row: it is over, was never made, or is another one's.
create or replace function intake.held_claim(p_job_id uuid, p_worker_id text)
  returns intake.job_claims
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select k from intake.job_claims as k
    join onceward.jobs as j on j.id = k.job_id and j.state = 'running' and j.epoch = k.epoch and j.worker_id = k.engine_worker
   where k.job_id = p_job_id and k.worker_id = p_worker_id
$$;

create or replace function intake.end_claim(p_claim intake.job_claims)
  returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from intake.job_claims as k where k.job_id = p_claim.job_id and k.epoch = p_claim.epoch;
  perform onceward.retire_worker(p_claim.engine_worker);
end;
$$;

create or replace function intake.update_job_heartbeat(p_job_id uuid, p_worker_id text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_claim intake.job_claims := intake.held_claim(p_job_id, p_worker_id);
begin
  if v_claim.job_id is null then
    return false;
  end if;
  perform onceward.heartbeat(v_claim.engine_worker);
  return true;
exception
  when sqlstate 'OW009' then return false;  -- the lease is over
end;
$$;
comment on function intake.update_job_heartbeat(uuid, text) is
  'Renews the lease of a claimed job.  False when the caller does not hold it any more: stop working on it.';

create or replace function intake.complete_job(p_job_id uuid, p_worker_id text, p_job_result jsonb default null)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_claim   intake.job_claims := intake.held_claim(p_job_id, p_worker_id);
  v_profile uuid;
begin
  -- True when this call ended the job, and then only it is in the audit log (H2).
  if v_claim.job_id is null then
    return false;
  end if;
  select intake.as_uuid(j.tenant) into v_profile from onceward.jobs as j where j.id = p_job_id;
  perform onceward.complete(p_job_id, v_claim.epoch, p_job_result);
  perform intake.end_claim(v_claim);
  perform intake.log_audit_event('job_queue', p_job_id::text, 'UPDATE', null,
    jsonb_build_object('status', 'completed', 'job_id', p_job_id, 'worker_id', p_worker_id),
    'Job completed successfully', 'system', v_profile);
  return true;
exception
  when sqlstate 'OW001' then return false;  -- somebody else was faster
end;
$$;
comment on function intake.complete_job(uuid, text, jsonb) is
  'Ends a job that the caller holds.  Returns whether it did; a job that is unknown, over, or another one''s is left alone.';

create or replace function intake.reschedule_job(
  p_job_id        uuid,
  p_delay_seconds integer,
  p_reason        text,
  p_add_jitter    boolean default true,
  p_worker_id     text default null
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_claim   intake.job_claims;
  v_jitter  integer := 0;
  v_profile uuid;
  v_state   text;
begin
  if p_delay_seconds is null or p_delay_seconds not between 0 and 86400 then
    raise exception 'p_delay_seconds must be between 0 and 86400' using errcode = 'OW008';
  end if;
  -- Needs the lease (H4): that of the worker named, or of the claim that was made in SQL.
  v_claim := intake.held_claim(p_job_id, coalesce(p_worker_id, (select k.worker_id from intake.job_claims as k where k.job_id = p_job_id)));
  if v_claim.job_id is null then
    return false;
  end if;
  if coalesce(p_add_jitter, true) then
    v_jitter := (random() * least(p_delay_seconds * 0.5, 30, intake.setting_number('worker.reclaim_jitter_max_seconds', 60)))::integer;
  end if;
  select intake.as_uuid(j.tenant) into v_profile from onceward.jobs as j where j.id = p_job_id;
  -- Counted and bounded, and no attempt is used up.
  select s.state into v_state
    from onceward.snooze(p_job_id, v_claim.epoch, make_interval(secs => p_delay_seconds + v_jitter), left(p_reason, 200)) as s;
  perform intake.end_claim(v_claim);
  perform intake.log_audit_event('job_queue', p_job_id::text, 'UPDATE', null,
    jsonb_build_object('status', intake.job_status(v_state), 'job_id', p_job_id, 'reschedule_delay_seconds', p_delay_seconds,
                       'jitter_seconds', v_jitter, 'worker_id', v_claim.worker_id),
    'Job rescheduled', 'system', v_profile);
  return true;
exception
  when sqlstate 'OW001' then return false;
end;
$$;
comment on function intake.reschedule_job(uuid, integer, text, boolean, text) is
  'Puts off a job that the caller holds, with jitter of up to half the delay.  Counted; after worker.max_snoozes it is a dead letter.  Returns whether it did.';

create or replace function intake.fail_job(p_job_id uuid, p_worker_id text, p_error_type text, p_error_message text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_claim intake.job_claims := intake.held_claim(p_job_id, p_worker_id);
begin
  if v_claim.job_id is null then
    return false;
  end if;
  perform onceward.fail(p_job_id, v_claim.epoch, coalesce(p_error_type, 'api_error'), coalesce(p_error_message, 'no reason given'));
  perform intake.end_claim(v_claim);
  return true;
exception
  when sqlstate 'OW001' then return false;
end;
$$;
comment on function intake.fail_job(uuid, text, text, text) is
  'Reports that an attempt of a job that the caller holds has failed: it is tried again, or a dead letter.  Beyond the contract, which lets a program only wait for its lease to end.';

-- ------------------------------------------------------------ capacity

create or replace function intake.acquire_api_capacity(p_provider_name text, p_api_endpoint text, p_estimated_tokens integer default 1000)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_provider intake.api_providers;
  v_hold     uuid;
begin
  select * into v_provider from intake.api_providers as p
   where p.provider_name = p_provider_name and p.api_endpoint = p_api_endpoint;
  if not found then
    raise exception 'provider "%" has no endpoint "%"', left(p_provider_name, 60), left(p_api_endpoint, 60)
      using errcode = 'OW008', hint = 'See intake.api_rate_limits.';
  end if;
  if p_estimated_tokens is null or p_estimated_tokens not between 0 and 1000000 then
    raise exception 'p_estimated_tokens must be between 0 and 1000000' using errcode = 'OW008';
  end if;
  if v_provider.status <> 'active' then
    return false;
  end if;
  -- What is more than the limit gives at once is reserved as far as it goes, and settled as a debt.
  select a.hold_id into v_hold
    from onceward.acquire(v_provider.limit_name,
           p_weight => case when v_provider.tokens_per_minute is null then 0
                            else least(p_estimated_tokens, coalesce(v_provider.tokens_at_once, p_estimated_tokens)) end,
           p_lease => make_interval(secs => intake.setting_number('worker.timeout_seconds', 300)::double precision)) as a;
  if v_hold is null then
    return false;
  end if;
  insert into intake.api_calls (provider_name, api_endpoint, estimated_tokens, hold_id)
  values (p_provider_name, p_api_endpoint, p_estimated_tokens, v_hold);
  return true;
end;
$$;
comment on function intake.acquire_api_capacity(text, text, integer) is
  'Takes one request and the estimated tokens of a provider''s limit.  False when there is no room.  What is not released ends with its lease.';

create or replace function intake.release_api_capacity(
  p_provider_name text, p_api_endpoint text, p_estimated_tokens integer, p_actual_tokens integer
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_call intake.api_calls;
begin
  if p_actual_tokens is null or p_actual_tokens < 0 then
    raise exception 'p_actual_tokens must not be negative' using errcode = 'OW008';
  end if;
  -- Calls of one estimate are alike: which of them is settled makes no difference to the sum.
  update intake.api_calls as c
     set released_at = onceward.now(), actual_tokens = p_actual_tokens
   where c.id = (select o.id from intake.api_calls as o
                  where o.provider_name = p_provider_name and o.api_endpoint = p_api_endpoint
                    and o.estimated_tokens = p_estimated_tokens and o.released_at is null and o.hold_id is not null
                  order by o.acquired_at limit 1 for update skip locked)
  returning * into v_call;
  if not found then
    return false;
  end if;
  begin
    if exists (select from intake.api_providers as p where p.provider_name = p_provider_name and p.api_endpoint = p_api_endpoint
                  and p.tokens_per_minute is not null) then
      perform onceward.settle_hold(v_call.hold_id, p_actual_tokens);
    end if;
    return onceward.release_hold(v_call.hold_id);
  exception
    when sqlstate 'OW032' then return false;  -- its lease was over, and with it the hold
  end;
end;
$$;
comment on function intake.release_api_capacity(text, text, integer, integer) is
  'Says how many tokens a call has really used, to the unit, and gives its place back.  False when nothing of the kind is held.';

-- Limits of the engine: for the providers of the table, and for how many files are read at once.  What a person has set stays.
create or replace function intake.declare_limits()
  returns integer
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  select onceward.declare_limits(jsonb_agg(l.spec))
    from (select jsonb_strip_nulls(jsonb_build_object(
            'name', p.limit_name, 'requests', p.requests_per_minute, 'period', '1 minute', 'weight', p.tokens_per_minute,
            'weight_burst', p.tokens_at_once, 'slots', p.concurrent_requests, 'threshold', p.backpressure_threshold)) as spec
            from intake.api_providers as p
           union all
          select jsonb_build_object('name', 'intake:fast_queue', 'slots', intake.setting_number('worker.fast_queue_slots', 2)::integer)) as l
$$;
select intake.declare_limits();

create or replace view intake.api_rate_limits as
select p.provider_name, p.api_endpoint,
       coalesce(l.requests, p.requests_per_minute) as requests_per_minute,
       coalesce(l.weight, p.tokens_per_minute) as tokens_per_minute,
       coalesce(l.slots, p.concurrent_requests) as concurrent_requests,
       u.requests as current_requests_minute, u.tokens as current_tokens_minute,
       greatest(coalesce(l.slots_held, 0), u.held) as active_requests,
       l.requests_left, l.weight_left as tokens_left, l.next_room_at,
       p.backpressure_threshold, p.backpressure_delay_seconds,
       case when p.status = 'active' and l.paused_until > onceward.now() then 'paused' else p.status end as status,
       l.paused_until, p.limit_name
  from intake.api_providers as p
  left join onceward.limits as l on l.name = p.limit_name
 cross join lateral (
   select count(*) as requests, coalesce(sum(coalesce(c.actual_tokens, c.estimated_tokens)), 0) as tokens,
          count(*) filter (where c.released_at is null) as held
     from intake.api_calls as c
    where c.provider_name = p.provider_name and c.api_endpoint = p.api_endpoint
      and c.acquired_at > onceward.now() - interval '1 minute') as u;
comment on view intake.api_rate_limits is 'Providers'' limits, as the engine keeps them, with what the last minute has used.';

-- How long new work for a provider's endpoint should wait: any of them can push back (H8).
create or replace function intake.backpressure_delay(p_payload jsonb)
  returns integer
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(max(l.backpressure_delay_seconds), 0)
    from intake.api_rate_limits as l
   where l.provider_name = p_payload ->> 'provider_name'
     and l.api_endpoint = coalesce(p_payload ->> 'api_endpoint', l.api_endpoint)
     and l.status in ('active', 'paused')
     and (l.status = 'paused' or l.current_requests_minute > l.backpressure_threshold * l.requests_per_minute)
$$;
