-- What the audit log tells of settings: names and values before and after a change.

create or replace function onceward.lane_settings(p_lane onceward.lane_private)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('max_payload_bytes', p_lane.max_payload_bytes, 'max_result_bytes', p_lane.max_result_bytes,
                            'fair', p_lane.fair, 'max_wait', p_lane.max_wait, 'audit', p_lane.audit,
                            'max_running', p_lane.max_running)
$$;

-- What the audit log tells of a schedule.  Of its payload only the hash: whether it was changed, not what it is.
create or replace function onceward.schedule_settings(p_row onceward.schedule_private)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_strip_nulls(jsonb_build_object(
    'task', p_row.task, 'spec', p_row.spec, 'zone', p_row.zone, 'lane', p_row.lane, 'priority', p_row.priority,
    'max_attempts', p_row.max_attempts, 'retry', p_row.retry, 'timeout', p_row.timeout, 'expires_in', p_row.expires_in,
    'missed', p_row.missed, 'catch_up', p_row.catch_up, 'grace', p_row.grace, 'overlap', p_row.overlap, 'jitter', p_row.jitter,
    'source', p_row.source, 'app', p_row.app,
    'payload_sha256', encode(sha256(convert_to(p_row.payload::text, 'UTF8')), 'hex')))
$$;

-- Only what differs.
create or replace function onceward.changed_settings(p_old jsonb, p_new jsonb, out before jsonb, out after jsonb)
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_object_agg(k.key, p_old -> k.key) filter (where p_old ? k.key), '{}'),
         coalesce(jsonb_object_agg(k.key, p_new -> k.key) filter (where p_new ? k.key), '{}')
    from jsonb_object_keys(p_old || p_new) as k (key)
   where p_old -> k.key is distinct from p_new -> k.key
$$;

create or replace function onceward.audit_schedule(
  p_row onceward.schedule_private, p_kind text, p_before jsonb default null, p_after jsonb default null, p_message text default null,
  p_job_id uuid default null
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.audit(p_kind, p_tenant => p_row.tenant, p_job_id => p_job_id, p_entity_type => 'schedule', p_entity_id => p_row.name,
    p_before => p_before, p_after => p_after, p_message => p_message);
end;
$$;

-- A setting that was made, changed or dropped: only what differs, and nothing when nothing does.
create or replace function onceward.audit_setting(
  p_type text, p_id text, p_before jsonb, p_after jsonb, p_tenant text default null, p_meta jsonb default null
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_changed record;
begin
  if p_before is null or p_after is null then
    perform onceward.audit(p_type || case when p_before is null then '.created' else '.dropped' end, p_tenant => p_tenant,
      p_entity_type => p_type, p_entity_id => p_id, p_before => p_before, p_after => p_after, p_meta => p_meta);
    return;
  end if;
  v_changed := onceward.changed_settings(p_before, p_after);
  if v_changed.before <> v_changed.after then
    perform onceward.audit(p_type || '.changed', p_tenant => p_tenant, p_entity_type => p_type, p_entity_id => p_id,
      p_before => v_changed.before, p_after => v_changed.after, p_meta => p_meta);
  end if;
end;
$$;

-- Of a row that is not there: null.
create or replace function onceward.limit_settings(p_limit onceward.limit_private)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_strip_nulls(to_jsonb(p_limit)) - array['name', 'rate', 'weight_rate', 'changed_at', 'changed_by'] where p_limit.name is not null
$$;

create or replace function onceward.bound_settings(p_bound onceward.bound_private)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_strip_nulls(to_jsonb(p_bound)) - array['lane', 'tenant'] where p_bound.lane is not null
$$;

create or replace function onceward.settings_of_monitor(p_name text)
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('every', m.every, 'severity', m.severity, 'hold_for', m.hold_for, 'clear_after', m.clear_after,
                            'remind_every', m.remind_every, 'timeout', m.timeout, 'errors_allowed', m.errors_allowed,
                            'channels', m.channels)
         || coalesce((select jsonb_object_agg('threshold ' || t.name, t.value) from onceward.threshold_private as t
                       where t.monitor = m.name), '{}')
    from onceward.monitor_private as m
   where m.name = p_name
$$;

create or replace function onceward.channel_settings(p_channel onceward.channel_private)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('kind', p_channel.kind, 'tenant', p_channel.tenant, 'severity', p_channel.severity)
   where p_channel.name is not null
$$;

create or replace function onceward.operator_settings(p_operator onceward.operator_private)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('role', p_operator.role, 'tenant', p_operator.tenant, 'disabled', p_operator.disabled_at is not null)
   where p_operator.name is not null
$$;
