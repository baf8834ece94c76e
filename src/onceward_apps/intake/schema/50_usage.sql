-- Usage: counted once per upload and per job, whatever is repeated.  Sizes come from the file's row, never from a caller.

create or replace function intake.count_usage(
  p_profile_id uuid, p_event_type text, p_resource_id uuid, p_bytes bigint, p_tokens bigint, p_seconds integer
)
  returns boolean
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_month date := date_trunc('month', onceward.now() at time zone 'UTC')::date;
begin
  if not intake.is_enabled('features.usage_tracking_enabled') then
    return false;
  end if;
  insert into intake.usage_events (profile_id, event_type, resource_id, bytes, tokens, seconds)
  values (p_profile_id, p_event_type, p_resource_id, p_bytes, p_tokens, p_seconds)
      on conflict (event_type, resource_id) do nothing;
  if not found then
    return false;
  end if;
  insert into intake.user_usage_tracking as u
    (profile_id, usage_month, files_uploaded, storage_bytes, ai_tokens_used, ai_processing_seconds, updated_at)
  values (p_profile_id, v_month, (p_event_type = 'shell_file_upload')::integer, p_bytes, p_tokens, p_seconds, onceward.now())
      on conflict (profile_id, usage_month) do update
     set files_uploaded = u.files_uploaded + excluded.files_uploaded, storage_bytes = u.storage_bytes + excluded.storage_bytes,
         ai_tokens_used = u.ai_tokens_used + excluded.ai_tokens_used,
         ai_processing_seconds = u.ai_processing_seconds + excluded.ai_processing_seconds, updated_at = excluded.updated_at;
  return true;
end;
$$;

create or replace function intake.track_shell_file_upload_usage(
  p_profile_id uuid, p_shell_file_id uuid, p_file_size_bytes bigint default null, p_estimated_pages integer default 1
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_size bigint;
begin
  perform intake.check_profile_access(p_profile_id, 'write');
  -- What the caller says about size and pages is not believed.
  select f.file_size_bytes into v_size from intake.shell_files as f where f.id = p_shell_file_id and f.patient_id = p_profile_id;
  if not found then
    raise exception 'file % is not one of this profile', p_shell_file_id using errcode = 'no_data_found';
  end if;
  return intake.count_usage(p_profile_id, 'shell_file_upload', p_shell_file_id, v_size, 0, 0);
end;
$$;
comment on function intake.track_shell_file_upload_usage(uuid, uuid, bigint, integer) is
  'Counts an upload, once, by the size that its row has.  Returns whether it was counted by this call.';

create or replace function intake.track_ai_processing_usage(
  p_profile_id uuid, p_job_id uuid, p_tokens_used integer, p_processing_seconds integer
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform intake.check_profile_access(p_profile_id, 'write');
  if p_tokens_used is null or p_tokens_used < 0 or p_processing_seconds is null or p_processing_seconds < 0 then
    raise exception 'tokens and seconds must not be negative' using errcode = 'OW008';
  end if;
  if not exists (select from onceward.jobs as j where j.id = p_job_id and j.tenant = p_profile_id::text) then
    raise exception 'job % is not one of this profile', p_job_id using errcode = 'no_data_found';
  end if;
  return intake.count_usage(p_profile_id, 'ai_processing', p_job_id, 0, p_tokens_used, p_processing_seconds);
end;
$$;
comment on function intake.track_ai_processing_usage(uuid, uuid, integer, integer) is
  'Counts the tokens and the time of a job, once.  Returns whether they were counted by this call.';

create or replace function intake.get_user_usage_status(p_profile_id uuid)
  returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_month date := date_trunc('month', onceward.now() at time zone 'UTC')::date;
  v_plan  intake.subscription_plans;
  v_used  intake.user_usage_tracking;
  v_kept  bigint;
  v_files integer;
begin
  perform intake.check_profile_access(p_profile_id);
  select s.* into v_plan from intake.user_profiles as p join intake.subscription_plans as s using (plan_type) where p.id = p_profile_id;
  select * into v_used from intake.user_usage_tracking as u where u.profile_id = p_profile_id and u.usage_month = v_month;
  -- Storage is what is kept, not what this month has added.
  select coalesce(sum(u.storage_bytes), 0) into v_kept from intake.user_usage_tracking as u where u.profile_id = p_profile_id;
  -- A file that was refused is no document; it was uploaded, and user_usage_tracking keeps that.
  v_files := greatest(coalesce(v_used.files_uploaded, 0) - (
    select count(*) from intake.usage_events as e join intake.shell_files as f on f.id = e.resource_id
     where e.profile_id = p_profile_id and e.event_type = 'shell_file_upload' and f.status = 'rejected'
       and e.created_at >= v_month::timestamp at time zone 'UTC'), 0);
  return jsonb_build_object(
    'profile_id', p_profile_id, 'plan_type', v_plan.plan_type, 'plan_name', v_plan.display_name, 'usage_month', v_month,
    'files', jsonb_build_object('used', v_files, 'limit', v_plan.files_per_month),
    'storage_bytes', jsonb_build_object('used', v_kept, 'limit', v_plan.storage_bytes),
    'ai_tokens', jsonb_build_object('used', coalesce(v_used.ai_tokens_used, 0), 'limit', v_plan.ai_tokens_per_month),
    'ai_processing_seconds', coalesce(v_used.ai_processing_seconds, 0),
    'limits_enforced', intake.is_enabled('features.plan_limits_enabled'),
    'within_plan', v_files < coalesce(v_plan.files_per_month, 2147483647)
                   and v_kept < coalesce(v_plan.storage_bytes, 9223372036854775807)
                   and coalesce(v_used.ai_tokens_used, 0) < coalesce(v_plan.ai_tokens_per_month, 9223372036854775807));
end;
$$;
comment on function intake.get_user_usage_status(uuid) is 'What a profile has used this month, against its plan.  Refused files are no documents.';
