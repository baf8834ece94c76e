-- When a schedule fires.  A spec is text, in one of three forms:
--   0 7 * * mon-fri                     cron: minute, hour, day of month, month, day of week
--   07:00 mon-fri America/Los_Angeles   local times of day, weekdays and zone if wanted
--   30 seconds                          an interval of elapsed time, counted from an anchor
-- It is read once, into a plan, and a plan gives its ticks: a slot (the local time, which names it) and the moment.

-- One field of a cron expression as the numbers that it means.
create or replace function onceward.cron_field(p_field text, p_text text, p_low integer, p_high integer, p_names text[])
  returns integer[]
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_part   text;
  v_piece  text[];
  v_ends   integer[];
  v_step   integer;
  v_values integer[] := '{}';
begin
  foreach v_part in array string_to_array(p_text, ',') loop
    v_piece := regexp_match(v_part, '^(?:(\*)|([0-9]{1,4}|[a-z]{3})(?:-([0-9]{1,4}|[a-z]{3}))?)(?:/([0-9]{1,4}))?$');
    if v_piece is null then
      perform onceward.bad_argument(format('cron field "%s"', p_field), v_part,
        format('must be *, a value, a range a-b, either with a step /n, or a list of these with commas; values are %s to %s%s',
               p_low, p_high, case when p_names is null then '' else format(' or %s to %s', p_names[1], p_names[cardinality(p_names)]) end),
        'L, W, #, ? and other extensions are not understood.');
    end if;
    if v_piece[1] is not null then
      -- 7 is a second name of Sunday.
      v_ends := array[p_low, case when p_field = 'day of week' then 6 else p_high end];
    else
      v_ends := array[onceward.cron_value(p_field, v_piece[2], p_low, p_high, p_names),
                      onceward.cron_value(p_field, coalesce(v_piece[3], v_piece[2]), p_low, p_high, p_names)];
      -- fri-sun
      if v_piece[3] = 'sun' then
        v_ends[2] := 7;
      end if;
      if v_piece[3] is null and v_piece[4] is not null then
        perform onceward.bad_argument(format('cron field "%s"', p_field), v_part, 'has a step without a range',
          format('Write %s-%s/%s.', v_piece[2], p_high, v_piece[4]));
      end if;
    end if;
    if v_ends[1] > v_ends[2] then
      perform onceward.bad_argument(format('cron field "%s"', p_field), v_part, 'must not be a range that goes backwards',
        'Write two ranges with a comma.');
    end if;
    v_step := coalesce(v_piece[4]::integer, 1);
    if v_step not between 1 and p_high then
      perform onceward.bad_argument(format('cron field "%s"', p_field), v_part, format('must have a step from 1 to %s', p_high));
    end if;
    v_values := v_values || array(select generate_series(v_ends[1], v_ends[2], v_step));
  end loop;
  return array(select distinct case when p_field = 'day of week' then v % 7 else v end from unnest(v_values) as v order by 1);
end;
$$;

create or replace function onceward.cron_value(p_field text, p_text text, p_low integer, p_high integer, p_names text[])
  returns integer
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_value integer := case when p_text ~ '^[0-9]+$' then p_text::integer
                          else p_low - 1 + array_position(p_names, p_text) end;
begin
  if v_value is null or v_value not between p_low and p_high then
    perform onceward.bad_argument(format('cron field "%s"', p_field), p_text,
      format('must have values from %s to %s%s', p_low, p_high,
             case when p_names is null then '' else format(' or %s to %s', p_names[1], p_names[cardinality(p_names)]) end));
  end if;
  return v_value;
end;
$$;

create or replace function onceward.cron_plan(p_spec text, p_zone text)
  returns jsonb
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_fields text[] := regexp_split_to_array(p_spec, '\s+');
  v_doms   integer[];
  v_months integer[];
  v_dows   integer[];
begin
  if cardinality(v_fields) <> 5 then
    perform onceward.bad_argument('spec', p_spec,
      format('must be a cron expression of 5 fields (it has %s), a time of day or an interval', cardinality(v_fields)),
      'Write it like 0 7 * * mon-fri, 07:00 mon-fri, or 30 seconds.');
  end if;
  v_doms := onceward.cron_field('day of month', v_fields[3], 1, 31, null);
  v_months := onceward.cron_field('month', v_fields[4], 1, 12,
                                  '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
  v_dows := onceward.cron_field('day of week', v_fields[5], 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
  return jsonb_build_object(
    'kind', 'cron', 'zone', p_zone,
    'minutes', onceward.cron_field('minute', v_fields[1], 0, 59, null),
    'hours', onceward.cron_field('hour', v_fields[2], 0, 23, null),
    'doms', v_doms, 'months', v_months, 'dows', v_dows,
    -- As in every cron: two restricted day fields mean either, and a field that begins with * does not restrict.
    'either', v_fields[3] !~ '^\*' and v_fields[5] !~ '^\*',
    'elapsed', v_fields[2] ~ '^\*(/[0-9]+)?$');
end;
$$;

-- 07:00, 07:00:30, 07:00,19:30, each with weekdays and a zone after it.
create or replace function onceward.time_plan(p_spec text, p_zone text)
  returns jsonb
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  -- A space behind a comma is as good as none.
  v_words text[] := regexp_split_to_array(regexp_replace(p_spec, '\s*,\s*', ',', 'g'), '\s+');
  v_word  text;
  v_time  text[];
  v_times integer[] := '{}';
begin
  foreach v_word in array string_to_array(v_words[1], ',') loop
    v_time := regexp_match(v_word, '^([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?$');
    if v_time is null then
      perform onceward.bad_argument('time of day in spec', v_word, 'must be from 00:00 to 23:59, seconds if wanted');
    end if;
    v_times := v_times || v_time[1]::integer * 3600 + v_time[2]::integer * 60 + coalesce(v_time[3], '0')::integer;
  end loop;
  if cardinality(v_words) > 2 then
    perform onceward.bad_argument('spec', p_spec, 'must be times of day, then weekdays, then a zone',
      'Write it like 07:00 mon-fri America/Los_Angeles.');
  end if;
  return jsonb_build_object(
    'kind', 'time', 'zone', p_zone,
    'times', array(select distinct t from unnest(v_times) as t order by 1),
    'doms', array(select generate_series(1, 31)), 'months', array(select generate_series(1, 12)),
    'dows', onceward.cron_field('day of week', coalesce(v_words[2], '*'), 0, 7, '{sun,mon,tue,wed,thu,fri,sat}'),
    'either', false, 'elapsed', false);
end;
$$;

-- 30 seconds, every 5 minutes, 14 days from 2026-01-05T09:00+01:00.
create or replace function onceward.interval_plan(p_spec text, p_zone text)
  returns jsonb
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_parts  text[] := regexp_match(p_spec, '^(?:every\s+)?(.+?)(?:\s+from\s+(.+))?$');
  v_step   interval;
  v_anchor numeric := 0;
begin
  if v_parts[2] is not null and v_parts[2] !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([t ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(z|[+-][0-9]{2}:[0-9]{2})?)?$' then
    perform onceward.bad_argument('anchor in spec', v_parts[2], 'must be a date or a time as in ISO 8601',
      'Write it like 14 days from 2026-01-05, or 2026-01-05T09:00+01:00.');
  end if;
  begin
    v_step := v_parts[1]::interval;
  exception
    when data_exception then
      perform onceward.bad_argument('interval in spec', p_spec, 'must be a length of time', 'Write it like 30 seconds or 6 hours.');
  end;
  begin
    if v_parts[2] ~ '(z|[+-][0-9]{2}:[0-9]{2})$' and v_parts[2] ~ '[t ]' then
      v_anchor := extract(epoch from v_parts[2]::timestamptz);
    elsif v_parts[2] is not null then
      v_anchor := extract(epoch from v_parts[2]::timestamp at time zone p_zone);
    end if;
  exception
    when data_exception then
      perform onceward.bad_argument('anchor in spec', v_parts[2], 'must be a date and time that exists',
        'Write it like 14 days from 2026-01-05, or 2026-01-05T09:00+01:00.');
  end;
  if extract(year from v_step) <> 0 or extract(month from v_step) <> 0 then
    perform onceward.bad_argument('interval in spec', p_spec, 'must not have months or years, which differ in length',
      'Write a cron expression, such as 0 7 1 * * for the first of each month.');
  end if;
  if v_step not between interval '1 second' and interval '366 days' or extract(epoch from v_step) % 1 <> 0 then
    perform onceward.bad_argument('interval in spec', p_spec, 'must be whole seconds, from 1 second to 366 days');
  end if;
  return jsonb_build_object('kind', 'interval', 'zone', p_zone, 'seconds', extract(epoch from v_step)::bigint,
                            'anchor', floor(v_anchor)::bigint);
end;
$$;

-- The zone's rules, not an abbreviation: CET is one offset all year to PostgreSQL, Europe/Berlin is not.
create or replace function onceward.check_zone(p_zone text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_zone !~ '^(UTC|[A-Za-z]+(/[A-Za-z0-9_+-]+)+)$' then
    perform onceward.bad_argument('zone', p_zone, 'must be the name of a time zone', 'Write it like America/Los_Angeles, or UTC.');
  end if;
  begin
    perform timestamptz '2000-01-01 00:00+00' at time zone p_zone;
  exception
    when invalid_parameter_value then
      perform onceward.bad_argument('zone', p_zone, 'must be a time zone that PostgreSQL knows',
        'Names are in the view pg_timezone_names.');
  end;
  -- With a digit, PostgreSQL takes any name for a zone of that offset.
  if p_zone ~ '[0-9]' and not exists (select from pg_timezone_names as z where lower(z.name) = lower(p_zone)) then
    perform onceward.bad_argument('zone', p_zone, 'must be a time zone that PostgreSQL knows',
      'Names are in the view pg_timezone_names.');
  end if;
end;
$$;

create or replace function onceward.read_spec(p_spec text, p_zone text)
  returns jsonb
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  -- What a spec means must not depend on who reads it.
  set intervalstyle = 'postgres'
  set datestyle = 'ISO, YMD'
  set timezone = 'UTC'
as $$
declare
  v_text text := btrim(p_spec, E' \t\n\r');
  -- A zone may stand at the end of the text; its case is kept.
  v_zone text := (regexp_match(v_text, '\s(UTC|[A-Za-z]+(?:/[A-Za-z][A-Za-z0-9_+-]*)+)$'))[1];
  v_plan jsonb;
begin
  if v_text is null or length(v_text) not between 1 and 500 then
    perform onceward.bad_argument('spec', p_spec, 'must be 1 to 500 characters',
      'Write it like 0 7 * * mon-fri, 07:00 mon-fri, or 30 seconds.');
  end if;
  if v_zone is not null then
    if p_zone <> v_zone then
      perform onceward.bad_argument('zone', p_zone, format('must be that of the spec (%s), when both are given', v_zone),
        'Name the zone once.');
    end if;
    v_text := rtrim(left(v_text, -length(v_zone)));
  end if;
  v_zone := coalesce(v_zone, p_zone, 'UTC');
  perform onceward.check_zone(v_zone);
  v_text := lower(v_text);
  v_text := coalesce((jsonb_build_object(
    '@hourly', '0 * * * *', '@daily', '0 0 * * *', '@midnight', '0 0 * * *', '@weekly', '0 0 * * 0',
    '@monthly', '0 0 1 * *', '@yearly', '0 0 1 1 *', '@annually', '0 0 1 1 *') ->> v_text), v_text);
  if v_text ~ '^[0-9]{1,2}:' then
    v_plan := onceward.time_plan(v_text, v_zone);
  elsif v_text ~ '^every\s' or v_text ~ '^[0-9.]+\s*[a-z]' then
    v_plan := onceward.interval_plan(v_text, v_zone);
  else
    v_plan := onceward.cron_plan(v_text, v_zone);
  end if;
  if not exists (select from onceward.plan_ticks(v_plan, onceward.now(), null, 1)) then
    perform onceward.bad_argument('spec', p_spec, 'must name a day that exists', 'It would not fire in the next 50 years.');
  end if;
  return v_plan;
end;
$$;
