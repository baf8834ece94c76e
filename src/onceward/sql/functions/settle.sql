-- What becomes of what was taken of a limit: settled, given back; and pauses, for everybody at once.

-- Charge what was really used, or give the difference back.
create or replace function onceward.settle(p_job_id uuid, p_epoch bigint, p_limit text, p_weight bigint)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_job   onceward.job_private;
  v_use   record;
  v_limit onceward.limit_private;
begin
  if p_weight is null or p_weight not between 0 and 1000000000000 then
    perform onceward.bad_argument('weight', p_weight::text, 'must be between 0 and 1000000000000');
  end if;
  select * into v_job from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null
     for no key update;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  select u.key, u.weight into v_use from onceward.uses_in(v_job.uses) as u where u.name = p_limit;
  if not found then
    perform onceward.bad_argument('limit', p_limit, format('must be one that job %s uses', p_job_id));
  end if;
  if (v_job.settled ->> 'epoch')::bigint is distinct from p_epoch then
    v_job.settled := jsonb_build_object('epoch', p_epoch);
  end if;
  update onceward.job_private as j
     set settled = v_job.settled || jsonb_build_object(p_limit, p_weight)
   where j.id = p_job_id;
  select * into v_limit from onceward.limit_private as l where l.name = p_limit;
  if found then
    perform onceward.charge(v_limit, v_use.key, p_weight - coalesce((v_job.settled ->> p_limit)::double precision, v_use.weight), p_job_id);
  end if;
end;
$$;
comment on function onceward.settle(uuid, bigint, text, bigint) is
  'Says how much weight a running job has really used of a limit: the difference to what was reserved is charged or given back.  Raises OW001 when the lease was lost; repeating the call changes nothing.';

-- p_weight more (or less) than was reserved.  What is used above the reservation becomes a debt.  If p_holder is the probe
-- of a limit that was paused, the limit is open again.
create or replace function onceward.charge(p_limit onceward.limit_private, p_key text, p_weight double precision, p_holder uuid)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  update onceward.bucket_private as b
     set level        = onceward.refilled(b.level, p_limit.burst, p_limit.rate, b.refilled_at, onceward.now()),
         weight_level = least(p_limit.weight_burst,
           onceward.refilled(b.weight_level, p_limit.weight_burst, p_limit.weight_rate, b.refilled_at, onceward.now()) - p_weight),
         refilled_at  = greatest(b.refilled_at, onceward.now()),
         paused_until = case when b.probe = p_holder then null else b.paused_until end,
         pause_reason = case when b.probe = p_holder then null else b.pause_reason end,
         probe        = nullif(b.probe, p_holder)
   where b.limit_name = p_limit.name and b.key = p_key
     and (p_weight <> 0 or b.probe = p_holder)
$$;

-- Jobs that were claimed and never begun: their uses, all in one list.  In the order in which everybody locks buckets.
create or replace function onceward.give_back(p_uses jsonb)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_use   record;
  v_limit onceward.limit_private;
begin
  for v_use in
    select u.name, u.key, count(*) as requests, sum(u.weight) as weight from onceward.uses_in(p_uses) as u
     group by u.name, u.key order by u.name collate "C", u.key collate "C"
  loop
    select * into v_limit from onceward.limit_private as l where l.name = v_use.name;
    continue when not found;
    update onceward.bucket_private as b
       set level        = least(v_limit.burst, onceward.refilled(b.level, v_limit.burst, v_limit.rate, b.refilled_at, onceward.now())
                                               + v_use.requests),
           weight_level = least(v_limit.weight_burst,
                                onceward.refilled(b.weight_level, v_limit.weight_burst, v_limit.weight_rate, b.refilled_at, onceward.now())
                                + v_use.weight),
           refilled_at  = greatest(b.refilled_at, onceward.now())
     where b.limit_name = v_use.name and b.key = v_use.key;
  end loop;
end;
$$;

-- For people, and for handlers that know better than the provider.
create or replace function onceward.pause_limit(p_limit text, p_for interval, p_key text default '', p_reason text default null)
  returns timestamptz
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_until timestamptz := onceward.pause_bucket(p_limit, p_for, p_key, p_reason);
begin
  perform onceward.audit('limit.paused', p_entity_type => 'limit', p_entity_id => p_limit, p_message => p_reason,
    p_after => jsonb_build_object('paused_until', v_until), p_meta => jsonb_build_object('key', coalesce(p_key, '')));
  return v_until;
end;
$$;
comment on function onceward.pause_limit(text, interval, text, text) is
  'Lets nobody use a limit (of one key, when it is per key) for some time; a longer pause stays.  Afterwards one job is let through, and when it ends without a new pause, the others.  Returns the end of the pause.';

create or replace function onceward.pause_bucket(p_limit text, p_for interval, p_key text, p_reason text)
  returns timestamptz
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_until timestamptz;
begin
  if p_for is null or p_for <= interval '0' or p_for > interval '31 days' then
    perform onceward.bad_argument('for', p_for::text, 'must be more than 0 and at most 31 days');
  end if;
  perform onceward.check_bucket(p_limit, p_key);
  insert into onceward.bucket_private as b (limit_name, key, refilled_at, paused_until, pause_reason)
  values (p_limit, coalesce(p_key, ''), onceward.now(), onceward.now() + p_for, left(p_reason, 500))
      on conflict (limit_name, key) do update
     set paused_until = greatest(b.paused_until, excluded.paused_until),
         pause_reason = case when b.paused_until >= excluded.paused_until then b.pause_reason else excluded.pause_reason end,
         probe = null, probe_epoch = null, probe_until = null
  returning b.paused_until into v_until;
  return v_until;
end;
$$;

create or replace function onceward.resume_limit(p_limit text, p_key text default '')
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
begin
  perform onceward.check_bucket(p_limit, p_key);
  update onceward.bucket_private as b
     set paused_until = null, pause_reason = null, probe = null, probe_epoch = null, probe_until = null
   where b.limit_name = p_limit and b.key = coalesce(p_key, '') and b.paused_until is not null;
  if not found then
    return false;
  end if;
  perform onceward.wake(array(select l.name from onceward.lane_private as l));
  perform onceward.audit('limit.resumed', p_entity_type => 'limit', p_entity_id => p_limit,
    p_meta => jsonb_build_object('key', coalesce(p_key, '')));
  return true;
end;
$$;
comment on function onceward.resume_limit(text, text) is 'Ends the pause of a limit.  Returns false when it was not paused.';

-- A limit exists, and a key is given when it is per key and only then.
create or replace function onceward.check_bucket(p_limit text, p_key text)
  returns onceward.limit_private
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit onceward.limit_private;
begin
  select * into v_limit from onceward.limit_private as l where l.name = p_limit;
  if not found then
    perform onceward.no_such_limit(p_limit);
  end if;
  if v_limit.per_key and coalesce(p_key, '') !~ '^[^[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('key', p_key, format('must be given for limit "%s", 1 to 200 characters', p_limit));
  end if;
  if not v_limit.per_key and p_key <> '' then
    perform onceward.bad_argument('key', p_key, format('cannot be given for limit "%s", which is not per key', p_limit));
  end if;
  return v_limit;
end;
$$;

-- The provider has refused: pause the limit for everybody, and put the job off.
create or replace function onceward.limited(
  p_job_id uuid, p_epoch bigint, p_limit text default null, p_retry_after interval default '30 seconds', p_reason text default null
)
  returns table (state text, run_at timestamptz)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_uses  jsonb;
  v_use   record;
  v_until timestamptz;
begin
  -- A limit that a server asks for is bounded, not refused: it must always be possible to put the job off.
  p_retry_after := least(greatest(p_retry_after, interval '0.1 second'), interval '31 days');
  -- As snooze does; a repeated call finds the job gone, and snooze answers it.
  select j.uses into v_uses from onceward.job_private as j
   where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null
     for update;
  if found then
    for v_use in
      select u.name, u.key from onceward.uses_in(v_uses) as u
        join onceward.limit_private as l on l.name = u.name
       where p_limit is null or u.name = p_limit
    loop
      v_until := greatest(v_until, onceward.pause_bucket(v_use.name, p_retry_after, v_use.key, p_reason));
    end loop;
  end if;
  return query
    select s.state, s.run_at
      from onceward.snooze(p_job_id, p_epoch, greatest(p_retry_after, v_until - onceward.now()),
                           coalesce(p_reason, 'the provider asked to wait')) as s;
end;
$$;
comment on function onceward.limited(uuid, bigint, text, interval, text) is
  'A provider has refused a running job (429): pauses the job''s limits (or the one named) for everybody, and puts the job off without using up an attempt.';
