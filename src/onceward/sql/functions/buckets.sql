-- What is left of the limits, and claiming under them.
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

-- Lock the buckets of a line whose jobs use limits (p_uses: those of the first of them), and say how many of p_max they have
-- room for.  named: whether it matters which jobs are claimed, and not only how many; weights: what is left of each, then.
-- busy: somebody else has one of the buckets.
create or replace function onceward.room_in(
  p_uses jsonb, p_max integer,
  out most integer, out named boolean, out limits onceward.limit_private[], out weights jsonb, out busy boolean
)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_use    record;
  v_limit  onceward.limit_private;
  v_bucket onceward.bucket_private;
  v_found  record;
begin
  -- Nobody stood there a moment ago; whoever does by now has limits that nobody has looked at.
  most := case when p_uses is null then 0 else p_max end;
  named := false;
  busy := false;
  limits := '{}';
  for v_use in select u.name, u.key, u.weight from onceward.uses_in(p_uses) as u loop
    select * into v_limit from onceward.limit_private as l where l.name = v_use.name;
    -- Dropped: it holds nobody back.
    continue when not found;
    v_bucket := onceward.try_bucket(v_use.name, v_use.key);
    if v_bucket.limit_name is null then
      most := 0;
      busy := true;
      return;
    end if;
    v_found := onceward.room_of(v_limit, v_bucket, v_use.weight);
    most := least(most, v_found.most);
    if most < 1 then
      return;
    end if;
    limits := limits || v_limit;
    if v_limit.weight is not null then
      weights := coalesce(weights, '{}') || jsonb_build_object(v_use.name, v_found.weight);
    end if;
    named := named or v_limit.weight is not null or v_limit.slots is not null or v_bucket.paused_until is not null;
  end loop;
end;
$$;

-- Claim jobs for which room_in has found room, where it matters which, in order.  One write per bucket.
create or replace function onceward.claim_named(
  p_worker_id uuid, p_lane text, p_line text, p_max integer, p_uses jsonb, p_limits onceward.limit_private[], p_weights jsonb
)
  returns setof onceward.claimed
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_use   record;
  v_limit onceward.limit_private;
  v_jobs  onceward.claimed[];
begin
  v_jobs := case when p_weights is null
                 then array(select j from onceward.claim_lane(p_worker_id, p_lane, p_line, p_max, null, null) as j)
                 else array(select j from onceward.claim_weighed(p_worker_id, p_lane, p_line, p_max, p_weights) as j) end;
  if cardinality(v_jobs) = 0 then
    return;
  end if;
  foreach v_limit in array p_limits loop
    select u.key into v_use from onceward.uses_in(p_uses) as u where u.name = v_limit.name;
    perform onceward.take(v_limit, v_use.key, cardinality(v_jobs),
      case when v_limit.weight is null then 0
           else (select sum(u.weight) from unnest(v_jobs) as j cross join onceward.uses_in(j.uses) as u where u.name = v_limit.name) end,
      v_jobs[1].job_id, v_jobs[1].epoch);
    if v_limit.slots is not null then
      delete from onceward.hold_private as h
       where h.limit_name = v_limit.name and h.key = v_use.key and not onceward.is_held(h);
      insert into onceward.hold_private (limit_name, key, holder, epoch)
      select v_limit.name, v_use.key, j.job_id, j.epoch from unnest(v_jobs) as j
          on conflict (limit_name, key, holder) do update set epoch = excluded.epoch, expires_at = null;
    end if;
  end loop;
  return query select * from unnest(v_jobs);
end;
$$;

-- As claim_lane, but only as many as the weights allow: {"limit": weight}.
create or replace function onceward.claim_weighed(p_worker_id uuid, p_lane text, p_line text, p_max integer, p_weights jsonb)
  returns setof onceward.claimed
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
    returning 'claimed'::text, j.id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt,
              j.max_attempts, j.tenant, j.timeout, j.headers, j.key, j.line, j.uses;
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

-- The limits of the job that stands first in a line, or first above its floors, {"priority": ready_seq}.
create or replace function onceward.uses_of_line(p_lane text, p_line text, p_floors jsonb default null)
  returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_floor record;
  v_uses  jsonb;
begin
  if p_floors is null then
    return (select j.uses from onceward.job_private as j
             where j.lane = p_lane and j.line = p_line and j.state = 'ready'
             order by j.priority desc, j.ready_seq limit 1);
  end if;
  for v_floor in
    select f.key::smallint as priority, f.value::bigint as ready_seq from jsonb_each_text(p_floors) as f order by 1 desc
  loop
    v_uses := (select j.uses from onceward.job_private as j
                where j.lane = p_lane and j.line = p_line and j.state = 'ready'
                  and j.priority = v_floor.priority and j.ready_seq > v_floor.ready_seq
                order by j.ready_seq limit 1);
    exit when v_uses is not null;
  end loop;
  return v_uses;
end;
$$;

-- When a job with these limits has room, and within which time it has to begin then.
create or replace function onceward.room_for(p_uses jsonb, out wait interval, out allowance interval, out reason text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_use  record;
  v_room record;
begin
  for v_use in
    select l, b, u.weight, l.allowance
      from onceward.uses_in(p_uses) as u
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
  if p_key <> '' and not onceward.sees_tenant(p_key) then
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
   where b.key = '' or onceward.sees_tenant(b.key)
$$;
comment on function onceward.limit_levels() is 'What is left of each limit and key that the reader may see; the view limits shows it.';
