-- Arguments are checked at the edge, in one place, with an error that names the argument and the value.

-- A value as errors show it: enough to be recognised, never a page.
create or replace function onceward.shown(p_value text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when length(p_value) > 60 then left(p_value, 60) || '…' else p_value end
$$;

create or replace function onceward.bad_argument(p_name text, p_value text, p_rule text, p_hint text default null)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception '% %, got %', p_name, p_rule, coalesce(quote_literal(onceward.shown(p_value)), 'null')
    using errcode = 'OW008',
          detail  = 'Nothing was written.',
          hint    = coalesce(p_hint, format('Correct %s and call again.', p_name));
end;
$$;

create or replace function onceward.check_job_arguments(
  p_task              text,
  p_priority          integer,
  p_run_at            timestamptz,
  p_expires_at        timestamptz,
  p_timeout           interval,
  p_max_attempts      integer,
  p_retry             jsonb,
  p_tenant            text,
  p_concurrency_key   text,
  p_concurrency_limit integer,
  p_headers           jsonb
)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := onceward.now();
begin
  if p_task is null or length(p_task) not between 1 and 200 or p_task ~ '[^A-Za-z0-9_.:/-]' then
    perform onceward.bad_argument('task', p_task, 'must be 1 to 200 letters, digits or . _ : / -');
  end if;
  if p_priority is null or p_priority not between -1000 and 1000 then
    perform onceward.bad_argument('priority', p_priority::text, 'must be between -1000 and 1000');
  end if;
  if p_max_attempts is null or p_max_attempts not between 1 and 1000 then
    perform onceward.bad_argument('max_attempts', p_max_attempts::text, 'must be between 1 and 1000');
  end if;
  perform onceward.check_run_at(p_run_at);
  if p_expires_at <= greatest(v_now, p_run_at) then
    perform onceward.bad_argument('expires_at', p_expires_at::text, 'must be later than run_at and now',
      'A job is never started after expires_at; this one could never start.');
  end if;
  if p_expires_at > v_now + interval '11 years' then
    perform onceward.bad_argument('expires_at', p_expires_at::text, 'must lie within the next 11 years',
      'Leave it out for a job that never expires.');
  end if;
  if p_timeout <= interval '0' or p_timeout > interval '30 days' then
    perform onceward.bad_argument('timeout', p_timeout::text, 'must be more than 0 and at most 30 days');
  end if;
  if p_tenant is not null and p_tenant !~ '^[^*[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant', p_tenant, 'must be 1 to 200 characters, without * and control characters');
  end if;
  if length(p_concurrency_key) not between 1 and 500 then
    perform onceward.bad_argument('concurrency_key', p_concurrency_key, 'must be 1 to 500 characters');
  end if;
  if p_concurrency_limit not between 1 and 10000 or (p_concurrency_limit is null and p_concurrency_key is not null) then
    perform onceward.bad_argument('concurrency_limit', p_concurrency_limit::text, 'must be between 1 and 10000');
  end if;
  if p_concurrency_limit > 1 and p_concurrency_key is null then
    perform onceward.bad_argument('concurrency_limit', p_concurrency_limit::text, 'goes with a concurrency_key',
      'Give the key whose jobs share the limit, or leave the limit out.');
  end if;
  if p_headers is not null and (jsonb_typeof(p_headers) <> 'object' or pg_column_size(p_headers) > 8192) then
    perform onceward.bad_argument('headers', left(p_headers::text, 100), 'must be a JSON object of at most 8192 bytes');
  end if;
  perform onceward.check_retry(p_retry);
end;
$$;

-- A time that has passed means now; one of another century is a slip.
create or replace function onceward.check_run_at(p_run_at timestamptz)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_run_at > onceward.now() + interval '10 years' then
    perform onceward.bad_argument('run_at', p_run_at::text, 'must lie within the next 10 years');
  end if;
  if p_run_at < timestamptz '2000-01-01 00:00:00+00' then
    perform onceward.bad_argument('run_at', p_run_at::text, 'must not be before the year 2000',
      'Leave it out to run at once.');
  end if;
end;
$$;

-- A payload is an object: its members have names, and handlers in every language take them by name.
create or replace function onceward.check_payload(p_payload jsonb)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' then
    perform onceward.bad_argument('payload', p_payload::text,
      format('must be a JSON object, not %s', coalesce(case jsonb_typeof(p_payload)
        when 'array' then 'an array' when 'string' then 'a string' when 'number' then 'a number'
        when 'boolean' then 'a boolean' end, 'null')),
      'Name the values, as in {"order": 1}.');
  end if;
  perform onceward.check_depth('payload', p_payload);
end;
$$;

-- The same bound as in clients: readers in most languages fail on what is deeper.  Whoever calls this often asks first
-- whether the value is large enough for so many levels.
create or replace function onceward.check_depth(p_field text, p_value jsonb)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_value @? '$.**{201}' then
    perform onceward.bad_argument(p_field, p_value::text, 'must not be nested deeper than 200 levels',
      'Flatten it, or put the deep part into it as text.');
  end if;
end;
$$;

-- Work on a set is bounded; the caller says by how much.
create or replace function onceward.check_limit(p_limit integer)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_limit is null or p_limit not between 1 and 1000000 then
    perform onceward.bad_argument('limit', p_limit::text, 'must be between 1 and 1000000');
  end if;
end;
$$;

-- The time until which a key stays taken: null while the job lives ('live') and for ever ('forever').
create or replace function onceward.key_expiry(p_window text)
  returns timestamptz
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_window interval;
begin
  if p_window in ('live', 'forever') then
    return null;
  end if;
  begin
    v_window := p_window::interval;
  exception
    when invalid_datetime_format or datetime_field_overflow or interval_field_overflow then
      perform onceward.bad_argument('key_window', p_window, 'must be live, forever or an interval such as 24 hours');
  end;
  if v_window is null or v_window <= interval '0' or v_window > interval '10 years' then
    perform onceward.bad_argument('key_window', p_window, 'must be live, forever or an interval of up to 10 years');
  end if;
  return onceward.now() + v_window;
end;
$$;

create or replace function onceward.check_key(p_key text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if length(p_key) not between 1 and 500 then
    perform onceward.bad_argument('key', p_key, 'must be 1 to 500 characters');
  end if;
end;
$$;
