-- Monitors: checks on a schedule.  A run is begun in one transaction and ended in another, so that a check which raises,
-- hangs or dies with its process leaves a trace, and none of the others waits for it.

create or replace function onceward.no_such_monitor(p_name text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  raise exception 'monitor "%" does not exist', onceward.shown(p_name)
    using errcode = 'OW038',
          detail  = format('Known monitors: %s.', (select string_agg(m.name, ', ' order by m.name) from onceward.monitor_private as m)),
          hint    = 'See "onceward monitor list".';
end;
$$;

create or replace function onceward.severity_rank(p_severity text)
  returns integer
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select array_position(array['info', 'warning', 'critical'], p_severity)
$$;

create or replace function onceward.check_severity(p_name text, p_severity text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if onceward.severity_rank(p_severity) is null then
    perform onceward.bad_argument(p_name, p_severity, 'must be info, warning or critical');
  end if;
end;
$$;

-- What the check gets: {name: value}.  A threshold that is off is null.
create or replace function onceward.thresholds_of(p_monitor text)
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select coalesce(jsonb_object_agg(t.name, t.value), '{}') from onceward.threshold_private as t where t.monitor = p_monitor
$$;

-- Begin what is due: each run is somebody's from the commit on, whoever else looks.
create or replace function onceward.begin_checks(p_limit integer default 10, p_python text[] default '{}')
  returns table (run_id uuid, monitor text, kind text, thresholds jsonb, timeout interval)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_monitor onceward.monitor_private;
begin
  perform onceward.check_limit(p_limit);
  perform onceward.end_lost_checks(p_limit);
  for v_monitor in
    select * from onceward.monitor_private as m
     where m.enabled and m.next_at <= onceward.now() and (m.kind = 'sql' or m.name = any (p_python))
       and not exists (select from onceward.monitor_run_private as r where r.monitor = m.name and r.ended_at is null)
     order by m.next_at
     limit p_limit
       for update skip locked
  loop
    run_id := onceward.begin_check(v_monitor);
    -- Somebody else has begun one in this moment.
    continue when run_id is null;
    monitor := v_monitor.name;
    kind := v_monitor.kind;
    thresholds := onceward.thresholds_of(v_monitor.name);
    timeout := v_monitor.timeout;
    return next;
  end loop;
end;
$$;
comment on function onceward.begin_checks(integer, text[]) is
  'Begins the runs of monitors that are due (those in SQL, and those of p_python that the caller can execute), each once, whoever calls.  End each with run_check, finish_check or fail_check in a transaction of its own.  Runs whose caller has died are recorded as errors.';

create or replace function onceward.begin_check(p_monitor onceward.monitor_private)
  returns uuid
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_now timestamptz := onceward.now();
  v_id  uuid;
begin
  insert into onceward.monitor_run_private (id, monitor, started_at, deadline, status)
  values (onceward.new_id(), p_monitor.name, v_now, v_now + p_monitor.timeout + interval '30 seconds', 'running')
      on conflict (monitor) where ended_at is null do nothing
  returning id into v_id;
  if v_id is not null then
    -- In its rhythm; after a standstill, from now on.
    update onceward.monitor_private as m
       set last_run_at = v_now,
           next_at     = case when m.next_at + m.every > v_now then m.next_at + m.every else v_now + m.every end
     where m.name = p_monitor.name;
  end if;
  return v_id;
end;
$$;

-- Whoever had begun them is gone.
create or replace function onceward.end_lost_checks(p_limit integer)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_run     onceward.monitor_run_private;
  v_monitor onceward.monitor_private;
begin
  for v_run in
    select * from onceward.monitor_run_private as r
     where r.ended_at is null and r.deadline < onceward.now()
     order by r.id limit p_limit
  loop
    select * into v_monitor from onceward.monitor_private as m where m.name = v_run.monitor for update skip locked;
    if found and exists (select from onceward.monitor_run_private as r where r.id = v_run.id and r.ended_at is null) then
      perform onceward.end_check_badly(v_monitor, v_run.id,
        format('it did not end within %s, and nobody reported why', v_monitor.timeout), null);
    end if;
  end loop;
end;
$$;

-- The monitor of a run that has not ended, locked: everything that ends a run, or changes alerts of a monitor, has it.
create or replace function onceward.lock_check(p_run_id uuid)
  returns onceward.monitor_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_name    text := (select r.monitor from onceward.monitor_run_private as r where r.id = p_run_id);
  v_monitor onceward.monitor_private;
begin
  select * into v_monitor from onceward.monitor_private as m where m.name = v_name for update;
  if not found or not exists (select from onceward.monitor_run_private as r where r.id = p_run_id and r.ended_at is null) then
    raise exception 'run % of a monitor is over', p_run_id
      using errcode = 'OW041',
            detail  = 'It was ended before, ran past its deadline, or never began.',
            hint    = 'Discard what was found; the next run looks again.';
  end if;
  return v_monitor;
end;
$$;

-- Execute the SQL function of a monitor and end the run.
create or replace function onceward.run_check(p_run_id uuid)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
  -- A check that meets a lock must not wait for its holder.
  set lock_timeout = '2s'
as $$
declare
  v_began    timestamptz := clock_timestamp();
  v_monitor  onceward.monitor_private;
  v_findings jsonb;
  v_error    text;
begin
  select m.* into v_monitor
    from onceward.monitor_run_private as r join onceward.monitor_private as m on m.name = r.monitor
   where r.id = p_run_id and r.ended_at is null and m.kind = 'sql';
  if not found then
    perform onceward.lock_check(p_run_id);
    perform onceward.bad_argument('run_id', p_run_id::text, 'must be a run of a monitor in SQL');
  end if;
  begin
    execute format('select coalesce(jsonb_agg(to_jsonb(f)), ''[]'') from (select * from %s($1) limit 1001) as f', v_monitor.function)
       into v_findings using onceward.thresholds_of(v_monitor.name);
  exception
    when others then
      v_error := format('%s (%s)', sqlerrm, sqlstate);
  end;
  return onceward.end_check(p_run_id, v_findings, v_error, clock_timestamp() - v_began);
end;
$$;
comment on function onceward.run_check(uuid) is
  'Executes the SQL function of a run that begin_checks has begun, updates the alerts of its monitor and notifies.  Returns ok, firing, or error when the check itself failed, which is recorded.  Raises OW041 when the run is over.';

create or replace function onceward.finish_check(p_run_id uuid, p_findings jsonb, p_took interval default null)
  returns text
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select onceward.end_check(p_run_id, coalesce(p_findings, 'null'), null, p_took)
$$;
comment on function onceward.finish_check(uuid, jsonb, interval) is
  'Ends a run that was executed outside the database: p_findings is a list of {key, summary, severity, value, tenant, detail}, empty when all is well.  Updates the alerts of the monitor and notifies.  Findings that cannot be read are an error of the check.  Returns ok, firing or error; raises OW041 when the run is over.';

create or replace function onceward.fail_check(p_run_id uuid, p_error text, p_took interval default null)
  returns text
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select onceward.end_check(p_run_id, null, coalesce(p_error, 'it failed'), p_took)
$$;
comment on function onceward.fail_check(uuid, text, interval) is
  'Ends a run whose check itself has failed.  After some errors in a row (three, by default) that is an alert of its own.  Raises OW041 when the run is over.';

-- The end of a run: what was found, or why nothing could be.
create or replace function onceward.end_check(p_run_id uuid, p_findings jsonb, p_error text, p_took interval)
  returns text
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_monitor  onceward.monitor_private := onceward.lock_check(p_run_id);
  v_session  text := coalesce(current_setting('onceward.tenant', true), '');
  v_error    text := p_error;
  v_findings jsonb;
  v_firing   integer;
  v_status   text;
begin
  -- Notifications go out for every tenant, whatever the session says.
  perform set_config('onceward.tenant', '', true);
  if v_error is null then
    begin
      v_findings := onceward.read_findings(v_monitor, p_findings);
      v_firing := onceward.apply_findings(v_monitor, v_findings);
    exception
      when others then
        v_error := format('%s (%s)', sqlerrm, sqlstate);
    end;
  end if;
  -- Written outside the block that failed: whatever that block has written is gone.
  if v_error is not null then
    perform onceward.end_check_badly(v_monitor, p_run_id, v_error, p_took);
    v_status := 'error';
  else
    v_status := case when v_firing > 0 then 'firing' else 'ok' end;
    update onceward.monitor_run_private as r
       set status = v_status, ended_at = onceward.now(), took = p_took, findings = v_firing, result = v_findings
     where r.id = p_run_id;
    update onceward.monitor_private as m
       set last_status = v_status, last_error = null, errors = 0
     where m.name = v_monitor.name;
  end if;
  perform set_config('onceward.tenant', v_session, true);
  return v_status;
end;
$$;

create or replace function onceward.end_check_badly(
  p_monitor onceward.monitor_private, p_run_id uuid, p_error text, p_took interval
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_errors integer := p_monitor.errors + 1;
begin
  update onceward.monitor_run_private as r
     set status = 'error', ended_at = onceward.now(), took = p_took, error = left(p_error, 2000)
   where r.id = p_run_id;
  update onceward.monitor_private as m
     set last_status = 'error', last_error = left(p_error, 2000), errors = v_errors
   where m.name = p_monitor.name;
  -- What the check had found before stays open: nobody knows whether it is over.
  if v_errors >= p_monitor.errors_allowed then
    perform onceward.see_finding(p_monitor, jsonb_build_object(
      'key', 'check failed', 'severity', 'warning', 'value', v_errors,
      'summary', format('monitor "%s" cannot check: %s errors in a row', p_monitor.name, v_errors)), interval '0');
  end if;
end;
$$;

-- What a check says, in one form; raises when it cannot be read.
create or replace function onceward.read_findings(p_monitor onceward.monitor_private, p_findings jsonb)
  returns jsonb
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_finding jsonb;
  v_read    jsonb := '[]';
begin
  if p_findings is null or jsonb_typeof(p_findings) <> 'array' then
    perform onceward.bad_argument('findings', left(p_findings::text, 100), 'must be a list');
  end if;
  if jsonb_array_length(p_findings) > 1000 then
    perform onceward.bad_argument('findings', jsonb_array_length(p_findings)::text, 'must be at most 1000',
      'Group them: a condition is one finding, however many rows it has.');
  end if;
  for v_finding in select f from jsonb_array_elements(p_findings) as f
  loop
    if jsonb_typeof(v_finding) <> 'object' then
      perform onceward.bad_argument('finding', left(v_finding::text, 100), 'must be an object of key and summary');
    end if;
    if coalesce(jsonb_typeof(v_finding -> 'key'), '') <> 'string' or length(v_finding ->> 'key') not between 1 and 300 then
      perform onceward.bad_argument('key of a finding', v_finding ->> 'key', 'must be a text of 1 to 300 characters');
    end if;
    if v_finding ->> 'summary' is null or length(v_finding ->> 'summary') not between 1 and 1000 then
      perform onceward.bad_argument('summary of a finding', v_finding ->> 'summary', 'must be a text of 1 to 1000 characters');
    end if;
    if v_finding ->> 'severity' is not null then
      perform onceward.check_severity('severity of a finding', v_finding ->> 'severity');
    end if;
    if v_finding ->> 'tenant' !~ '^[^*[:cntrl:]]{1,200}$' then
      perform onceward.bad_argument('tenant of a finding', v_finding ->> 'tenant',
        'must be 1 to 200 characters, without * and control characters');
    end if;
    if coalesce(jsonb_typeof(v_finding -> 'value'), 'null') not in ('number', 'null') then
      perform onceward.bad_argument('value of a finding', v_finding ->> 'value', 'must be a number');
    end if;
    v_read := v_read || jsonb_build_object(
      'key', v_finding ->> 'key', 'tenant', v_finding ->> 'tenant',
      -- Absent: as the monitor says.  Null: measured, and fine.
      'severity', case when v_finding ? 'severity' then v_finding ->> 'severity' else p_monitor.severity end,
      'value', v_finding -> 'value',
      'summary', regexp_replace(v_finding ->> 'summary', '[[:cntrl:]]+', ' ', 'g'),
      'detail', case when pg_column_size(v_finding -> 'detail') <= 8192 then v_finding -> 'detail' end);
  end loop;
  return v_read;
end;
$$;

-- Everything that is due and can be done in SQL, for those who have no worker running all the time.
create or replace function onceward.check_monitors(p_limit integer default 100)
  returns table (monitor text, status text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_run record;
begin
  for v_run in select b.run_id, b.monitor as name from onceward.begin_checks(p_limit) as b
  loop
    monitor := v_run.name;
    status := onceward.run_check(v_run.run_id);
    return next;
  end loop;
end;
$$;
comment on function onceward.check_monitors(integer) is
  'Runs the SQL monitors that are due, each once, whoever calls.  Workers do this by themselves; the failure of one check does not stop the others.';

create or replace function onceward.run_monitor(p_name text)
  returns table (run_id uuid, status text, findings integer, error text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_monitor onceward.monitor_private;
begin
  select * into v_monitor from onceward.monitor_private as m where m.name = p_name for update;
  if not found then
    perform onceward.no_such_monitor(p_name);
  end if;
  perform onceward.audit('monitor.run', p_entity_type => 'monitor', p_entity_id => p_name);
  if v_monitor.kind = 'python' then
    -- Its code is in some worker, which looks about once a second.
    update onceward.monitor_private as m set next_at = onceward.now() where m.name = p_name;
    return query select null::uuid, 'asked'::text, 0, null::text;
    return;
  end if;
  run_id := onceward.begin_check(v_monitor);
  if run_id is null then
    return query select r.id, r.status, r.findings, r.error
                   from onceward.monitor_run_private as r where r.monitor = p_name and r.ended_at is null;
    return;
  end if;
  perform onceward.run_check(run_id);
  return query select r.id, r.status, r.findings, r.error from onceward.monitor_run_private as r where r.id = run_id;
end;
$$;
comment on function onceward.run_monitor(text) is
  'Runs one monitor now, also a disabled one.  One in Python is only made due: a worker that knows it runs it (status "asked").  When a run is under way already, that one is returned.';
