-- Explain, the words: how moments, durations and errors are told to people.

create or replace function onceward.counted(p_count numeric, p_noun text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$ select format('%s %s%s', p_count, p_noun, case when p_count = 1 then '' else 's' end) $$;

-- A duration for people, to two figures or so: 507 milliseconds, 40 seconds, 5 minutes, 3 hours, 12 days.
create or replace function onceward.told_span(p_span interval)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select onceward.counted(n, unit)
    from (select extract(epoch from p_span) as seconds) as s
   cross join lateral (
     select case when seconds between 0.001 and 0.9994 then round(seconds * 1000)
                 when seconds < 120 then round(seconds) when seconds < 7200 then round(seconds / 60)
                 when seconds < 172800 then round(seconds / 3600) else round(seconds / 86400) end::bigint as n,
            case when seconds between 0.001 and 0.9994 then 'millisecond'
                 when seconds < 120 then 'second' when seconds < 7200 then 'minute'
                 when seconds < 172800 then 'hour' else 'day' end as unit) as u
$$;

-- A moment for people, in UTC and as a distance: 2026-11-16 07:00:00Z (in 5 minutes).
create or replace function onceward.told(p_at timestamptz)
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select to_char(p_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')
         || case when abs(extract(epoch from p_at - onceward.now())) < 1 then ' (now)'
                 when p_at > onceward.now() then format(' (in %s)', onceward.told_span(p_at - onceward.now()))
                 else format(' (%s ago)', onceward.told_span(onceward.now() - p_at)) end
$$;

-- What somebody wrote, on one line that is not too long and without a full stop, to stand inside a sentence.  Null when empty.
create or replace function onceward.told_text(p_text text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select nullif(rtrim(case when length(t) > 300 then left(t, 300) || '…' else t end, '. '), '')
    from (select trim(regexp_replace(left(p_text, 2000), '\s+', ' ', 'g')) as t) as l
$$;

-- The type and the message of a failure.
create or replace function onceward.told_error(p_error jsonb)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select nullif(concat_ws(': ', nullif(p_error ->> 'type', ''), onceward.told_text(p_error ->> 'message')), '')
$$;

-- A name as a word of a command line.
create or replace function onceward.told_word(p_name text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select case when p_name ~ '^[A-Za-z0-9_.:/@-]+$' then p_name else '''' || replace(p_name, '''', '''\''''') || '''' end
$$;
