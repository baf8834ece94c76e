-- From the upload to the end of the fast queue.

-- What the upload route asks before it takes a byte.
create or replace function intake.may_upload(p_profile_id uuid)
  returns text
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if intake.uid() is null or not intake.has_profile_access(intake.uid(), p_profile_id, 'write') then
    return 'forbidden';
  end if;
  if intake.is_enabled('features.plan_limits_enabled')
     and not (intake.get_user_usage_status(p_profile_id) ->> 'within_plan')::boolean then
    return 'plan_limit_reached';
  end if;
  return null;
end;
$$;
comment on function intake.may_upload(uuid) is 'Null when the user of the transaction may upload to a profile, else why not.';

-- File row, usage, job and audit in one transaction (H10).  The object is stored already; when this fails, it is an orphan.
create or replace function intake.accept_upload(
  p_id uuid, p_profile_id uuid, p_filename text, p_mime_type text, p_size bigint, p_sha256 bytea, p_storage_path text,
  p_idempotency_key text, p_estimated_tokens integer, p_correlation_id uuid
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_file    intake.shell_files;
  v_job     intake.enqueued_job;
  v_refusal text := intake.may_upload(p_profile_id);
begin
  if v_refusal is not null then
    return jsonb_build_object('outcome', v_refusal);
  end if;
  insert into intake.shell_files
    (id, patient_id, uploaded_by, filename, mime_type, file_size_bytes, content_sha256, storage_path, idempotency_key,
     estimated_tokens, correlation_id)
  values (p_id, p_profile_id, intake.uid(), p_filename, p_mime_type, p_size, p_sha256, p_storage_path, p_idempotency_key,
          p_estimated_tokens, p_correlation_id)
      on conflict (patient_id, idempotency_key) do nothing
  returning * into v_file;
  if not found then
    -- A repetition gets the first result, unchanged (H9); the same key for other contents is a mistake.
    select * into strict v_file from intake.shell_files as f
     where f.patient_id = p_profile_id and f.idempotency_key = p_idempotency_key;
    return jsonb_build_object('outcome', case when v_file.content_sha256 = p_sha256 then 'repeated' else 'key_conflict' end,
      'shell_file_id', v_file.id, 'job_id', v_file.job_id, 'status', v_file.status, 'created_at', v_file.created_at,
      'estimated_tokens', v_file.estimated_tokens, 'correlation_id', v_file.correlation_id);
  end if;
  perform intake.track_shell_file_upload_usage(p_profile_id, p_id);
  v_job := intake.enqueue_job_v3('shell_file_processing', 'Process file ' || p_id,
    jsonb_build_object('shell_file_id', p_id, 'estimated_tokens', p_estimated_tokens, 'correlation_id', p_correlation_id));
  update intake.shell_files as f set job_id = v_job.job_id where f.id = p_id;
  perform intake.log_audit_event('shell_files', p_id::text, 'INSERT', null,
    jsonb_build_object('status', 'uploaded', 'mime_type', p_mime_type, 'file_size_bytes', p_size, 'job_id', v_job.job_id,
                       'correlation_id', p_correlation_id),
    'File uploaded', 'clinical_data', p_profile_id);
  return jsonb_build_object('outcome', 'created', 'shell_file_id', p_id, 'job_id', v_job.job_id, 'status', 'uploaded',
    'created_at', v_file.created_at, 'estimated_tokens', p_estimated_tokens, 'correlation_id', p_correlation_id);
end;
$$;
comment on function intake.accept_upload(uuid, uuid, text, text, bigint, bytea, text, text, integer, uuid) is
  'Records a stored object as a file, counts it and enqueues its processing, in one transaction.  A repeated key gives the first answer again.';

-- Which of these objects belong to no file.
create or replace function intake.orphans_among(p_file_ids uuid[])
  returns uuid[]
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select array(select i from unnest(p_file_ids) as i where not exists (select from intake.shell_files as f where f.id = i))
$$;

-- ------------------------------------------------------------ the fast queue

create or replace function intake.begin_file(p_shell_file_id uuid)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_file intake.shell_files;
begin
  update intake.shell_files as f set status = 'processing', updated_at = onceward.now()
   where f.id = p_shell_file_id and f.status in ('uploaded', 'processing', 'failed')
  returning * into v_file;
  if not found then
    select * into v_file from intake.shell_files as f where f.id = p_shell_file_id;
  end if;
  return jsonb_build_object('id', v_file.id, 'patient_id', v_file.patient_id, 'storage_path', v_file.storage_path,
    'mime_type', v_file.mime_type, 'sha256', encode(v_file.content_sha256, 'hex'), 'status', v_file.status,
    'correlation_id', v_file.correlation_id);
end;
$$;

create or replace function intake.refuse_file(p_shell_file_id uuid, p_code text, p_message text)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_profile uuid;
begin
  update intake.shell_files as f
     set status = 'rejected', refusal = jsonb_build_object('code', p_code, 'message', p_message),
         processed_at = onceward.now(), updated_at = onceward.now()
   where f.id = p_shell_file_id
  returning f.patient_id into v_profile;
  perform intake.log_audit_event('shell_files', p_shell_file_id::text, 'UPDATE', null,
    jsonb_build_object('status', 'rejected', 'code', p_code), 'File refused by the security scan', 'clinical_data', v_profile);
end;
$$;

-- A page with its words, in one write: again after a crash, and the same.
create or replace function intake.store_page(
  p_shell_file_id uuid, p_page integer, p_width integer, p_height integer, p_image_path text, p_words jsonb
)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_profile uuid := (select f.patient_id from intake.shell_files as f where f.id = p_shell_file_id);
  v_count   integer := jsonb_array_length(p_words);
begin
  insert into intake.file_pages as g
    (shell_file_id, patient_id, page_number, width, height, image_path, word_count, confidence)
  values (p_shell_file_id, v_profile, p_page, p_width, p_height, p_image_path, v_count,
          (select avg((w ->> 'confidence')::double precision) from jsonb_array_elements(p_words) as w))
      on conflict (shell_file_id, page_number) do update
     set width = excluded.width, height = excluded.height, image_path = excluded.image_path, word_count = excluded.word_count,
         confidence = excluded.confidence;
  delete from intake.ocr_words as w where w.shell_file_id = p_shell_file_id and w.page_number = p_page;
  insert into intake.ocr_words
    (shell_file_id, patient_id, page_number, word_number, line_number, content, x, y, width, height, confidence)
  select p_shell_file_id, v_profile, p_page, w.number, w.line, w.content, w.x, w.y, w.width, w.height, w.confidence
    from jsonb_to_recordset(p_words) as w (number integer, line integer, content text, x double precision, y double precision,
                                           width double precision, height double precision, confidence double precision);
  perform intake.log_audit_event('ocr_words', p_shell_file_id::text, 'INSERT', null,
    jsonb_build_object('page', p_page, 'words', v_count), 'Page read', 'clinical_data', v_profile);
  return v_count;
end;
$$;

-- The end of the fast queue, and the job of the AI queue with it.
create or replace function intake.finish_ocr(p_shell_file_id uuid, p_pages integer, p_estimated_tokens integer, p_provider jsonb)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_file intake.shell_files;
  v_job  intake.enqueued_job;
begin
  update intake.shell_files as f
     set status = 'ocr_complete', page_count = p_pages, estimated_tokens = p_estimated_tokens, updated_at = onceward.now(),
         processing_error = intake.errors_resolved(f.processing_error)
   where f.id = p_shell_file_id
  returning * into v_file;
  v_job := intake.enqueue_job_v3('ai_processing', 'Read file ' || p_shell_file_id,
    p_provider || jsonb_build_object('shell_file_id', p_shell_file_id, 'estimated_tokens', p_estimated_tokens,
                                     'correlation_id', v_file.correlation_id));
  update intake.shell_files as f set ai_job_id = v_job.job_id where f.id = p_shell_file_id;
  perform intake.log_audit_event('shell_files', p_shell_file_id::text, 'UPDATE', null,
    jsonb_build_object('status', 'ocr_complete', 'pages', p_pages, 'job_id', v_job.job_id, 'correlation_id', v_file.correlation_id),
    'Text read, handed to the AI queue', 'clinical_data', v_file.patient_id);
  return v_job.job_id;
end;
$$;

-- ------------------------------------------------------------ errors, in the documented structure

create or replace function intake.errors_resolved(p_errors jsonb)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when p_errors is null then null else
    (p_errors - 'current_error') || jsonb_build_object('error_history',
      (select coalesce(jsonb_agg(h || '{"resolved": true}' order by n), '[]')
         from jsonb_array_elements(p_errors -> 'error_history') with ordinality as t (h, n))) end
$$;

create or replace function intake.record_processing_error(p_shell_file_id uuid, p_error jsonb, p_is_last boolean)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_type  text := p_error ->> 'error_type';
  v_line  jsonb;
  v_old   jsonb;
  v_types jsonb;
begin
  if v_type is null or v_type not in ('ocr_failure', 'ai_timeout', 'api_error', 'network_error') then
    raise exception 'error_type must be ocr_failure, ai_timeout, api_error or network_error' using errcode = 'OW008';
  end if;
  select coalesce(f.processing_error, '{}') into v_old from intake.shell_files as f where f.id = p_shell_file_id for update;
  if not found then
    return;
  end if;
  -- The waits of a job are drawn when it is enqueued, so the next one is known.
  v_line := p_error || jsonb_build_object('timestamp', onceward.now()) || coalesce((
    select jsonb_build_object('worker_id', coalesce(w.name, 'unknown')) || case when p_is_last then '{}' else
             jsonb_build_object('next_retry_at', onceward.now() + make_interval(secs =>
               (j.retry -> 'waits' ->> (least(j.attempt, jsonb_array_length(j.retry -> 'waits')) - 1))::double precision)) end
      from onceward.jobs as j left join onceward.workers as w on w.id = j.worker_id
     where j.id = intake.as_uuid(p_error ->> 'job_id') and j.attempt > 0), '{}');
  v_types := coalesce(v_old #> '{metrics,error_types}', '{}');
  update intake.shell_files as f
     set processing_error = jsonb_build_object(
           'current_error', v_line,
           -- The last twenty.
           'error_history', (select coalesce(jsonb_agg(h order by n), '[]') from (
              select h, n from jsonb_array_elements(coalesce(v_old -> 'error_history', '[]')
                                || jsonb_build_array((v_line - 'next_retry_at') || '{"resolved": false}')) with ordinality as t (h, n)
               order by n desc limit 20) as newest),
           'metrics', jsonb_build_object(
              'total_retries', coalesce((v_old #>> '{metrics,total_retries}')::integer, 0) + 1,
              'total_processing_time_ms', coalesce((v_old #>> '{metrics,total_processing_time_ms}')::bigint, 0)
                                          + coalesce((p_error ->> 'duration_ms')::bigint, 0),
              'first_error_at', coalesce(v_old #> '{metrics,first_error_at}', to_jsonb(onceward.now())),
              'last_error_at', onceward.now(),
              'error_types', v_types || jsonb_build_object(v_type, coalesce((v_types ->> v_type)::integer, 0) + 1))),
         status = case when p_is_last then 'failed' else f.status end, updated_at = onceward.now()
   where f.id = p_shell_file_id;
end;
$$;
comment on function intake.record_processing_error(uuid, jsonb, boolean) is
  'Adds a failure to shell_files.processing_error: current_error, error_history and metrics, as documented.';

-- A worker that dies with the last attempt tells nobody: files of dead letters are marked here.
create or replace function intake.reconcile_files(p_limit integer default 200)
  returns integer
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  with lost as (
    select f.id from intake.shell_files as f
     where f.status in ('uploaded', 'processing', 'ocr_complete')
       and exists (select from onceward.dead_letters as d where d.id = f.job_id or d.id = f.ai_job_id)
     limit p_limit for update skip locked
  ), marked as (
    update intake.shell_files as f set status = 'failed', updated_at = onceward.now() from lost where f.id = lost.id returning 1
  )
  select count(*)::integer from marked
$$;
