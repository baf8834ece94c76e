-- What is left of the limits: claiming under them, settling what was used, pausing, and direct use.
-- A bucket's row is the lock.  Claims never wait for it: a line whose bucket somebody else has is passed over.

create or replace function onceward.refilled(
  p_level double precision, p_burst double precision, p_rate double precision, p_since timestamptz, p_now timestamptz
)
  returns double precision
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select least(p_burst, coalesce(p_level, p_burst) + p_rate * greatest(0, extract(epoch from p_now - p_since)::double precision))
$$;

-- How much a bucket gives now: at most so many jobs, so much weight; when there is nothing for a job of p_weight, why and
-- for how long (null: until somebody gives a slot back).  A bucket that has no row yet is full.
create or replace function onceward.room_of(
  p_limit onceward.limit_private, p_bucket onceward.bucket_private, p_weight double precision,
  out most integer, out weight double precision, out wait interval, out reason text
)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now   timestamptz := onceward.now();
  v_level double precision := coalesce(onceward.refilled(p_bucket.level, p_limit.burst, p_limit.rate, p_bucket.refilled_at, v_now), p_limit.burst);
  v_held  integer;
begin
  most := 1000000;
  weight := coalesce(onceward.refilled(p_bucket.weight_level, p_limit.weight_burst, p_limit.weight_rate, p_bucket.refilled_at, v_now),
                     p_limit.weight_burst);
  if p_bucket.paused_until > v_now then
    most := 0;
    wait := p_bucket.paused_until - v_now;
    reason := concat_ws(': ', 'paused', p_bucket.pause_reason);
    return;
  elsif p_bucket.paused_until is not null then
    if p_bucket.probe is null then
      most := 1;
    elsif onceward.is_probing(p_bucket) then
      most := 0;
      wait := interval '1 second';
      reason := 'probing after a pause';
      return;
    end if;
  end if;
  -- Not at the first crumb, but when half a burst is there: whoever comes takes it in one go.
  if v_level + 1e-6 < 1 then
    most := 0;
    wait := make_interval(secs => (greatest(1, p_limit.burst / 2) - v_level) / p_limit.rate);
    reason := 'no requests left';
  else
    most := least(most, floor(v_level + 1e-6)::integer);
  end if;
  if p_weight > weight + 1e-6 then
    most := 0;
    wait := greatest(wait, make_interval(secs => (greatest(p_weight, p_limit.weight_burst / 2) - weight) / p_limit.weight_rate));
    reason := coalesce(reason, 'no weight left');
  end if;
  if p_limit.slots is not null then
    select count(*) into v_held from onceward.hold_private as h
     where h.limit_name = p_limit.name and h.key = p_bucket.key and onceward.is_held(h);
    most := least(most, greatest(0, p_limit.slots - v_held));
    if v_held >= p_limit.slots and reason is null then
      reason := 'all slots are held';
    end if;
  end if;
end;
$$;

create or replace function onceward.is_held(p_hold onceward.hold_private)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select case when p_hold.epoch is null then p_hold.expires_at > onceward.now()
              else exists (select from onceward.job_private as j
                            where j.id = p_hold.holder and j.epoch = p_hold.epoch and j.worker_id is not null) end
$$;

create or replace function onceward.is_probing(p_bucket onceward.bucket_private)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select case when p_bucket.probe_epoch is null then coalesce(p_bucket.probe_until > onceward.now(), false)
              else exists (select from onceward.job_private as j
                            where j.id = p_bucket.probe and j.epoch = p_bucket.probe_epoch and j.worker_id is not null) end
$$;

-- Lock a bucket for a claim; null when somebody else has it.  It is made when it is not there yet: under a lock that is
-- tried and not waited for, because two claims may want two buckets in opposite order.
create or replace function onceward.try_bucket(p_limit text, p_key text)
  returns onceward.bucket_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_bucket onceward.bucket_private;
begin
  select * into v_bucket from onceward.bucket_private as b
   where b.limit_name = p_limit and b.key = p_key
     for update skip locked;
  if not found
     and not exists (select from onceward.bucket_private as b where b.limit_name = p_limit and b.key = p_key)
     and pg_try_advisory_xact_lock(hashtextextended('onceward bucket ' || p_limit || ' ' || p_key, 0)) then
    insert into onceward.bucket_private as b (limit_name, key, refilled_at) values (p_limit, p_key, onceward.now())
        on conflict do nothing
    returning b.* into v_bucket;
  end if;
  return v_bucket;
end;
$$;

-- Take from a bucket that is locked.  p_probe: who probes when it is half-open.
create or replace function onceward.take(
  p_limit onceward.limit_private, p_key text, p_requests double precision, p_weight double precision, p_probe uuid, p_epoch bigint
)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  update onceward.bucket_private as b
     set level        = onceward.refilled(b.level, p_limit.burst, p_limit.rate, b.refilled_at, onceward.now()) - p_requests,
         weight_level = onceward.refilled(b.weight_level, p_limit.weight_burst, p_limit.weight_rate, b.refilled_at, onceward.now()) - p_weight,
         refilled_at  = greatest(b.refilled_at, onceward.now()),
         -- Half-open: this is the probe.  If there was one already, it has ended without a new pause.
         probe        = case when b.paused_until is not null and b.probe is null then p_probe end,
         probe_epoch  = case when b.paused_until is not null and b.probe is null then p_epoch end,
         probe_until  = case when b.paused_until is not null and b.probe is null then onceward.now() + interval '1 minute' end,
         pause_reason = case when b.probe is null then b.pause_reason end,
         paused_until = case when b.probe is null then b.paused_until end
   where b.limit_name = p_limit.name and b.key = p_key
$$;

-- Claim from a line whose jobs use limits: as many as all of them have room for, in order.  One write per bucket.
create or replace function onceward.claim_limited(p_worker_id uuid, p_lane text, p_line text, p_max integer)
  returns setof onceward.job_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_uses    jsonb := onceward.uses_of_line(p_lane, p_line);
  v_use     record;
  v_limit   onceward.limit_private;
  v_bucket  onceward.bucket_private;
  v_limits  onceward.limit_private[] := '{}';
  v_found   record;
  v_most    integer := p_max;
  v_weights jsonb;
  v_jobs    onceward.job_private[];
begin
  for v_use in select u.name, u.key, u.weight from onceward.uses_in(v_uses) as u loop
    select * into v_limit from onceward.limit_private as l where l.name = v_use.name;
    -- Dropped: it holds nobody back.
    continue when not found;
    v_bucket := onceward.try_bucket(v_use.name, v_use.key);
    if v_bucket.limit_name is null then
      return;
    end if;
    v_found := onceward.room_of(v_limit, v_bucket, v_use.weight);
    v_most := least(v_most, v_found.most);
    if v_most < 1 then
      return;
    end if;
    v_limits := v_limits || v_limit;
    if v_limit.weight is not null then
      v_weights := coalesce(v_weights, '{}') || jsonb_build_object(v_use.name, v_found.weight);
    end if;
  end loop;

  v_jobs := case when v_weights is null
                 then array(select j from onceward.claim_lane(p_worker_id, p_lane, p_line, v_most, null, null) as j)
                 else array(select j from onceward.claim_weighed(p_worker_id, p_lane, p_line, v_most, v_weights) as j) end;
  if cardinality(v_jobs) = 0 then
    return;
  end if;
  foreach v_limit in array v_limits loop
    select u.key into v_use from onceward.uses_in(v_uses) as u where u.name = v_limit.name;
    perform onceward.take(v_limit, v_use.key, cardinality(v_jobs),
      case when v_limit.weight is null then 0
           else (select sum(u.weight) from unnest(v_jobs) as j cross join onceward.uses_in(j.uses) as u where u.name = v_limit.name) end,
      v_jobs[1].id, v_jobs[1].epoch);
    if v_limit.slots is not null then
      delete from onceward.hold_private as h
       where h.limit_name = v_limit.name and h.key = v_use.key and not onceward.is_held(h);
      insert into onceward.hold_private (limit_name, key, holder, epoch)
      select v_limit.name, v_use.key, j.id, j.epoch from unnest(v_jobs) as j
          on conflict (limit_name, key, holder) do update set epoch = excluded.epoch, expires_at = null;
    end if;
  end loop;
  return query select * from unnest(v_jobs);
end;
$$;

-- As claim_lane, but only as many as the weights allow: {"limit": weight}.
create or replace function onceward.claim_weighed(p_worker_id uuid, p_lane text, p_line text, p_max integer, p_weights jsonb)
  returns setof onceward.job_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_now timestamptz := onceward.now();
begin
  return query
    with first_ones as materialized (
      select j.ctid as place, j.uses
        from onceward.job_private as j
       where j.lane = p_lane
         and j.line = p_line
         and j.state = 'ready'
         and (j.expires_at is null or j.expires_at > v_now)
       order by j.priority desc, j.ready_seq
       limit p_max
         for update skip locked
    ), numbered as materialized (
      select f.place, f.uses, row_number() over () as n from first_ones as f
    ), first_too_many as materialized (
      select min(s.n) as n
        from (select n.n, u.name, sum(u.weight) over (partition by u.name order by n.n) as total
                from numbered as n cross join onceward.uses_in(n.uses) as u) as s
       where s.total > (p_weights ->> s.name)::double precision + 1e-6
    )
    update onceward.job_private as j
       set state = 'running', epoch = j.epoch + 1, attempt = j.attempt + 1,
           worker_id = p_worker_id, started_at = v_now
      from numbered as n
     where j.ctid = n.place and n.n < coalesce((select t.n from first_too_many as t), p_max + 1)
    returning j.*;
end;
$$;

create or replace function onceward.uses_in(p_uses jsonb)
  returns table (name text, key text, weight double precision)
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select u ->> 'limit', u ->> 'key', (u ->> 'weight')::double precision
    from jsonb_array_elements(p_uses) with ordinality as e (u, i)
   order by i
$$;

-- The limits of the job that stands first in a line.
create or replace function onceward.uses_of_line(p_lane text, p_line text)
  returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return (select j.uses from onceward.job_private as j
           where j.lane = p_lane and j.line = p_line and j.state = 'ready'
           order by j.priority desc, j.ready_seq limit 1);
end;
$$;

-- When the first job of a line has room, and within which time it has to begin then.
create or replace function onceward.room_in_line(p_lane text, p_line text, out wait interval, out allowance interval, out reason text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_use  record;
  v_room record;
begin
  for v_use in
    select l, b, u.weight, l.allowance
      from onceward.uses_in(onceward.uses_of_line(p_lane, p_line)) as u
      join onceward.limit_private as l on l.name = u.name
      left join onceward.bucket_private as b on b.limit_name = u.name and b.key = u.key
  loop
    v_room := onceward.room_of(v_use.l, v_use.b, v_use.weight);
    wait := greatest(wait, v_room.wait);
    reason := coalesce(reason, v_room.reason);
    allowance := least(allowance, v_use.allowance);
  end loop;
end;
$$;

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

create or replace function onceward.pause_limit(p_limit text, p_for interval, p_key text default '', p_reason text default null)
  returns timestamptz
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
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
comment on function onceward.pause_limit(text, interval, text, text) is
  'Lets nobody use a limit (of one key, when it is per key) for some time; a longer pause stays.  Afterwards one job is let through, and when it ends without a new pause, the others.  Returns the end of the pause.';

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
      v_until := greatest(v_until, onceward.pause_limit(v_use.name, p_retry_after, v_use.key, p_reason));
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

-- ------------------------------------------------------------ direct use

create or replace function onceward.acquire(
  p_limit    text,
  p_key      text default '',
  p_requests integer default 1,
  p_weight   bigint default 0,
  p_lease    interval default '1 minute'
)
  returns table (hold_id uuid, wait interval, reason text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_limit  onceward.limit_private := onceward.check_bucket(p_limit, p_key);
  v_key    text := coalesce(p_key, '');
  v_bucket onceward.bucket_private;
  v_room   record;
begin
  if p_requests is null or p_requests not between 0 and 1000000 or p_requests > v_limit.burst then
    perform onceward.bad_argument('requests', p_requests::text, format('must be between 0 and the burst of limit "%s" (%s)', p_limit, v_limit.burst));
  end if;
  if p_weight is null or p_weight < 0 then
    perform onceward.bad_argument('weight', p_weight::text, 'must not be negative');
  end if;
  if p_weight > v_limit.weight_burst then
    perform onceward.more_than_limit(p_limit, p_weight, v_limit.weight_burst);
  end if;
  if p_lease is null or p_lease not between interval '1 second' and interval '1 day' then
    perform onceward.bad_argument('lease', p_lease::text, 'must be between 1 second and 1 day');
  end if;
  insert into onceward.bucket_private (limit_name, key, refilled_at) values (p_limit, v_key, onceward.now())
      on conflict do nothing;
  select * into v_bucket from onceward.bucket_private as b where b.limit_name = p_limit and b.key = v_key for update;
  v_room := onceward.room_of(v_limit, v_bucket, p_weight);
  if v_room.most < greatest(1, p_requests) then
    wait := coalesce(v_room.wait, make_interval(secs => greatest(0, p_requests - v_room.most) / v_limit.rate), interval '1 second');
    reason := coalesce(v_room.reason, 'no requests left');
    return next;
    return;
  end if;
  hold_id := gen_random_uuid();
  perform onceward.take(v_limit, v_key, p_requests, p_weight, hold_id, null);
  delete from onceward.hold_private as h where h.limit_name = p_limit and h.key = v_key and not onceward.is_held(h);
  insert into onceward.hold_private (limit_name, key, holder, expires_at, weight)
  values (p_limit, v_key, hold_id, onceward.now() + p_lease, p_weight);
  return next;
end;
$$;
comment on function onceward.acquire(text, text, integer, bigint, interval) is
  'Takes of a limit directly, in a transaction of its own: returns a hold (of the slot, too, until the lease is over), or no hold, why, and for how long to wait.';

create or replace function onceward.settle_hold(p_hold_id uuid, p_weight bigint)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_hold  onceward.hold_private;
  v_limit onceward.limit_private;
begin
  if p_weight is null or p_weight not between 0 and 1000000000000 then
    perform onceward.bad_argument('weight', p_weight::text, 'must be between 0 and 1000000000000');
  end if;
  v_hold := onceward.lock_hold(p_hold_id);
  if v_hold.holder is null then
    perform onceward.hold_lost(p_hold_id);
  end if;
  update onceward.hold_private as h set weight = p_weight where h.holder = p_hold_id and h.epoch is null;
  select * into v_limit from onceward.limit_private as l where l.name = v_hold.limit_name;
  if found then
    perform onceward.charge(v_limit, v_hold.key, p_weight - v_hold.weight, p_hold_id);
  end if;
end;
$$;
comment on function onceward.settle_hold(uuid, bigint) is
  'Says how much weight was really used under a hold: the difference is charged or given back.  Repeating the call changes nothing.  Raises OW032 when the hold is over.';

create or replace function onceward.release_hold(p_hold_id uuid)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_hold onceward.hold_private;
begin
  v_hold := onceward.lock_hold(p_hold_id);
  if v_hold.holder is null then
    return false;
  end if;
  delete from onceward.hold_private as h where h.holder = p_hold_id and h.epoch is null;
  -- A probe that was given back has passed.
  update onceward.bucket_private as b
     set paused_until = null, pause_reason = null, probe = null, probe_until = null
   where b.limit_name = v_hold.limit_name and b.key = v_hold.key and b.probe = p_hold_id;
  return true;
end;
$$;
comment on function onceward.release_hold(uuid) is
  'Gives a slot back before its lease is over.  Returns false when the hold was over already.';

-- The bucket first: that is the order in which everybody locks them.
create or replace function onceward.lock_hold(p_hold_id uuid)
  returns onceward.hold_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_hold onceward.hold_private;
begin
  select * into v_hold from onceward.hold_private as h where h.holder = p_hold_id and h.epoch is null;
  perform from onceward.bucket_private as b where b.limit_name = v_hold.limit_name and b.key = v_hold.key for update;
  select * into v_hold from onceward.hold_private as h where h.holder = p_hold_id and h.epoch is null for update;
  return v_hold;
end;
$$;

create or replace function onceward.hold_lost(p_hold_id uuid)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'hold % is over', p_hold_id
    using errcode = 'OW032',
          detail  = 'It was released, its lease has run out, or it never was.',
          hint    = 'Acquire with a longer lease.';
end;
$$;

-- What is left of a limit, for those who read.
create or replace function onceward.limit_now(p_limit text, p_key text default '')
  returns table (
    requests_left double precision, weight_left double precision, slots_held integer, next_room_at timestamptz, reason text,
    paused_until timestamptz
  )
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit  onceward.limit_private;
  v_bucket onceward.bucket_private;
  v_room   record;
begin
  select * into v_limit from onceward.limit_private as l where l.name = p_limit;
  if not found then
    perform onceward.no_such_limit(p_limit);
  end if;
  if p_key <> '' and not onceward.shows_tenant(p_key) then
    perform onceward.check_tenant(p_key, 'key of the limit');
  end if;
  select * into v_bucket from onceward.bucket_private as b where b.limit_name = p_limit and b.key = coalesce(p_key, '');
  v_room := onceward.room_of(v_limit, v_bucket, 0);
  requests_left := coalesce(onceward.refilled(v_bucket.level, v_limit.burst, v_limit.rate, v_bucket.refilled_at, onceward.now()), v_limit.burst);
  weight_left := v_room.weight;
  if v_limit.slots is not null then
    slots_held := (select count(*) from onceward.hold_private as h
                    where h.limit_name = p_limit and h.key = coalesce(p_key, '') and onceward.is_held(h));
  end if;
  next_room_at := case when v_room.reason is not null then onceward.now() + v_room.wait end;
  reason := v_room.reason;
  paused_until := v_bucket.paused_until;
  return next;
end;
$$;
comment on function onceward.limit_now(text, text) is
  'What is left of a limit now: requests, weight, slots; when there is room next, and why there is none.';

-- Every bucket, for the view `limits`.  Keys may be tenants: each sees its own.
create or replace function onceward.limit_levels()
  returns table (
    limit_name text, key text, requests_left double precision, weight_left double precision, slots_held integer,
    next_room_at timestamptz, reason text, paused_until timestamptz
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select b.limit_name, b.key, n.*
    from onceward.bucket_private as b
   cross join lateral onceward.limit_now(b.limit_name, b.key) as n
   where b.key = '' or onceward.shows_tenant(b.key)
$$;
comment on function onceward.limit_levels() is 'What is left of each limit and key that the reader may see; the view limits shows it.';
