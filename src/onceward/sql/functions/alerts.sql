-- Alerts: one per condition, opened once, updated while it lasts, closed when the check passes again.
-- Whoever changes the alerts of a monitor because of a check has locked the monitor.

create or replace function onceward.no_such_alert(p_alert_id uuid)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  raise exception 'alert % does not exist', p_alert_id
    using errcode = 'OW039',
          hint    = 'See "onceward alert list --all".';
end;
$$;

-- Open and update what was found; what was not found is on its way to being closed.  Returns how many conditions hold.
create or replace function onceward.apply_findings(p_monitor onceward.monitor_private, p_findings jsonb)
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_finding jsonb;
  v_count   integer := 0;
  v_seen    uuid[] := '{}';
  v_alert   onceward.alert_private;
begin
  for v_finding in
    -- The worst of those that name the same condition.
    select distinct on (f ->> 'tenant', f ->> 'key') f
      from jsonb_array_elements(p_findings) as f
     where f ->> 'severity' is not null
     order by f ->> 'tenant', f ->> 'key', onceward.severity_rank(f ->> 'severity') desc
  loop
    v_seen := v_seen || onceward.see_finding(p_monitor, v_finding, p_monitor.hold_for);
    v_count := v_count + 1;
  end loop;
  -- What never lasted leaves no trace.
  delete from onceward.alert_private as a
   where a.monitor = p_monitor.name and a.state = 'pending' and a.id <> all (v_seen);
  for v_alert in
    update onceward.alert_private as a
       set clear_since = coalesce(a.clear_since, onceward.now())
     where a.monitor = p_monitor.name and a.closed_at is null and a.id <> all (v_seen)
    returning a.*
  loop
    if onceward.now() >= v_alert.clear_since + p_monitor.clear_after then
      update onceward.alert_private as a
         set state = 'closed', closed_at = onceward.now(), closed_by = 'onceward', close_note = 'the check passes'
       where a.id = v_alert.id;
      if v_alert.told is not null and not onceward.is_silenced(v_alert) then
        perform onceward.notify_channels(p_monitor, v_alert, 'closed');
      end if;
    end if;
  end loop;
  return v_count;
end;
$$;

-- One condition that holds: open its alert, or bring it up to date, and tell what has to be told.  Returns the alert.
create or replace function onceward.see_finding(p_monitor onceward.monitor_private, p_finding jsonb, p_hold_for interval)
  returns uuid
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_now    timestamptz := onceward.now();
  v_alert  onceward.alert_private;
  v_event  text;
  -- Nobody else changes it: the monitor is locked.
  v_before text := (select a.severity from onceward.alert_private as a
                     where a.monitor = p_monitor.name and coalesce(a.tenant, '') = coalesce(p_finding ->> 'tenant', '')
                       and a.key = p_finding ->> 'key' and a.closed_at is null);
begin
  insert into onceward.alert_private as a
    (id, monitor, tenant, key, state, severity, worst, value, summary, detail, first_seen_at, last_seen_at, opened_at)
  values
    (onceward.new_id(), p_monitor.name, p_finding ->> 'tenant', p_finding ->> 'key',
     case when p_hold_for > interval '0' then 'pending' else 'open' end, p_finding ->> 'severity', p_finding ->> 'severity',
     (p_finding ->> 'value')::numeric, p_finding ->> 'summary', nullif(p_finding -> 'detail', 'null'), v_now, v_now,
     case when p_hold_for > interval '0' then null else v_now end)
      on conflict (monitor, coalesce(tenant, ''), key) where closed_at is null do update
     set state        = case when a.first_seen_at + p_hold_for <= v_now then 'open' else a.state end,
         opened_at    = case when a.first_seen_at + p_hold_for <= v_now then coalesce(a.opened_at, v_now) else a.opened_at end,
         severity     = excluded.severity,
         worst        = case when onceward.severity_rank(excluded.severity) > onceward.severity_rank(a.worst)
                             then excluded.severity else a.worst end,
         value        = excluded.value,
         summary      = excluded.summary,
         detail       = excluded.detail,
         seen         = a.seen + 1,
         last_seen_at = v_now,
         clear_since  = null
  returning a.* into v_alert;
  if v_alert.state <> 'open' or onceward.is_silenced(v_alert) then
    return v_alert.id;
  end if;
  -- Whoever has acknowledged it knows it as it was then, though nobody was told.
  v_event := case when v_alert.told is null and v_alert.acked_at is null then 'opened'
                  when onceward.severity_rank(v_alert.severity) > onceward.severity_rank(coalesce(v_alert.told, v_before)) then 'raised'
                  when v_alert.acked_at is null and v_alert.remind_at <= v_now then 'reminder' end;
  v_alert.reminders := v_alert.reminders + coalesce(v_event = 'reminder', false)::integer;
  -- What no channel was there for stays untold, and is tried again by the next run.
  if v_event is not null and onceward.notify_channels(p_monitor, v_alert, v_event) > 0 then
    update onceward.alert_private as a
       set told      = case when v_event = 'reminder' then a.told else a.severity end,
           reminders = v_alert.reminders,
           remind_at = v_now + p_monitor.remind_every
     where a.id = v_alert.id;
  end if;
  return v_alert.id;
end;
$$;

create or replace function onceward.is_silenced(p_alert onceward.alert_private)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select exists (
    select from onceward.silence_private as s
     where s.until > onceward.now()
       and (s.alert_id is null or s.alert_id = p_alert.id)
       and (s.monitor is null or s.monitor = p_alert.monitor)
       and (s.tenant is null or s.tenant = p_alert.tenant)
       and (s.key is null or s.key = p_alert.key))
$$;

-- The channels that hear of an alert of this tenant, or of none, with this severity.
create or replace function onceward.channels_for(p_monitor onceward.monitor_private, p_tenant text, p_severity text)
  returns setof onceward.channel_private
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select c.* from onceward.channel_private as c
   where onceward.severity_rank(p_severity) >= onceward.severity_rank(c.severity)
     and (c.tenant is null or c.tenant = p_tenant)
     and ((p_monitor).channels is null or c.name = any ((p_monitor).channels))
$$;

create or replace function onceward.has_channel(p_alert_id uuid)
  returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select exists (select from onceward.channels_for(m, a.tenant, a.severity))
    from onceward.alert_private as a join onceward.monitor_private as m on m.name = a.monitor
   where a.id = p_alert_id and a.closed_at is null and onceward.sees_tenant(coalesce(a.tenant, '*'))
$$;
comment on function onceward.has_channel(uuid) is
  'Whether there is a channel that hears of an open alert: one for its severity and tenant, among those its monitor names.  Null when the alert is closed, or not to be seen.';

-- One delivery per channel, in this very transaction; its key names alert, event and channel, so that nothing is told twice.
-- Returns how many there were.
create or replace function onceward.notify_channels(p_monitor onceward.monitor_private, p_alert onceward.alert_private, p_event text)
  returns integer
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_channel record;
  v_told    integer := 0;
  v_subject text := left(format('[%s] %s: %s', case p_event when 'closed' then 'closed' else p_alert.severity end,
                                p_alert.monitor, p_alert.summary), 400);
begin
  for v_channel in
    select c.name, c.kind, c.tenant, t.target
      from onceward.channels_for(p_monitor, p_alert.tenant, case p_event when 'closed' then p_alert.worst else p_alert.severity end) as c
      join onceward.channel_target_private as t on t.name = c.name
     order by c.name
  loop
    perform onceward.enter_delivery(
      v_channel.kind,
      format('alert:%s:%s:%s', p_alert.id,
             case p_event when 'raised' then 'raised to ' || p_alert.severity
                          when 'reminder' then 'reminder ' || p_alert.reminders else p_event end, v_channel.name),
      onceward.alert_notice(v_channel.kind, v_channel.target, p_alert, p_event, v_subject),
      coalesce(v_channel.tenant, 'onceward'), null, null, 0, null, null, null, true);
    v_told := v_told + 1;
  end loop;
  return v_told;
end;
$$;

-- The text says what, since when, and what to do; details stay in the database.
create or replace function onceward.alert_notice(
  p_kind text, p_target jsonb, p_alert onceward.alert_private, p_event text, p_subject text
)
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select p_target || case p_kind
    when 'email' then jsonb_build_object('subject', p_subject, 'text', n.text)
    when 'webhook' then jsonb_build_object('payload', jsonb_build_object(
      'type', 'onceward.alert', 'event', p_event, 'id', p_alert.id, 'monitor', p_alert.monitor, 'tenant', p_alert.tenant,
      'key', p_alert.key, 'severity', p_alert.severity, 'value', p_alert.value, 'summary', p_alert.summary,
      'first_seen_at', p_alert.first_seen_at, 'reminders', p_alert.reminders))
    else jsonb_build_object('text', left(n.text, 4000))
  end
  from (select concat_ws(E'\n', p_subject,
          case p_event when 'raised' then 'It has become worse.'
                       when 'reminder' then format('It still lasts (reminder %s).', p_alert.reminders)
                       when 'closed' then 'It is over: the check passes.' end,
          'tenant: ' || p_alert.tenant,
          'since: ' || to_char(p_alert.first_seen_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || 'Z',
          case when p_event <> 'closed' then format('onceward alert show %s', p_alert.id) end,
          case when p_event <> 'closed' then format('onceward alert ack %s --note "…" stops reminders', p_alert.id) end) as text) as n
$$;

-- ---------------------------------------------------------------- people

-- The alert, locked, if this session may touch it.
create or replace function onceward.lock_alert(p_alert_id uuid)
  returns onceward.alert_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_alert onceward.alert_private;
begin
  select * into v_alert from onceward.alert_private as a where a.id = p_alert_id for update;
  if not found then
    perform onceward.no_such_alert(p_alert_id);
  end if;
  -- One of the installation is nobody's but theirs who may see all tenants.
  perform onceward.check_tenant(coalesce(v_alert.tenant, '*'), 'alert');
  return v_alert;
end;
$$;

-- Of what was found, only where: the rest is in the alert.
create or replace function onceward.audit_alert(p_alert onceward.alert_private, p_kind text, p_note text)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select onceward.audit(p_kind, p_tenant => p_alert.tenant, p_entity_type => 'alert', p_entity_id => p_alert.id::text,
    p_before => jsonb_build_object('state', p_alert.state), p_message => p_note,
    p_meta => jsonb_build_object('monitor', p_alert.monitor, 'key', p_alert.key, 'severity', p_alert.severity))
$$;

create or replace function onceward.ack_alert(p_alert_id uuid, p_note text default null)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_alert onceward.alert_private := onceward.lock_alert(p_alert_id);
begin
  if v_alert.state = 'closed' or v_alert.acked_at is not null then
    return false;
  end if;
  update onceward.alert_private as a
     set acked_at = onceward.now(), acked_by = onceward.actor(), ack_note = left(p_note, 2000),
         -- A rise that nobody could be told of is known now.
         told = case when onceward.severity_rank(a.severity) > onceward.severity_rank(a.told) then a.severity else a.told end
   where a.id = p_alert_id;
  perform onceward.audit_alert(v_alert, 'alert.acknowledged', p_note);
  return true;
end;
$$;
comment on function onceward.ack_alert(uuid, text) is
  'Says that somebody looks after an alert: it is not told any more, unless it becomes worse.  Returns false when it was acknowledged or closed already.';

create or replace function onceward.close_alert(p_alert_id uuid, p_note text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_alert onceward.alert_private := onceward.lock_alert(p_alert_id);
begin
  if p_note is null or length(trim(p_note)) = 0 then
    perform onceward.bad_argument('note', p_note, 'must say why');
  end if;
  if v_alert.state = 'closed' then
    return false;
  end if;
  update onceward.alert_private as a
     set state = 'closed', opened_at = coalesce(a.opened_at, a.first_seen_at), closed_at = onceward.now(),
         closed_by = onceward.actor(), close_note = left(trim(p_note), 2000)
   where a.id = p_alert_id;
  perform onceward.audit_alert(v_alert, 'alert.closed', trim(p_note));
  return true;
end;
$$;
comment on function onceward.close_alert(uuid, text) is
  'Closes an alert by hand.  If its condition still holds, the next run of the monitor opens a new one.  The note is required.  Returns false when it was closed already.';

create or replace function onceward.silence_alerts(
  p_until    timestamptz,
  p_reason   text,
  p_alert_id uuid default null,
  p_monitor  text default null,
  p_tenant   text default null,
  p_key      text default null
)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_id     uuid := onceward.new_id();
  v_tenant text := coalesce(p_tenant, nullif(onceward.current_tenant(), '*'));
begin
  if p_until is null or p_until <= onceward.now() or p_until > onceward.now() + interval '1 year' then
    perform onceward.bad_argument('until', p_until::text, 'must lie within the next year');
  end if;
  if p_reason is null or length(trim(p_reason)) = 0 then
    perform onceward.bad_argument('reason', p_reason, 'must say why');
  end if;
  if p_alert_id is not null then
    perform onceward.lock_alert(p_alert_id);
  elsif v_tenant is not null then
    perform onceward.check_tenant(v_tenant, 'alert');
  end if;
  if p_monitor is not null and not exists (select from onceward.monitor_private as m where m.name = p_monitor) then
    perform onceward.no_such_monitor(p_monitor);
  end if;
  insert into onceward.silence_private (id, alert_id, monitor, tenant, key, until, reason, created_at, created_by)
  values (v_id, p_alert_id, p_monitor, v_tenant, p_key, p_until, left(trim(p_reason), 2000), onceward.now(), onceward.actor());
  perform onceward.audit('silence.began', p_tenant => v_tenant, p_entity_type => 'silence', p_entity_id => v_id::text,
    p_message => trim(p_reason), p_after => jsonb_strip_nulls(jsonb_build_object(
      'until', p_until, 'alert', p_alert_id, 'monitor', p_monitor, 'key', p_key)));
  return v_id;
end;
$$;
comment on function onceward.silence_alerts(timestamptz, text, uuid, text, text, text) is
  'Until then, alerts that fit (one alert, or all of a monitor, a tenant, a key; what is left out fits everything) are recorded and not told.  One that still lasts afterwards is told then.  A session of one tenant silences that tenant only.  Returns the id of the silence.';

create or replace function onceward.end_silence(p_silence_id uuid)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_silence onceward.silence_private;
begin
  select * into v_silence from onceward.silence_private as s where s.id = p_silence_id for update;
  if not found then
    perform onceward.bad_argument('silence', p_silence_id::text, 'must be the id of a silence',
      'See "onceward alert silences".');
  end if;
  perform onceward.check_tenant(coalesce(v_silence.tenant, '*'), 'silence');
  if v_silence.until <= onceward.now() then
    return false;
  end if;
  update onceward.silence_private as s set until = onceward.now() where s.id = p_silence_id;
  perform onceward.audit('silence.ended', p_tenant => v_silence.tenant, p_entity_type => 'silence', p_entity_id => p_silence_id::text,
    p_before => jsonb_build_object('until', v_silence.until));
  return true;
end;
$$;
comment on function onceward.end_silence(uuid) is 'Ends a silence early.  Returns false when it was over.';
