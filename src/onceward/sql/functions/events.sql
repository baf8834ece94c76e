-- Events that jobs wait for.  The first one of a name stays; who asks later gets it too.
-- An event and a job that begins to wait for it may cross, each unseen by the other until both are committed.  So each
-- leaves a row for the next promote, which runs after the commit: whichever is looked at last finds the other.
create or replace function onceward.emit_event(
  p_name    text,
  p_payload jsonb default null,
  p_tenant  text default null,
  p_keep    interval default '30 days',
  p_made_by uuid default null
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := onceward.tenant_for(p_tenant);
  v_lanes  text[];
begin
  perform onceward.check_event_name(p_name);
  if v_tenant !~ '^[^*[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant', v_tenant, 'must be 1 to 200 characters, without * and control characters');
  end if;
  if pg_column_size(p_payload) > 262144 then
    perform onceward.bad_argument('payload', pg_column_size(p_payload)::text || ' bytes', 'must be at most 262144 bytes',
      'Store the data elsewhere and emit a reference.');
  end if;
  perform onceward.check_depth('payload', p_payload);
  if p_keep is null or p_keep <= interval '0' or p_keep > interval '10 years' then
    perform onceward.bad_argument('keep', p_keep::text, 'must be more than 0 and at most 10 years');
  end if;
  insert into onceward.event_private as e (tenant, name, payload, emitted_at, expires_at, made_by)
  values (v_tenant, p_name, p_payload, onceward.now(), onceward.now() + p_keep, p_made_by)
      on conflict (tenant, name) do update
     set payload = excluded.payload, emitted_at = excluded.emitted_at, expires_at = excluded.expires_at,
         made_by = excluded.made_by
   where e.expires_at <= onceward.now();
  if not found then
    return false;
  end if;
  insert into onceward.recheck_private (kind, tenant, event) values ('event', v_tenant, p_name);
  -- A hint: of very many that wait, some are enough to know whom to wake.
  select array_agg(distinct w.lane) into v_lanes
    from (select j.lane from onceward.job_private as j
           where j.tenant = v_tenant and j.awaits = 'event:' || p_name limit 100) as w;
  perform onceward.wake(coalesce(v_lanes, '{}'));
  return true;
end;
$$;
comment on function onceward.emit_event(text, jsonb, text, interval, uuid) is
  'Emits an event in the caller''s transaction; jobs that wait for it go on.  The first one of a name stays, and false says that there was one.  It is kept for p_keep.  p_made_by names the job whose handler emits it.';

create or replace function onceward.check_event_name(p_name text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- A job waits for it in a step called "event <name>", and names of steps have at most 200 characters.
  if p_name is null or length(p_name) not between 1 and 194 or p_name ~ '[[:cntrl:]]' then
    perform onceward.bad_argument('event', p_name, 'must be 1 to 194 characters without control characters');
  end if;
end;
$$;

-- Jobs of p_job_ids that wait for an event which has come are due.
create or replace function onceward.hear_events(p_job_ids uuid[])
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
declare
  v_heard uuid[];
begin
  v_heard := array(
    select j.id from onceward.job_private as j
     where j.id = any (p_job_ids) and coalesce(j.awaits, '') like 'event:%'  -- see decide_waiting
       and exists (select from onceward.event_private as e
                    where e.tenant = j.tenant and e.name = substr(coalesce(j.awaits, ''), 7) and e.expires_at > onceward.now()));
  perform onceward.make_due(v_heard);
end;
$$;

-- Events that have come: p_events is [[tenant, name], ...].  Returns whether there are more to hear of them.
create or replace function onceward.spread_events(p_events jsonb, p_limit integer)
  returns boolean
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_hashjoin = off
  set enable_mergejoin = off
  set jit = off
as $$
declare
  v_heard uuid[];
begin
  v_heard := array(
    select w.id
      from jsonb_array_elements(p_events) as e
      join onceward.event_private as v on v.tenant = e ->> 0 and v.name = e ->> 1 and v.expires_at > onceward.now()
     cross join lateral (select j.id from onceward.job_private as j
                          where j.tenant = e ->> 0 and j.awaits = 'event:' || (e ->> 1)
                          limit p_limit) as w
     limit p_limit);
  perform onceward.make_due(v_heard);
  if cardinality(v_heard) < p_limit then
    return false;
  end if;
  insert into onceward.recheck_private (kind, tenant, event)
  select 'event', e ->> 0, e ->> 1 from jsonb_array_elements(p_events) as e;
  return true;
end;
$$;

-- The same promote makes them ready.
create or replace function onceward.make_due(p_job_ids uuid[])
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_locked uuid[];
begin
  if cardinality(p_job_ids) = 0 then
    return;
  end if;
  v_locked := array(select j.id from onceward.job_private as j
                     where j.id = any (p_job_ids) and coalesce(j.awaits, '') like 'event:%'
                     order by j.id
                       for update skip locked);
  update onceward.job_private as j
     set run_at = least(j.run_at, onceward.now()), awaits = null
   where j.id = any (v_locked);
  -- Locked by somebody who may leave them waiting.
  insert into onceward.recheck_private (kind, job_id)
  select 'job', j.id from onceward.job_private as j
   where j.id = any (p_job_ids) and j.id <> all (v_locked) and coalesce(j.awaits, '') like 'event:%';
end;
$$;
