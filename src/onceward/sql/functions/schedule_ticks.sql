-- The ticks of a plan (see schedule_specs.sql), from any moment on.
--
-- When the clocks change: a time with a fixed hour that is left out comes at the first moment after the gap, and one that
-- occurs twice comes once, the first time.  A cron expression whose hour is * or */n comes whenever the local time
-- matches, so in both passes of a repeated hour, and its slots carry the offset.  A moment is one tick, also when the
-- gap moves two times of day to it: it is named by the earlier.

-- The first day at or after this one on which the plan fires, or null when there is none in 50 years.
create or replace function onceward.next_day(p_plan jsonb, p_day date)
  returns date
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_months integer[] := array(select m::integer from jsonb_array_elements_text(p_plan -> 'months') as m);
  v_doms   integer[] := array(select d::integer from jsonb_array_elements_text(p_plan -> 'doms') as d);
  v_dows   integer[] := array(select d::integer from jsonb_array_elements_text(p_plan -> 'dows') as d);
  v_either boolean := (p_plan ->> 'either')::boolean;
  v_day    date := p_day;
  v_dom    boolean;
  v_dow    boolean;
begin
  -- Not beyond the years that every driver can read.
  while v_day < least(p_day + 18300, date '9999-01-01') loop
    if not extract(month from v_day)::integer = any (v_months) then
      v_day := (date_trunc('month', v_day::timestamp) + interval '1 month')::date;
      continue;
    end if;
    v_dom := extract(day from v_day)::integer = any (v_doms);
    v_dow := extract(dow from v_day)::integer = any (v_dows);
    if (v_dom and v_dow) or (v_either and (v_dom or v_dow)) then
      return v_day;
    end if;
    v_day := v_day + 1;
  end loop;
  return null;
end;
$$;

-- Everything that the plan fires on one local day.
create or replace function onceward.day_ticks(p_plan jsonb, p_day date)
  returns table (local_at timestamp, fire_at timestamptz)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_zone  text := p_plan ->> 'zone';
  -- Well before and well after, so that a change of the clocks at midnight lies between them.
  v_early timestamptz := (p_day::timestamp at time zone v_zone) - interval '6 hours';
  v_late  timestamptz := ((p_day + 1)::timestamp at time zone v_zone) + interval '6 hours';
  v_first interval := (v_early at time zone v_zone) - (v_early at time zone 'UTC');
  v_last  interval := (v_late at time zone v_zone) - (v_late at time zone 'UTC');
  v_times integer[] := case when p_plan ? 'times'
    then array(select t::integer from jsonb_array_elements_text(p_plan -> 'times') as t order by 1)
    else array(select h::integer * 3600 + m::integer * 60
                 from jsonb_array_elements_text(p_plan -> 'hours') as h, jsonb_array_elements_text(p_plan -> 'minutes') as m
                order by 1) end;
  v_jump  timestamptz;
begin
  if v_first = v_last then
    return query
    select p_day + make_interval(secs => t), (p_day + make_interval(secs => t) - v_first) at time zone 'UTC'
      from unnest(v_times) with ordinality as u (t, n) order by u.n;
    return;
  end if;
  -- The clocks change about this day.  A local time exists under the offset before, under the one after, twice or not at all.
  v_jump := onceward.offset_change(v_zone, v_early, v_late);
  return query
  select distinct on (f.fire_at) l.local_at, f.fire_at
    from (select p_day + make_interval(secs => t) as local_at from unnest(v_times) as t) as l
   cross join lateral (
     select (l.local_at - v_first) at time zone 'UTC' as first_at, (l.local_at - v_last) at time zone 'UTC' as last_at) as c
   cross join lateral (
     select c.first_at as fire_at where c.first_at < v_jump
     union
     select c.last_at where c.last_at >= v_jump and ((p_plan ->> 'elapsed')::boolean or c.first_at >= v_jump)
     union
     select v_jump where c.first_at >= v_jump and c.last_at < v_jump and not (p_plan ->> 'elapsed')::boolean) as f
   order by f.fire_at, l.local_at;
end;
$$;

-- The moment between two others at which the zone's offset changes.
create or replace function onceward.offset_change(p_zone text, p_before timestamptz, p_after timestamptz)
  returns timestamptz
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_low    bigint := extract(epoch from p_before)::bigint;
  v_high   bigint := extract(epoch from p_after)::bigint;
  v_middle bigint;
  v_before interval := (p_before at time zone p_zone) - (p_before at time zone 'UTC');
  v_moment timestamptz;
begin
  while v_high - v_low > 1 loop
    v_middle := (v_low + v_high) / 2;
    v_moment := to_timestamp(v_middle);
    if (v_moment at time zone p_zone) - (v_moment at time zone 'UTC') = v_before then
      v_low := v_middle;
    else
      v_high := v_middle;
    end if;
  end loop;
  return to_timestamp(v_high);
end;
$$;

-- Ticks later than p_after and not later than p_until, in order, at most p_limit, without the first p_skip.
create or replace function onceward.plan_ticks(
  p_plan  jsonb,
  p_after timestamptz,
  p_until timestamptz,
  p_limit integer,
  p_skip  bigint default 0
)
  returns table (slot text, fire_at timestamptz)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_zone  text := p_plan ->> 'zone';
  v_step  bigint := (p_plan ->> 'seconds')::bigint;
  v_from  bigint := (p_plan ->> 'anchor')::bigint;
  v_first bigint;
  v_skip  bigint := p_skip;
  v_left  integer := p_limit;
  v_day   date := (p_after at time zone v_zone)::date;
  v_end   date := (p_until at time zone v_zone)::date;
  v_last  timestamptz := p_after;
  v_tick  record;
begin
  if v_step is not null then
    v_first := floor((extract(epoch from p_after) - v_from) / v_step)::bigint + 1 + p_skip;
    return query
    select to_char(to_timestamp(v_from + k * v_step) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
           to_timestamp(v_from + k * v_step)
      from generate_series(v_first, v_first + p_limit - 1) as k
     where p_until is null or to_timestamp(v_from + k * v_step) <= p_until;
    return;
  end if;
  <<days>>
  loop
    v_day := onceward.next_day(p_plan, v_day);
    exit when v_day is null or v_day > v_end;
    for v_tick in select * from onceward.day_ticks(p_plan, v_day) as d where d.fire_at > p_after loop
      continue when v_tick.fire_at <= v_last;
      exit days when v_tick.fire_at > p_until;
      v_last := v_tick.fire_at;
      v_skip := v_skip - 1;
      continue when v_skip >= 0;
      slot := onceward.slot_text(v_tick.local_at, v_tick.fire_at, (p_plan ->> 'elapsed')::boolean);
      fire_at := v_tick.fire_at;
      return next;
      v_left := v_left - 1;
      exit days when v_left = 0;
    end loop;
    v_day := v_day + 1;
  end loop;
end;
$$;

create or replace function onceward.slot_text(p_local timestamp, p_at timestamptz, p_with_offset boolean)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select to_char(p_local, 'YYYY-MM-DD"T"HH24:MI:SS')
      || case when p_with_offset then
           case when p_local < p_at at time zone 'UTC' then '-' else '+' end
           || to_char(greatest(p_local - (p_at at time zone 'UTC'), (p_at at time zone 'UTC') - p_local), 'HH24:MI')
         else '' end
$$;

-- How many ticks are later than p_after and not later than p_until.
create or replace function onceward.count_ticks(p_plan jsonb, p_after timestamptz, p_until timestamptz)
  returns bigint
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_step bigint := (p_plan ->> 'seconds')::bigint;
  v_from bigint := (p_plan ->> 'anchor')::bigint;
begin
  if v_step is not null then
    return floor((extract(epoch from p_until) - v_from) / v_step) - floor((extract(epoch from p_after) - v_from) / v_step);
  end if;
  return (select count(*) from onceward.plan_ticks(p_plan, p_after, p_until, 2147483647));
end;
$$;

create or replace function onceward.next_ticks(
  p_spec  text,
  p_zone  text default null,
  p_after timestamptz default null,
  p_count integer default 10
)
  returns table (slot text, fire_at timestamptz)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_count is null or p_count not between 1 and 10000 then
    perform onceward.bad_argument('count', p_count::text, 'must be between 1 and 10000');
  end if;
  if not isfinite(p_after) then
    perform onceward.bad_argument('after', p_after::text, 'must be a moment');
  end if;
  return query
  select t.slot, t.fire_at
    from onceward.plan_ticks(onceward.read_spec(p_spec, p_zone), coalesce(p_after, onceward.now()), null, p_count) as t;
end;
$$;
comment on function onceward.next_ticks(text, text, timestamptz, integer) is
  'The next moments at which a spec fires: a cron expression, local times of day, or an interval.  A slot is the local time, which names the tick.';
