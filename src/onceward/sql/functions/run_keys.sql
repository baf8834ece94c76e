-- Run keys: function:tenant:window:hash, the name of one run of something in one window of time.
-- The Python module onceward.run_keys gives the same text; a test holds the two together.

-- JSON in one form only: keys sorted by code point at every depth, no white space, numbers in plain notation.
create or replace function onceward.canonical_json(p_value jsonb)
  returns text
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_number text;
begin
  case jsonb_typeof(p_value)
    when 'object' then
      return '{' || coalesce((select string_agg(to_json(e.key)::text || ':' || onceward.canonical_json(e.value), ',' order by e.key collate "C")
                                from jsonb_each(p_value) as e), '') || '}';
    when 'array' then
      return '[' || coalesce((select string_agg(onceward.canonical_json(e.value), ',' order by e.n)
                                from jsonb_array_elements(p_value) with ordinality as e (value, n)), '') || ']';
    when 'number' then
      -- No exponent, no zeros that say nothing: 1.0 and 1e0 are 1.
      v_number := trim_scale((p_value #>> '{}')::numeric)::text;
      if length(translate(v_number, '-.', '')) > 38 then
        perform onceward.bad_argument('number in entity', v_number, 'must have at most 38 digits', 'Send it as a string.');
      end if;
      return v_number;
    else
      return p_value::text;
  end case;
end;
$$;

create or replace function onceward.run_key(
  p_function text,
  p_tenant   text,
  p_grain    text default 'day',
  p_entity   jsonb default null,
  p_at       timestamptz default null,
  p_zone     text default 'UTC'
)
  returns text
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_at     timestamptz := coalesce(p_at, onceward.now());
  v_local  timestamp;
  v_window text;
begin
  if p_function is null or p_function !~ '^[A-Za-z0-9_.-]{1,200}$' then
    perform onceward.bad_argument('function', p_function, 'must be 1 to 200 letters, digits or . _ -');
  end if;
  if p_tenant is null or p_tenant !~ '^[^*:[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant', p_tenant, 'must be 1 to 200 characters, without *, : and control characters');
  end if;
  if p_grain is null or p_grain not in ('hour', 'day') then
    perform onceward.bad_argument('grain', p_grain, 'must be hour or day');
  end if;
  if not isfinite(v_at) then
    perform onceward.bad_argument('at', v_at::text, 'must be a moment');
  end if;
  if p_entity is not null and jsonb_typeof(p_entity) <> 'object' then
    perform onceward.bad_argument('entity', left(p_entity::text, 100), 'must be a JSON object');
  end if;
  perform onceward.check_zone(p_zone);
  v_local := v_at at time zone p_zone;
  v_window := case p_grain
    when 'day' then to_char(v_local, 'YYYY-MM-DD')
    -- With the offset: the hour that is repeated in autumn is two windows.
    else to_char(v_local, 'YYYY-MM-DD"T"HH24') || replace(right(onceward.slot_text(v_local, v_at, true), 6), ':', '') end;
  return p_function || ':' || p_tenant || ':' || v_window
      || coalesce(':' || left(encode(sha256(convert_to(onceward.entity_text(p_entity), 'UTF8')), 'hex'), 12), '');
end;
$$;
comment on function onceward.run_key(text, text, text, jsonb, timestamptz, text) is
  'The name of one run in one window: function:tenant:window, and the hash of the entity if there is one.  The window is the day or the hour in this time zone.';

-- The top level as sorted pairs, [["a",1],["b",2]], as the standard writes it.
create or replace function onceward.entity_text(p_entity jsonb)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select '[' || coalesce((select string_agg('[' || to_json(e.key)::text || ',' || onceward.canonical_json(e.value) || ']', ','
                                            order by e.key collate "C")
                            from jsonb_each(p_entity) as e), '') || ']'
   where p_entity is not null
$$;
