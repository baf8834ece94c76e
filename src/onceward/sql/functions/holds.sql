-- Holds: limits used directly, by programs that are no job.  Everything here is done under the lock of the bucket.

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
