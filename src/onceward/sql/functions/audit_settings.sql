-- What the audit log tells of settings: names and values before and after a change.

create or replace function onceward.lane_settings(p_lane onceward.lane_private)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('max_payload_bytes', p_lane.max_payload_bytes, 'max_result_bytes', p_lane.max_result_bytes,
                            'fair', p_lane.fair, 'max_wait', p_lane.max_wait, 'audit', p_lane.audit)
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
