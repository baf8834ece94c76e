-- Which monitors there are, and by which bounds: declared by Onceward itself, by code or by an owner, and set by people.

create or replace function onceward.check_monitor_settings(
  p_every interval, p_severity text, p_hold_for interval, p_clear_after interval, p_remind_every interval,
  p_timeout interval, p_errors_allowed integer
)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if p_every < interval '1 second' or p_every > interval '30 days' then
    perform onceward.bad_argument('every', p_every::text, 'must be between 1 second and 30 days');
  end if;
  perform onceward.check_severity('severity', p_severity);
  if p_hold_for < interval '0' or p_hold_for > interval '30 days' then
    perform onceward.bad_argument('hold_for', p_hold_for::text, 'must be between 0 and 30 days');
  end if;
  if p_clear_after < interval '0' or p_clear_after > interval '30 days' then
    perform onceward.bad_argument('clear_after', p_clear_after::text, 'must be between 0 and 30 days');
  end if;
  if p_remind_every < interval '1 minute' or p_remind_every > interval '1 year' then
    perform onceward.bad_argument('remind_every', p_remind_every::text, 'must be between 1 minute and 1 year');
  end if;
  if p_timeout < interval '1 second' or p_timeout > interval '10 minutes' then
    perform onceward.bad_argument('timeout', p_timeout::text, 'must be between 1 second and 10 minutes');
  end if;
  if p_errors_allowed not between 1 and 1000 then
    perform onceward.bad_argument('errors_allowed', p_errors_allowed::text, 'must be between 1 and 1000');
  end if;
end;
$$;

-- One monitor, as a JSON object says.  What a person has set stays.  Returns created, changed or unchanged.
create or replace function onceward.enter_monitor(p_source text, p_app text, p_function text, p_spec jsonb)
  returns text
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_name text := p_spec ->> 'name';
  v_old  onceward.monitor_private;
  v_new  onceward.monitor_private;
  v_set  boolean;
begin
  if v_name is null or v_name !~ '^[A-Za-z0-9_.:/-]{1,100}$' then
    perform onceward.bad_argument('name', v_name, 'must be 1 to 100 letters, digits or . _ : / -');
  end if;
  select * into v_old from onceward.monitor_private as m where m.name = v_name for update;
  if found and (v_old.source <> p_source) then
    raise exception 'monitor "%" exists already', v_name
      using errcode = 'OW008', detail = format('It is %s.', case v_old.source when 'built in' then 'built in'
        when 'code' then format('declared by application "%s"', v_old.app) else 'a person''s' end),
        hint = 'Choose another name.';
  end if;
  v_set := v_old.set_at is not null;
  v_new.name := v_name;
  v_new.kind := case when p_function is null then 'python' else 'sql' end;
  v_new.function := p_function;
  v_new.source := p_source;
  v_new.app := p_app;
  v_new.description := left(coalesce(p_spec ->> 'description', v_name), 1000);
  v_new.enabled := coalesce(v_old.enabled, true);
  v_new.every := case when v_set then v_old.every else coalesce((p_spec ->> 'every')::interval, interval '1 minute') end;
  v_new.severity := case when v_set then v_old.severity else coalesce(p_spec ->> 'severity', 'warning') end;
  v_new.hold_for := case when v_set then v_old.hold_for else coalesce((p_spec ->> 'hold_for')::interval, interval '0') end;
  v_new.clear_after := case when v_set then v_old.clear_after
                            else coalesce((p_spec ->> 'clear_after')::interval, interval '0') end;
  v_new.remind_every := case when v_set then v_old.remind_every
                             when p_spec ? 'remind_every' then (p_spec ->> 'remind_every')::interval
                             else interval '4 hours' end;
  v_new.timeout := case when v_set then v_old.timeout else coalesce((p_spec ->> 'timeout')::interval, interval '30 seconds') end;
  v_new.errors_allowed := case when v_set then v_old.errors_allowed else coalesce((p_spec ->> 'errors_allowed')::integer, 3) end;
  perform onceward.check_monitor_settings(v_new.every, v_new.severity, v_new.hold_for, v_new.clear_after, v_new.remind_every,
                                          v_new.timeout, v_new.errors_allowed);
  insert into onceward.monitor_private as m
    (name, kind, function, source, app, description, enabled, every, severity, hold_for, clear_after, remind_every, timeout,
     errors_allowed, next_at, created_at)
  values
    (v_name, v_new.kind, v_new.function, p_source, p_app, v_new.description, true, v_new.every, v_new.severity, v_new.hold_for,
     v_new.clear_after, v_new.remind_every, v_new.timeout, v_new.errors_allowed, onceward.now(), onceward.now())
      on conflict (name) do update
     set kind = excluded.kind, function = excluded.function, app = excluded.app, description = excluded.description,
         every = excluded.every, severity = excluded.severity, hold_for = excluded.hold_for,
         clear_after = excluded.clear_after, remind_every = excluded.remind_every, timeout = excluded.timeout,
         errors_allowed = excluded.errors_allowed
   where (m.kind, m.function, m.app, m.description, m.every, m.severity, m.hold_for, m.clear_after, m.remind_every, m.timeout,
          m.errors_allowed)
         is distinct from
         (excluded.kind, excluded.function, excluded.app, excluded.description, excluded.every, excluded.severity,
          excluded.hold_for, excluded.clear_after, excluded.remind_every, excluded.timeout, excluded.errors_allowed);
  v_set := found;
  if onceward.enter_thresholds(v_name, coalesce(p_spec -> 'thresholds', '[]')) then
    v_set := true;
  end if;
  if p_source <> 'built in' and (v_set or v_old.name is null) then
    perform onceward.audit(case when v_old.name is null then 'monitor.created' else 'monitor.changed' end,
      p_entity_type => 'monitor', p_entity_id => v_name, p_after => onceward.settings_of_monitor(v_name),
      p_meta => jsonb_strip_nulls(jsonb_build_object('source', p_source, 'app', p_app, 'function', p_function)));
  end if;
  return case when v_old.name is null then 'created' when v_set then 'changed' else 'unchanged' end;
end;
$$;

-- A list of {name, unit, value, description}.  A value that differs from its default was set by a person, and stays.
create or replace function onceward.enter_thresholds(p_monitor text, p_thresholds jsonb)
  returns boolean
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_row     record;
  v_changed boolean := false;
begin
  for v_row in
    select t.name, coalesce(t.unit, 'count') as unit, t.value, coalesce(t.description, t.name) as description
      from jsonb_to_recordset(p_thresholds) as t (name text, unit text, value numeric, description text)
     order by t.name
  loop
    if v_row.name is null or v_row.name !~ '^[A-Za-z_][A-Za-z0-9_]{0,62}$' then
      perform onceward.bad_argument('threshold', v_row.name, 'must have a name of 1 to 63 letters, digits or _');
    end if;
    if v_row.unit not in ('seconds', 'count', 'share', 'bytes') then
      perform onceward.bad_argument('unit of threshold ' || v_row.name, v_row.unit, 'must be seconds, count, share or bytes');
    end if;
    insert into onceward.threshold_private as t (monitor, name, unit, value, default_value, description)
    values (p_monitor, v_row.name, v_row.unit, v_row.value, v_row.value, v_row.description)
        on conflict (monitor, name) do update
       set unit = excluded.unit, description = excluded.description, default_value = excluded.default_value,
           value = case when t.value is distinct from t.default_value then t.value else excluded.value end
     where (t.unit, t.description, t.default_value) is distinct from (excluded.unit, excluded.description, excluded.default_value);
    v_changed := v_changed or found;
  end loop;
  delete from onceward.threshold_private as t
   where t.monitor = p_monitor
     and t.name not in (select n.name from jsonb_to_recordset(p_thresholds) as n (name text) where n.name is not null);
  return v_changed or found;
end;
$$;

create or replace function onceward.add_monitor(
  p_name         text,
  p_function     regprocedure,
  p_every        interval default '1 minute',
  p_thresholds   jsonb default '[]',
  p_severity     text default 'warning',
  p_hold_for     interval default '0',
  p_clear_after  interval default '0',
  p_remind_every interval default '4 hours',
  p_timeout      interval default '30 seconds',
  p_description  text default null
)
  returns text
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_function text;
begin
  select format('%I.%I', n.nspname, p.proname) into v_function
    from pg_proc as p join pg_namespace as n on n.oid = p.pronamespace
   where p.oid = p_function and p.pronargs = 1 and p.proargtypes[0] = 'jsonb'::regtype and p.proretset;
  if not found then
    perform onceward.bad_argument('function', p_function::text,
      'must be a function (thresholds jsonb) that returns a table of findings',
      'Its columns: key text, summary text, and, if wanted, severity text, value numeric, tenant text, detail jsonb.');
  end if;
  return onceward.enter_monitor('person', null, v_function, jsonb_build_object(
    'name', p_name, 'description', coalesce(p_description, 'calls ' || v_function), 'every', p_every, 'severity', p_severity,
    'hold_for', p_hold_for, 'clear_after', p_clear_after, 'remind_every', p_remind_every, 'timeout', p_timeout,
    'thresholds', p_thresholds));
end;
$$;
comment on function onceward.add_monitor(text, regprocedure, interval, jsonb, text, interval, interval, interval, interval, text) is
  'Makes a monitor of an SQL function (thresholds jsonb) that returns findings (key, summary, and, if wanted, severity, value, tenant, detail), or changes it.  p_thresholds is a list of {name, unit, value, description}.  For owners only: the function runs with the owner''s rights.';

create or replace function onceward.declare_monitors(p_app text, p_monitors jsonb)
  returns table (name text, outcome text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_spec jsonb;
begin
  if p_monitors is null or jsonb_typeof(p_monitors) <> 'array' then
    perform onceward.bad_argument('monitors', left(p_monitors::text, 100), 'must be a list');
  end if;
  for v_spec in select s from jsonb_array_elements(p_monitors) as s order by s ->> 'name'
  loop
    name := v_spec ->> 'name';
    outcome := onceward.enter_monitor('code', p_app, null, v_spec);
    return next;
  end loop;
end;
$$;
comment on function onceward.declare_monitors(text, jsonb) is
  'How code speaks of its monitors: creates or changes them, leaves alone what people have set, and says what became of each.';

create or replace function onceward.set_monitor(
  p_name           text,
  p_thresholds     jsonb default '{}',
  p_every          interval default null,
  p_severity       text default null,
  p_hold_for       interval default null,
  p_clear_after    interval default null,
  p_remind_every   interval default null,
  p_timeout        interval default null,
  p_errors_allowed integer default null,
  p_channels       text[] default null
)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_monitor onceward.monitor_private;
  v_name    text;
  v_was     jsonb;
begin
  select * into v_monitor from onceward.monitor_private as m where m.name = p_name for update;
  if not found then
    perform onceward.no_such_monitor(p_name);
  end if;
  v_was := onceward.settings_of_monitor(p_name);
  if jsonb_typeof(p_thresholds) is distinct from 'object' then
    perform onceward.bad_argument('thresholds', p_thresholds::text, 'must be an object of names and numbers');
  end if;
  select k into v_name from jsonb_object_keys(p_thresholds) as k
   where not exists (select from onceward.threshold_private as t where t.monitor = p_name and t.name = k) limit 1;
  if found then
    perform onceward.bad_argument('threshold', v_name, 'must be one of ' || coalesce(
      (select string_agg(t.name, ', ' order by t.name) from onceward.threshold_private as t where t.monitor = p_name),
      '(this monitor has none)'));
  end if;
  select e.key into v_name from jsonb_each(p_thresholds) as e
   where (jsonb_typeof(e.value) not in ('number', 'null') and e.value <> '"default"')
      or (jsonb_typeof(e.value) = 'number' and e.value < '0')
   limit 1;
  if found then
    perform onceward.bad_argument('threshold ' || v_name, p_thresholds ->> v_name,
      'must be a number that is not negative, null (off) or "default"');
  end if;
  perform onceward.check_monitor_settings(
    coalesce(p_every, v_monitor.every), coalesce(p_severity, v_monitor.severity), coalesce(p_hold_for, v_monitor.hold_for),
    coalesce(p_clear_after, v_monitor.clear_after), coalesce(nullif(p_remind_every, interval '0'), v_monitor.remind_every),
    coalesce(p_timeout, v_monitor.timeout), coalesce(p_errors_allowed, v_monitor.errors_allowed));
  select c into v_name from unnest(p_channels) as c
   where not exists (select from onceward.channel_private as h where h.name = c) limit 1;
  if found then
    perform onceward.no_such_channel(v_name);
  end if;
  update onceward.threshold_private as t
     set value = case when p_thresholds -> t.name = '"default"' then t.default_value else (p_thresholds ->> t.name)::numeric end
   where t.monitor = p_name and p_thresholds ? t.name;
  if num_nonnulls(p_every, p_severity, p_hold_for, p_clear_after, p_remind_every, p_timeout, p_errors_allowed, p_channels) > 0 then
    update onceward.monitor_private as m
       set every          = coalesce(p_every, m.every),
           severity       = coalesce(p_severity, m.severity),
           hold_for       = coalesce(p_hold_for, m.hold_for),
           clear_after    = coalesce(p_clear_after, m.clear_after),
           remind_every   = case when p_remind_every = interval '0' then null else coalesce(p_remind_every, m.remind_every) end,
           timeout        = coalesce(p_timeout, m.timeout),
           errors_allowed = coalesce(p_errors_allowed, m.errors_allowed),
           channels       = case when p_channels = '{}' then null else coalesce(p_channels, m.channels) end,
           next_at        = least(m.next_at, onceward.now() + coalesce(p_every, m.every)),
           set_at         = onceward.now(),
           set_by         = onceward.actor()
     where m.name = p_name;
  end if;
  perform onceward.audit_setting('monitor', p_name, v_was, onceward.settings_of_monitor(p_name));
end;
$$;
comment on function onceward.set_monitor(text, jsonb, interval, text, interval, interval, interval, interval, integer, text[]) is
  'Changes a monitor; what is left out stays.  p_thresholds: {name: number}, null switches one off, "default" takes the default.  p_remind_every => ''0'': no reminders.  p_channels => ''{}'': all channels.  Code and upgrades leave alone what was set here.';

create or replace function onceward.enable_monitor(p_name text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  update onceward.monitor_private as m set enabled = true, next_at = onceward.now() where m.name = p_name and not m.enabled;
  if found then
    perform onceward.audit('monitor.enabled', p_entity_type => 'monitor', p_entity_id => p_name);
    return true;
  end if;
  if not exists (select from onceward.monitor_private as m where m.name = p_name) then
    perform onceward.no_such_monitor(p_name);
  end if;
  return false;
end;
$$;
comment on function onceward.enable_monitor(text) is 'Lets a disabled monitor run again.  Returns false when it was enabled.';

create or replace function onceward.disable_monitor(p_name text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  update onceward.monitor_private as m set enabled = false where m.name = p_name and m.enabled;
  if not found then
    if not exists (select from onceward.monitor_private as m where m.name = p_name) then
      perform onceward.no_such_monitor(p_name);
    end if;
    return false;
  end if;
  perform onceward.drop_alerts(p_name, 'the monitor was disabled');
  perform onceward.audit('monitor.disabled', p_entity_type => 'monitor', p_entity_id => p_name);
  return true;
end;
$$;
comment on function onceward.disable_monitor(text) is
  'Stops a monitor and closes its alerts.  Returns false when it was disabled already.';

create or replace function onceward.drop_monitor(p_name text)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_source text;
  v_was    jsonb;
begin
  select m.source into v_source from onceward.monitor_private as m where m.name = p_name for update;
  if not found then
    perform onceward.no_such_monitor(p_name);
  end if;
  v_was := onceward.settings_of_monitor(p_name);
  if v_source = 'built in' then
    perform onceward.bad_argument('monitor', p_name, 'must not be a built-in one', 'Disable it instead.');
  end if;
  perform onceward.drop_alerts(p_name, 'the monitor was dropped');
  delete from onceward.threshold_private as t where t.monitor = p_name;
  delete from onceward.monitor_private as m where m.name = p_name;
  perform onceward.audit_setting('monitor', p_name, v_was, null);
end;
$$;
comment on function onceward.drop_monitor(text) is
  'Removes a monitor that code or a person has made, and closes its alerts.  Code that declares it makes it again.';

-- Its alerts are closed without a word: nobody knows whether their conditions are over.
create or replace function onceward.drop_alerts(p_monitor text, p_why text)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  delete from onceward.alert_private as a where a.monitor = p_monitor and a.state = 'pending';
  update onceward.alert_private as a
     set state = 'closed', closed_at = onceward.now(), closed_by = onceward.actor(), close_note = p_why
   where a.monitor = p_monitor and a.state = 'open';
$$;
