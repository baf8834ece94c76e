-- Runs: once per key.  A key that runs or has completed blocks; one that failed, or whose lease is over, may be taken.
-- The primary key decides a race: a caller that meets an open transaction waits for it.

create or replace function onceward.begin_run(
  p_key    text,
  p_holder text,
  p_lease  interval default '5 minutes',
  p_tenant text default null,
  p_token  uuid default null
)
  returns table (acquired boolean, state text, epoch bigint, attempt integer, holder text, since timestamptz,
                 expires_at timestamptz, finished_at timestamptz, result jsonb, error text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := onceward.tenant_for(p_tenant);
  v_now    timestamptz := onceward.now();
begin
  perform onceward.check_job_arguments('run', 0, null, null, null, 1, null, v_tenant, null, 1, null);
  perform onceward.check_tenant(v_tenant, 'run');
  if p_key is null then
    perform onceward.bad_argument('key', null, 'must be 1 to 500 characters');
  end if;
  perform onceward.check_key(p_key);
  if p_holder is null or length(p_holder) not between 1 and 200 then
    perform onceward.bad_argument('holder', p_holder, 'must be 1 to 200 characters', 'Say who runs it, for those who come second.');
  end if;
  perform onceward.check_lease(p_lease);
  loop
    return query
    insert into onceward.run_private as r
      (tenant, key, state, holder, token, epoch, attempt, created_at, since, expires_at)
    values (v_tenant, p_key, 'running', p_holder, p_token, 1, 1, v_now, v_now, v_now + p_lease)
        on conflict (tenant, key) do update
       set state = 'running', holder = excluded.holder, token = excluded.token, epoch = r.epoch + 1, attempt = r.attempt + 1,
           since = excluded.since, expires_at = excluded.expires_at, finished_at = null, result = null, error = null
     where r.state = 'failed' or (r.state = 'running' and r.expires_at <= v_now)
    returning true, r.state, r.epoch, r.attempt, r.holder, r.since, r.expires_at, r.finished_at, r.result, r.error;
    exit when found;
    -- Taken.  The caller whose reply was lost hears that it is the holder.
    return query
    select coalesce(r.token = p_token and r.state = 'running', false), r.state, r.epoch, r.attempt, r.holder, r.since, r.expires_at,
           r.finished_at, r.result, r.error
      from onceward.run_private as r
     where r.tenant = v_tenant and r.key = p_key;
    -- Unless it was tidied away just now.
    exit when found;
  end loop;
end;
$$;
comment on function onceward.begin_run(text, text, interval, text, uuid) is
  'Takes a key, or tells who has it.  Acquired: the caller runs it, under this epoch, until the lease is over.  Not acquired: it runs (holder, since) or has completed (result).  A call with the same token may be repeated.';

create or replace function onceward.check_lease(p_lease interval)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_lease is null or p_lease not between interval '1 second' and interval '7 days' then
    perform onceward.bad_argument('lease', p_lease::text, 'must be between 1 second and 7 days');
  end if;
end;
$$;

create or replace function onceward.lost_run(p_tenant text, p_key text, p_epoch bigint)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_run onceward.run_private;
begin
  select * into v_run from onceward.run_private as r where r.tenant = p_tenant and r.key = p_key;
  raise exception 'run "%" is not held under epoch %', onceward.shown(p_key), p_epoch
    using errcode = 'OW001',
          detail  = case when v_run.key is null then 'There is no such run.'
                         else format('It is %s under epoch %s, by %s since %s.', v_run.state, v_run.epoch, v_run.holder, v_run.since) end,
          hint    = 'Stop: somebody else may be at work.  What was done is not recorded.';
end;
$$;

create or replace function onceward.renew_run(p_key text, p_epoch bigint, p_lease interval default '5 minutes', p_tenant text default null)
  returns timestamptz
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := onceward.tenant_for(p_tenant);
  v_until  timestamptz;
begin
  perform onceward.check_tenant(v_tenant, 'run');
  perform onceward.check_lease(p_lease);
  update onceward.run_private as r
     set expires_at = onceward.now() + p_lease
   where r.tenant = v_tenant and r.key = p_key and r.epoch = p_epoch and r.state = 'running'
  returning r.expires_at into v_until;
  if not found then
    perform onceward.lost_run(v_tenant, p_key, p_epoch);
  end if;
  return v_until;
end;
$$;
comment on function onceward.renew_run(text, bigint, interval, text) is
  'Keeps a run for another lease.  Refused (OW001) when somebody has taken it over.  Returns the new end of the lease.';

create or replace function onceward.finish_run(p_key text, p_epoch bigint, p_result jsonb default null, p_tenant text default null)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := onceward.tenant_for(p_tenant);
begin
  perform onceward.check_tenant(v_tenant, 'run');
  if octet_length(p_result::text) > 262144 then
    raise exception 'result of a run must be at most 262144 bytes, got %', octet_length(p_result::text)
      using errcode = 'OW004', detail = 'Nothing was written.', hint = 'Store the data elsewhere and return a reference.';
  end if;
  update onceward.run_private as r
     set state = 'completed', expires_at = null, finished_at = onceward.now(), result = p_result
   where r.tenant = v_tenant and r.key = p_key and r.epoch = p_epoch and r.state = 'running';
  -- Repeated after a lost reply: the epoch says that it was this run.
  if not found and not exists (select from onceward.run_private as r
                                where r.tenant = v_tenant and r.key = p_key and r.epoch = p_epoch and r.state = 'completed') then
    perform onceward.lost_run(v_tenant, p_key, p_epoch);
  end if;
end;
$$;
comment on function onceward.finish_run(text, bigint, jsonb, text) is
  'Ends a run as completed: its key is taken for good.  Refused (OW001) when somebody has taken it over.';

create or replace function onceward.fail_run(p_key text, p_epoch bigint, p_error text default null, p_tenant text default null)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := onceward.tenant_for(p_tenant);
begin
  perform onceward.check_tenant(v_tenant, 'run');
  update onceward.run_private as r
     set state = 'failed', expires_at = null, finished_at = onceward.now(), error = left(p_error, 4000)
   where r.tenant = v_tenant and r.key = p_key and r.epoch = p_epoch and r.state = 'running';
  if not found and not exists (select from onceward.run_private as r
                                where r.tenant = v_tenant and r.key = p_key and r.epoch = p_epoch and r.state = 'failed') then
    perform onceward.lost_run(v_tenant, p_key, p_epoch);
  end if;
end;
$$;
comment on function onceward.fail_run(text, bigint, text, text) is
  'Ends a run as failed: the next caller may take its key.  Refused (OW001) when somebody has taken it over.';
