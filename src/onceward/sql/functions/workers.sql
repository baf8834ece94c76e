-- Workers: one row and one lease per process; the lease covers every job that the worker runs.
-- An identity is made at each start and never used again, so that a new process cannot inherit a dead one's jobs.

create or replace function onceward.register_worker(
  p_name        text,
  p_lanes       text[] default array['default'],
  p_tasks       text[] default '{}',
  p_lease       interval default '30 seconds',
  p_host        text default 'unknown',
  p_pid         bigint default null,
  p_version     text default null,
  p_concurrency integer default 1
)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id   uuid := gen_random_uuid();
  v_lane text;
  v_task text;
begin
  if p_name is null or p_name = '' then
    perform onceward.bad_argument('name', p_name, 'must not be empty');
  end if;
  if p_concurrency is null or p_concurrency < 1 then
    perform onceward.bad_argument('concurrency', p_concurrency::text, 'must be at least 1');
  end if;
  select n into v_task from unnest(p_tasks) as n where n is null or n !~ '^[A-Za-z0-9_.:/-]{1,200}$' limit 1;
  if found then
    perform onceward.bad_argument('tasks', v_task, 'must each be 1 to 200 letters, digits or . _ : / -');
  end if;
  if p_lease is null or p_lease < interval '1 second' or p_lease > interval '1 day' then
    perform onceward.bad_argument('lease', p_lease::text, 'must be between 1 second and 1 day');
  end if;
  if p_lanes is null or cardinality(p_lanes) = 0 then
    perform onceward.bad_argument('lanes', p_lanes::text, 'must name at least one lane');
  end if;
  select n into v_lane from unnest(p_lanes) as n
   where not exists (select from onceward.lane_private as l where l.name = n) limit 1;
  if found then
    perform onceward.no_such_lane(v_lane);
  end if;
  insert into onceward.worker_private
    (id, name, host, pid, lanes, tasks, version, concurrency, lease, started_at, heartbeat_at, expires_at)
  values
    (v_id, left(p_name, 200), left(coalesce(p_host, 'unknown'), 200), p_pid, p_lanes, coalesce(p_tasks, '{}'), left(p_version, 200),
     p_concurrency, p_lease, onceward.now(), onceward.now(), onceward.now() + p_lease);
  insert into onceward.task_private as t (name, first_seen_at, last_seen_at)
  select n, onceward.now(), onceward.now() from (select distinct unnest(p_tasks) as n) as u order by n
      on conflict (name) do update set last_seen_at = excluded.last_seen_at
   where t.last_seen_at < excluded.last_seen_at - interval '1 minute';
  return v_id;
end;
$$;
comment on function onceward.register_worker(text, text[], text[], interval, text, bigint, text, integer) is
  'Registers a worker process and starts its lease.  Returns its identity, new at each start.';

create or replace function onceward.worker_is_live(p_worker_id uuid)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from onceward.worker_private as w
                  where w.id = p_worker_id and w.retired_at is null and w.expires_at > onceward.now())
$$;

create or replace function onceward.no_such_worker(p_worker_id uuid)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'worker % holds no lease', p_worker_id
    using errcode = 'OW009',
          detail  = 'It never registered, was retired, or sent no heartbeat within its lease.',
          hint    = 'Stop what it runs and call onceward.register_worker for a new identity.';
end;
$$;

-- Called about once a second; writes only when a sixth of the lease has passed, so that it costs next to nothing.
create or replace function onceward.heartbeat(p_worker_id uuid)
  returns table (expires_at timestamptz, cancel_job_ids uuid[])
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now timestamptz := onceward.now();
begin
  select w.expires_at into expires_at
    from onceward.worker_private as w
   where w.id = p_worker_id and w.retired_at is null and w.expires_at > v_now
     and w.heartbeat_at > v_now - w.lease / 6;
  if not found then
    update onceward.worker_private as w
       set heartbeat_at = v_now, expires_at = v_now + w.lease
     where w.id = p_worker_id and w.retired_at is null and w.expires_at > v_now
    returning w.expires_at into expires_at;
    if not found then
      perform onceward.no_such_worker(p_worker_id);
    end if;
  end if;
  cancel_job_ids := array(
    select j.id from onceward.job_private as j
     where j.state = 'running' and j.worker_id = p_worker_id and j.cancel_at is not null);
  return next;
end;
$$;
comment on function onceward.heartbeat(uuid) is
  'Renews a worker''s lease and tells which of its jobs are to be cancelled.  Raises OW009 when the lease is over: everything the worker runs belongs to others.';

create or replace function onceward.retire_worker(p_worker_id uuid)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update onceward.worker_private
     set retired_at = onceward.now(), retired_why = 'stopped', asleep_until = null
   where id = p_worker_id and retired_at is null;
  return onceward.release(p_worker_id);
end;
$$;
comment on function onceward.retire_worker(uuid) is
  'Ends a worker''s lease and hands its unfinished jobs back without using up an attempt.  Returns how many.';
