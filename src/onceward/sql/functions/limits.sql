-- Limits: shared capacity, as requests per time, weight (tokens, say) per time, and slots that are held at once.
-- A token bucket holds at most `burst` and gets `rate` a second, so that within any time t it gives at most burst + rate * t.
-- A claimed job begins within the allowance.  Whatever begins within one period was claimed within period + allowance; so
--   rate = (limit + 1 - burst) / (period + allowance), and a trifle less,
-- keeps every window of one period below limit + 1, and what is counted in whole numbers at the limit or below.

create or replace function onceward.limit_rate(p_limit double precision, p_burst double precision, p_period interval, p_allowance interval)
  returns double precision
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select (p_limit + 1 - p_burst) * (1 - 1e-6) / extract(epoch from p_period + p_allowance)::double precision
$$;

create or replace function onceward.no_such_limit(p_name text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_known text := (select string_agg(name, ', ' order by name) from (select name from onceward.limit_private order by name limit 20) as l);
begin
  raise exception 'limit "%" does not exist', onceward.shown(p_name)
    using errcode = 'OW030',
          detail  = format('Known limits: %s.', coalesce(v_known, '(none)')),
          hint    = 'Create it with "onceward limit set", onceward.set_limit, or app.limit in the application.';
end;
$$;

create or replace function onceward.set_limit(
  p_name          text,
  p_requests      integer default null,
  p_period        interval default '1 minute',
  p_weight        bigint default null,
  p_weight_period interval default null,
  p_slots         integer default null,
  p_burst         integer default null,
  p_weight_burst  bigint default null,
  p_allowance     interval default null,
  p_per_key       boolean default false,
  p_threshold     double precision default 0.8,
  p_over          text default 'accept'
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  return onceward.write_limit(p_name, jsonb_build_object(
    'requests', p_requests, 'period', p_period, 'weight', p_weight, 'weight_period', p_weight_period, 'slots', p_slots,
    'burst', p_burst, 'weight_burst', p_weight_burst, 'allowance', p_allowance, 'per_key', p_per_key,
    'threshold', p_threshold, 'over', p_over), 'person');
end;
$$;
comment on function onceward.set_limit(text, integer, interval, bigint, interval, integer, integer, bigint, interval, boolean, double precision, text) is
  'Creates or replaces a limit: any of requests per period, weight (tokens) per period and slots held at once, for all or for each key.  What is set here, code leaves alone.  Returns whether anything changed.';

-- What an application declares in code: [{"name": ..., "requests": ..., ...}, ...].  Reads first: in the normal case
-- nothing is written or locked.
create or replace function onceward.declare_limits(p_limits jsonb, p_only_new boolean default false)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit   jsonb;
  v_changed integer := 0;
begin
  if jsonb_typeof(p_limits) is distinct from 'array' then
    perform onceward.bad_argument('limits', p_limits::text, 'must be a list of limits');
  end if;
  for v_limit in select l from jsonb_array_elements(p_limits) as l where jsonb_typeof(l) <> 'object' limit 1 loop
    perform onceward.bad_argument('limits', v_limit::text, 'must each be a JSON object');
  end loop;
  for v_limit in
    select l from jsonb_array_elements(p_limits) as l
     where not p_only_new or not exists (select from onceward.limit_private as k where k.name = l ->> 'name')
     order by l ->> 'name'
  loop
    if onceward.write_limit(v_limit ->> 'name', v_limit - 'name', 'code') then
      v_changed := v_changed + 1;
    end if;
  end loop;
  return onceward.declared('limits', v_changed);
end;
$$;
comment on function onceward.declare_limits(jsonb, boolean) is
  'Creates or changes limits as code declares them (the parameters of set_limit, by name); those that a person has set stay as they are.  Workers do so when they start; a producer only creates what is missing (p_only_new).  Returns how many this transaction has changed, with this call and before.';

create or replace function onceward.write_limit(p_name text, p_limit jsonb, p_source text)
  returns boolean
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_old onceward.limit_private;
  v_new onceward.limit_private;
begin
  v_new := onceward.check_limit_arguments(p_name, p_limit);
  v_new.source := p_source;
  v_new.changed_at := onceward.now();
  v_new.changed_by := onceward.actor();
  -- A fleet that starts declares the same limit many times at once.
  loop
    select * into v_old from onceward.limit_private as l where l.name = p_name for update;
    if not found then
      insert into onceward.limit_private select v_new.* on conflict do nothing;
      exit when found;
      continue;
    end if;
    if v_old.source = 'person' and p_source <> 'person'
       or (to_jsonb(v_old) - 'changed_at' - 'changed_by') = (to_jsonb(v_new) - 'changed_at' - 'changed_by') then
      return false;
    end if;
    delete from onceward.limit_private as l where l.name = p_name;
    insert into onceward.limit_private select v_new.*;
    exit;
  end loop;
  if not v_new.per_key then
    insert into onceward.bucket_private (limit_name, key, refilled_at) values (p_name, '', onceward.now())
        on conflict do nothing;
  end if;
  perform onceward.audit_setting('limit', p_name, onceward.limit_settings(v_old), onceward.limit_settings(v_new));
  return true;
end;
$$;

-- Checks what a limit is made of, and computes bursts and rates.
create or replace function onceward.check_limit_arguments(p_name text, p_limit jsonb)
  returns onceward.limit_private
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit onceward.limit_private;
  v_bad   text;
begin
  if p_name is null or p_name !~ '^[A-Za-z0-9_.:/-]{1,200}$' then
    perform onceward.bad_argument('limit', p_name, 'must be 1 to 200 letters, digits or . _ : / -');
  end if;
  select k into v_bad from jsonb_object_keys(p_limit) as k
   where k not in ('requests', 'period', 'weight', 'weight_period', 'slots', 'burst', 'weight_burst', 'allowance', 'per_key',
                   'threshold', 'over') limit 1;
  if found then
    perform onceward.bad_argument('limit', v_bad, 'cannot have this field',
      'Fields: requests, period, weight, weight_period, slots, burst, weight_burst, allowance, per_key, threshold, over.');
  end if;
  begin
    v_limit := jsonb_populate_record(null::onceward.limit_private, p_limit);
  exception
    when data_exception then
      perform onceward.bad_argument('limit', p_limit::text, format('must have valid fields (%s)', sqlerrm));
  end;
  v_limit.name := p_name;
  v_limit.per_key := coalesce(v_limit.per_key, false);
  v_limit.threshold := coalesce(v_limit.threshold, 0.8);
  v_limit.over := coalesce(v_limit.over, 'accept');
  if num_nonnulls(v_limit.requests, v_limit.weight, v_limit.slots) = 0 then
    perform onceward.bad_argument('limit', p_name, 'must have requests, weight or slots');
  end if;
  if v_limit.requests not between 1 and 1000000000 then
    perform onceward.bad_argument('requests', v_limit.requests::text, 'must be between 1 and 1000000000');
  end if;
  if v_limit.weight not between 1 and 1000000000000 then
    perform onceward.bad_argument('weight', v_limit.weight::text, 'must be between 1 and 1000000000000');
  end if;
  if v_limit.slots not between 1 and 10000 then
    perform onceward.bad_argument('slots', v_limit.slots::text, 'must be between 1 and 10000');
  end if;
  v_limit.weight_period := case when v_limit.weight is not null
                                then coalesce(v_limit.weight_period, v_limit.period, '1 minute') end;
  v_limit.period := case when v_limit.requests is not null then coalesce(v_limit.period, '1 minute') end;
  if v_limit.period not between interval '0.1 second' and interval '31 days'
     or v_limit.weight_period not between interval '0.1 second' and interval '31 days' then
    perform onceward.bad_argument('period', coalesce(v_limit.period, v_limit.weight_period)::text,
      'must be between 100 milliseconds and 31 days');
  end if;
  -- Time enough to begin, at the price of a fiftieth of the limit; more when the period is short.
  v_limit.allowance := coalesce(v_limit.allowance,
    greatest(interval '0.1 second', least(v_limit.period, v_limit.weight_period) * 0.02));
  if v_limit.allowance not between interval '0' and interval '1 hour' then
    perform onceward.bad_argument('allowance', v_limit.allowance::text, 'must be between 0 and 1 hour');
  end if;
  if v_limit.threshold not between 0 and 100 then
    perform onceward.bad_argument('threshold', v_limit.threshold::text, 'must be between 0 and 100');
  end if;
  if v_limit.over not in ('accept', 'defer') then
    perform onceward.bad_argument('over', v_limit.over, 'must be accept or defer');
  end if;
  if v_limit.requests is not null then
    v_limit.burst := coalesce(v_limit.burst, greatest(1, v_limit.requests * 0.02));
    v_limit.rate := onceward.limit_rate(v_limit.requests, v_limit.burst, v_limit.period, v_limit.allowance);
  else
    v_limit.burst := null;
  end if;
  if v_limit.weight is not null then
    v_limit.weight_burst := coalesce(v_limit.weight_burst, greatest(1, v_limit.weight * 0.03));
    v_limit.weight_rate := onceward.limit_rate(v_limit.weight, v_limit.weight_burst, v_limit.weight_period, v_limit.allowance);
  else
    v_limit.weight_burst := null;
  end if;
  if v_limit.burst not between 1 and v_limit.requests then
    perform onceward.bad_argument('burst', v_limit.burst::text, format('must be between 1 and the limit (%s)', v_limit.requests));
  end if;
  if v_limit.weight_burst not between 1 and v_limit.weight then
    perform onceward.bad_argument('weight_burst', v_limit.weight_burst::text, format('must be between 1 and the limit (%s)', v_limit.weight));
  end if;
  return v_limit;
end;
$$;

create or replace function onceward.drop_limit(p_name text)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_limit onceward.limit_private;
begin
  delete from onceward.limit_private as l where l.name = p_name returning l.* into v_limit;
  if not found then
    perform onceward.no_such_limit(p_name);
  end if;
  delete from onceward.bucket_private as b where b.limit_name = p_name;
  delete from onceward.hold_private as h where h.limit_name = p_name;
  delete from onceward.pressure_private as p where p.kind = 'limit' and p.name = p_name;
  perform onceward.wake(array(select l.name from onceward.lane_private as l));
  perform onceward.audit_setting('limit', p_name, onceward.limit_settings(v_limit), null);
end;
$$;
comment on function onceward.drop_limit(text) is
  'Removes a limit.  Jobs that wait for it are not held back any more.';

-- The limits that a job uses, as they are stored: sorted by name, with keys filled in.
create or replace function onceward.check_uses(p_uses jsonb, p_tenant text)
  returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_use    jsonb;
  v_limit  onceward.limit_private;
  v_uses   jsonb := '[]';
  v_weight numeric;
  v_key    text;
begin
  if jsonb_typeof(p_uses) is distinct from 'array' or jsonb_array_length(p_uses) not between 1 and 8 then
    perform onceward.bad_argument('uses', p_uses::text, 'must be a list of 1 to 8 limits');
  end if;
  for v_use in
    select u from jsonb_array_elements(p_uses) as u order by u ->> 'limit' collate "C"
  loop
    if jsonb_typeof(v_use) <> 'object' or v_use - array['limit', 'key', 'weight'] <> '{}' or v_use ->> 'limit' is null then
      perform onceward.bad_argument('uses', v_use::text, 'must be objects with limit, and perhaps key and weight');
    end if;
    if v_uses @> jsonb_build_array(jsonb_build_object('limit', v_use -> 'limit')) then
      perform onceward.bad_argument('uses', v_use::text, 'must name each limit once');
    end if;
    if jsonb_typeof(v_use -> 'weight') not in ('number', 'null') or (v_use ->> 'weight')::numeric not between 0 and 1e12 then
      perform onceward.bad_argument('uses', v_use::text, 'must have a weight from 0 to 1000000000000');
    end if;
    select * into v_limit from onceward.limit_private as l where l.name = v_use ->> 'limit';
    if not found then
      perform onceward.no_such_limit(v_use ->> 'limit');
    end if;
    v_weight := coalesce((v_use ->> 'weight')::numeric, 0);
    if v_weight > v_limit.weight_burst then
      perform onceward.more_than_limit(v_limit.name, v_weight, v_limit.weight_burst);
    end if;
    v_key := nullif(v_use ->> 'key', '');
    if v_limit.per_key then
      v_key := coalesce(v_key, p_tenant);
    elsif v_key is not null then
      perform onceward.bad_argument('uses', v_use::text, format('cannot have a key for limit "%s", which is not per key', v_limit.name));
    end if;
    if v_key !~ '^[^[:cntrl:]]{1,200}$' then
      perform onceward.bad_argument('uses', v_use::text, 'must have keys of 1 to 200 characters without control characters');
    end if;
    v_uses := v_uses || jsonb_build_array(jsonb_build_object('limit', v_limit.name, 'key', coalesce(v_key, ''), 'weight', v_weight));
  end loop;
  return v_uses;
end;
$$;

create or replace function onceward.more_than_limit(p_name text, p_weight numeric, p_burst double precision)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'limit "%" never gives % at once', p_name, p_weight
    using errcode = 'OW031',
          detail  = format('Its weight_burst, the most that it gives at once, is %s.', p_burst),
          hint    = 'Split the work, or set the limit with a higher weight_burst.';
end;
$$;
