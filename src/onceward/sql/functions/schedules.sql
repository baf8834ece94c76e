-- Schedules: recurring enqueues, made by code, by a person, or by any program that speaks SQL.

create or replace function onceward.add_schedule(
  p_name         text,
  p_task         text,
  p_spec         text,
  p_zone         text default null,
  p_payload      jsonb default '{}',
  p_lane         text default 'default',
  p_priority     integer default 0,
  p_max_attempts integer default 8,
  p_retry        jsonb default null,
  p_timeout      interval default null,
  p_expires_in   interval default null,
  p_missed       text default 'latest',
  p_catch_up     integer default 1000,
  p_grace        interval default '60 seconds',
  p_overlap      text default 'skip',
  p_jitter       interval default '0',
  p_tenant       text default null,
  p_uses         jsonb default null
)
  returns table (outcome text, next_slot text, next_at timestamptz)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_row onceward.schedule_private;
begin
  v_row.tenant := onceward.tenant_for(p_tenant);
  v_row.name := p_name;
  v_row.task := p_task;
  v_row.spec := p_spec;
  v_row.zone := p_zone;
  v_row.payload := p_payload;
  v_row.lane := p_lane;
  v_row.priority := p_priority;
  v_row.max_attempts := p_max_attempts;
  v_row.retry := p_retry;
  v_row.timeout := p_timeout;
  v_row.expires_in := p_expires_in;
  v_row.missed := p_missed;
  v_row.catch_up := p_catch_up;
  v_row.grace := p_grace;
  v_row.overlap := p_overlap;
  v_row.jitter := p_jitter;
  v_row.uses := p_uses;
  v_row.source := 'person';
  return query select * from onceward.put_schedule(v_row);
end;
$$;
comment on function onceward.add_schedule(text, text, text, text, jsonb, text, integer, integer, jsonb, interval, interval, text, integer, interval, text, interval, text, jsonb) is
  'Creates a schedule, or changes the one of this name.  A schedule that code had declared is a person''s from then on, and code leaves it alone.  Outcome: created, changed or unchanged.';

-- What an application declares at the start of each worker: [{"name": ..., "task": ..., "spec": ..., ...}, ...].
-- In the normal case nothing is written or locked.
create or replace function onceward.declare_schedules(p_app text, p_schedules jsonb)
  returns table (name text, outcome text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_item   jsonb;
  v_row    onceward.schedule_private;
  v_keep   text[] := '{}';
  v_detail text;
  v_hint   text;
begin
  if p_app is null or length(p_app) not between 1 and 200 then
    perform onceward.bad_argument('app', p_app, 'must be 1 to 200 characters');
  end if;
  if p_schedules is null or jsonb_typeof(p_schedules) <> 'array' then
    perform onceward.bad_argument('schedules', left(p_schedules::text, 100), 'must be a JSON array of objects');
  end if;
  for v_item in select i from jsonb_array_elements(p_schedules) as i order by i ->> 'tenant', i ->> 'name' loop
    begin
      v_row := onceward.read_schedule(v_item);
      v_row.app := p_app;
      name := v_row.name;
      outcome := (select p.outcome from onceward.put_schedule(v_row) as p);
    exception
      when sqlstate 'OW008' then
        get stacked diagnostics v_detail = pg_exception_detail, v_hint = pg_exception_hint;
        raise exception 'schedule "%": %', onceward.shown(v_item ->> 'name'), sqlerrm
          using errcode = 'OW008', detail = v_detail, hint = v_hint;
    end;
    v_keep := v_keep || (v_row.tenant || '/' || v_row.name);
    return next;
  end loop;
  -- Those that are gone from the code go on: to stop work is for a person to decide.
  for v_row in
    update onceward.schedule_private as s
       set undeclared_at = onceward.now()
     where s.app = p_app and s.source = 'code' and s.undeclared_at is null and s.tenant || '/' || s.name <> all (v_keep)
    returning s.*
  loop
    perform onceward.audit_schedule(v_row, 'schedule.undeclared', '{"declared": true}', '{"declared": false}');
  end loop;
end;
$$;
comment on function onceward.declare_schedules(text, jsonb) is
  'Creates or changes the schedules that an application declares in code.  Leaves alone whether a schedule is paused, and schedules that a person has made or changed.  Those no longer declared go on and are shown as undeclared.';

create or replace function onceward.read_schedule(p_item jsonb)
  returns onceward.schedule_private
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_row     onceward.schedule_private;
  v_unknown text;
begin
  v_unknown := (select string_agg(k, ', ' order by k) from jsonb_object_keys(p_item) as k
                 where k not in ('name', 'tenant', 'task', 'spec', 'zone', 'payload', 'lane', 'priority', 'max_attempts', 'retry',
                                 'timeout', 'expires_in', 'missed', 'catch_up', 'grace', 'overlap', 'jitter',
                                 'uses'));
  if v_unknown is not null then
    perform onceward.bad_argument('a schedule', v_unknown, 'must have known fields only');
  end if;
  v_row.tenant := onceward.tenant_for(p_item ->> 'tenant');
  v_row.name := p_item ->> 'name';
  v_row.task := p_item ->> 'task';
  v_row.spec := p_item ->> 'spec';
  v_row.zone := p_item ->> 'zone';
  v_row.payload := coalesce(p_item -> 'payload', '{}');
  v_row.lane := coalesce(p_item ->> 'lane', 'default');
  v_row.priority := coalesce((p_item ->> 'priority')::integer, 0);
  v_row.max_attempts := coalesce((p_item ->> 'max_attempts')::integer, 8);
  v_row.retry := nullif(p_item -> 'retry', 'null');
  v_row.timeout := (p_item ->> 'timeout')::interval;
  v_row.expires_in := (p_item ->> 'expires_in')::interval;
  v_row.missed := coalesce(p_item ->> 'missed', 'latest');
  v_row.catch_up := coalesce((p_item ->> 'catch_up')::integer, 1000);
  v_row.grace := coalesce((p_item ->> 'grace')::interval, '60 seconds');
  v_row.overlap := coalesce(p_item ->> 'overlap', 'skip');
  v_row.jitter := coalesce((p_item ->> 'jitter')::interval, '0');
  v_row.uses := nullif(p_item -> 'uses', 'null');
  v_row.source := 'code';
  return v_row;
exception
  when data_exception then
    perform onceward.bad_argument('a schedule', left(p_item::text, 200), 'must have values of the right types', sqlerrm);
end;
$$;

create or replace function onceward.check_schedule(p_row onceward.schedule_private)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_cap integer := (select l.max_payload_bytes from onceward.lane_private as l where l.name = p_row.lane);
begin
  if p_row.name is null or p_row.name !~ '^[A-Za-z0-9_.:/-]{1,200}$' then
    perform onceward.bad_argument('name of a schedule', p_row.name, 'must be 1 to 200 letters, digits or . _ : / -');
  end if;
  perform onceward.check_job_arguments(p_row.task, p_row.priority, null, null, p_row.timeout, p_row.max_attempts, p_row.retry,
                                       p_row.tenant, null, 1, null);
  if p_row.expires_in <= interval '0' or p_row.expires_in > interval '366 days' then
    perform onceward.bad_argument('expires_in', p_row.expires_in::text, 'must be more than 0 and at most 366 days');
  end if;
  if p_row.missed is null or p_row.missed not in ('none', 'latest', 'all') then
    perform onceward.bad_argument('missed', p_row.missed, 'must be none, latest or all');
  end if;
  if p_row.overlap is null or p_row.overlap not in ('skip', 'queue', 'allow') then
    perform onceward.bad_argument('overlap', p_row.overlap, 'must be skip, queue or allow');
  end if;
  if p_row.catch_up is null or p_row.catch_up not between 1 and 100000 then
    perform onceward.bad_argument('catch_up', p_row.catch_up::text, 'must be between 1 and 100000');
  end if;
  if p_row.grace is null or p_row.grace not between interval '1 second' and interval '366 days' then
    perform onceward.bad_argument('grace', p_row.grace::text, 'must be between 1 second and 366 days');
  end if;
  if p_row.jitter is null or p_row.jitter not between interval '0' and interval '1 day' then
    perform onceward.bad_argument('jitter', p_row.jitter::text, 'must be between 0 and 1 day');
  end if;
  if v_cap is null then
    perform onceward.no_such_lane(p_row.lane);
  end if;
  if p_row.uses is not null then
    perform onceward.check_uses(p_row.uses, p_row.tenant);
  end if;
  perform onceward.check_payload(p_row.payload);
  if octet_length(p_row.payload::text) > v_cap then
    perform onceward.payload_too_large(p_row.payload, v_cap, p_row.lane);
  end if;
end;
$$;

-- Create, change or leave: the row says what is wanted.
create or replace function onceward.put_schedule(p_row onceward.schedule_private)
  returns table (outcome text, next_slot text, next_at timestamptz)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_new  onceward.schedule_private := p_row;
  v_old  onceward.schedule_private;
  v_same boolean;
begin
  perform onceward.check_schedule(p_row);
  v_new.plan := onceward.read_spec(p_row.spec, p_row.zone);
  v_new.zone := v_new.plan ->> 'zone';
  select t.slot, t.fire_at into v_new.next_slot, v_new.next_at from onceward.plan_ticks(v_new.plan, onceward.now(), null, 1) as t;
  select * into v_old from onceward.schedule_private as s where s.tenant = p_row.tenant and s.name = p_row.name;
  if not found then
    v_new.id := onceward.new_id();
    v_new.version := 1;
    v_new.created_at := onceward.now();
    v_new.changed_at := v_new.created_at;
    v_new.changed_by := onceward.actor();
    insert into onceward.schedule_private select v_new.* on conflict do nothing;
    if found then
      perform onceward.audit_schedule(v_new, 'schedule.created', null, onceward.schedule_settings(v_new));
      return query select 'created', v_new.next_slot, v_new.next_at;
      return;
    end if;
    -- Somebody else made it meanwhile.
    select * into v_old from onceward.schedule_private as s where s.tenant = p_row.tenant and s.name = p_row.name;
  end if;
  if p_row.source = 'code' and v_old.source = 'person' then
    return query select 'kept', v_old.next_slot, v_old.next_at;
    return;
  end if;
  v_same := (v_old.task, v_old.payload, v_old.lane, v_old.priority, v_old.max_attempts, v_old.spec, v_old.plan, v_old.missed,
             v_old.catch_up, v_old.grace, v_old.overlap, v_old.jitter, v_old.source)
          = (v_new.task, v_new.payload, v_new.lane, v_new.priority, v_new.max_attempts, v_new.spec, v_new.plan, v_new.missed,
             v_new.catch_up, v_new.grace, v_new.overlap, v_new.jitter, v_new.source)
        and (v_old.retry, v_old.timeout, v_old.expires_in, v_old.uses)
            is not distinct from (v_new.retry, v_new.timeout, v_new.expires_in, v_new.uses)
        and v_old.app is not distinct from v_new.app and v_old.undeclared_at is null;
  if v_same then
    return query select 'unchanged', v_old.next_slot, v_old.next_at;
    return;
  end if;
  if p_row.source = 'person' then
    perform onceward.check_tenant(v_old.tenant, 'schedule');
  end if;
  return query
  update onceward.schedule_private as s
     set task = v_new.task, payload = v_new.payload, lane = v_new.lane, priority = v_new.priority,
         max_attempts = v_new.max_attempts, retry = v_new.retry, timeout = v_new.timeout, expires_in = v_new.expires_in,
         spec = v_new.spec, zone = v_new.zone, plan = v_new.plan, missed = v_new.missed, catch_up = v_new.catch_up,
         grace = v_new.grace, overlap = v_new.overlap, jitter = v_new.jitter, uses = v_new.uses, source = v_new.source, app = v_new.app,
         undeclared_at = null, version = s.version + 1, changed_at = onceward.now(), changed_by = onceward.actor(),
         -- The moments of another plan start now; the same plan goes on where it was.
         next_slot = case when s.plan = v_new.plan then s.next_slot else v_new.next_slot end,
         next_at = case when s.plan = v_new.plan then s.next_at else v_new.next_at end
   where s.id = v_old.id
  returning 'changed', s.next_slot, s.next_at;
  if not found then
    -- It was dropped meanwhile.
    return query select * from onceward.put_schedule(p_row);
    return;
  end if;
  perform onceward.audit_schedule(v_new, 'schedule.changed', c.before, c.after)
     from onceward.changed_settings(onceward.schedule_settings(v_old), onceward.schedule_settings(v_new)) as c;
end;
$$;

-- The schedule that a person means, locked.
create or replace function onceward.schedule_for_update(p_name text, p_tenant text)
  returns onceward.schedule_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := onceward.tenant_for(p_tenant);
  v_row    onceward.schedule_private;
begin
  perform onceward.check_tenant(v_tenant, 'schedule');
  select * into v_row from onceward.schedule_private as s where s.tenant = v_tenant and s.name = p_name for update;
  if not found then
    raise exception 'schedule "%" of tenant "%" does not exist', onceward.shown(p_name), onceward.shown(v_tenant)
      using errcode = 'OW020',
            detail  = coalesce('Known schedules: ' || (select string_agg(k.name, ', ' order by k.name)
                        from (select s.name from onceward.schedule_private as s where s.tenant = v_tenant order by s.name limit 20) as k)
                        || '.', 'This tenant has none.'),
            hint    = 'See the view onceward.schedules.';
  end if;
  return v_row;
end;
$$;

create or replace function onceward.pause_schedule(p_name text, p_reason text default null, p_tenant text default null)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_row onceward.schedule_private := onceward.schedule_for_update(p_name, p_tenant);
begin
  update onceward.schedule_private as s
     set paused_at = onceward.now(), paused_by = onceward.actor(), pause_reason = left(p_reason, 1000), version = s.version + 1
   where s.id = v_row.id and s.paused_at is null;
  if not found then
    return false;
  end if;
  perform onceward.audit_schedule(v_row, 'schedule.paused', '{"paused": false}', '{"paused": true}', p_reason);
  return true;
end;
$$;
comment on function onceward.pause_schedule(text, text, text) is
  'Stops a schedule.  Jobs that it has enqueued go on.  Returns false when it was paused already.';

create or replace function onceward.resume_schedule(p_name text, p_tenant text default null)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_row   onceward.schedule_private := onceward.schedule_for_update(p_name, p_tenant);
  v_slots bigint;
begin
  if v_row.paused_at is null then
    return false;
  end if;
  -- What fell into the pause is not caught up.
  if v_row.next_at <= onceward.now() then
    v_slots := 1 + onceward.count_ticks(v_row.plan, v_row.next_at, onceward.now());
    insert into onceward.tick_private (schedule_id, slot, tenant, schedule, fire_at, outcome, slots, reason, ticked_at)
    values (v_row.id, v_row.next_slot, v_row.tenant, v_row.name, v_row.next_at, 'skipped', v_slots, 'paused', onceward.now())
        on conflict do nothing;
  end if;
  update onceward.schedule_private as s
     set paused_at = null, paused_by = null, pause_reason = null, version = s.version + 1,
         next_slot = case when s.next_at > onceward.now() then s.next_slot else t.slot end,
         next_at = case when s.next_at > onceward.now() then s.next_at else t.fire_at end
    from onceward.plan_ticks(v_row.plan, onceward.now(), null, 1) as t
   where s.id = v_row.id;
  perform onceward.audit_schedule(v_row, 'schedule.resumed', '{"paused": true}', '{"paused": false}');
  return true;
end;
$$;
comment on function onceward.resume_schedule(text, text) is
  'Lets a paused schedule fire again, from its next moment on; what fell into the pause is not caught up.  Returns false when it was not paused.';

create or replace function onceward.run_schedule_now(p_name text, p_tenant text default null)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_row     onceward.schedule_private := onceward.schedule_for_update(p_name, p_tenant);
  v_session text := current_setting('onceward.tenant', true);
  v_tick    onceward.tick_private;
begin
  -- A slot of its own: the plan's moments are not touched.
  v_tick := onceward.fire_slot(v_row, 'now/' || onceward.new_id(), onceward.now(), p_by_hand => true);
  perform set_config('onceward.tenant', coalesce(v_session, ''), true);
  if v_tick.job_id is null then
    perform onceward.bad_argument('schedule', p_name, 'must enqueue what its lane takes', v_tick.reason);
  end if;
  perform onceward.note_tick(v_tick);
  perform onceward.audit_schedule(v_row, 'schedule.run_now', p_job_id => v_tick.job_id);
  return v_tick.job_id;
end;
$$;
comment on function onceward.run_schedule_now(text, text) is
  'Enqueues the job of a schedule at once, beside its moments, also while it is paused or its last job runs.  Returns the job.';

create or replace function onceward.drop_schedule(p_name text, p_tenant text default null)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_row onceward.schedule_private := onceward.schedule_for_update(p_name, p_tenant);
begin
  delete from onceward.schedule_private as s where s.id = v_row.id;
  perform onceward.audit_schedule(v_row, 'schedule.dropped', onceward.schedule_settings(v_row));
end;
$$;
comment on function onceward.drop_schedule(text, text) is
  'Removes a schedule.  Its jobs and the record of its ticks stay.  One that code declares comes back with the next start of a worker.';
