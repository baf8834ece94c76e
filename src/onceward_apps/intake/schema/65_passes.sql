-- The AI queue: three passes over the words of a document.  Each stores its result and what it has used in one transaction.

-- One pass as a job of its own, which waits for room in the provider's limit before it begins.
create or replace function intake.enqueue_pass(
  p_shell_file_id uuid, p_pass integer, p_estimated_tokens integer, p_provider_name text, p_api_endpoint text
)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_file     intake.shell_files;
  v_provider intake.api_providers;
  v_uses     jsonb;
  v_job      uuid;
begin
  select * into strict v_file from intake.shell_files as f where f.id = p_shell_file_id;
  if p_pass < 3 then
    select * into strict v_provider from intake.api_providers as p
     where p.provider_name = p_provider_name and p.api_endpoint = p_api_endpoint;
    -- What is more than the limit gives at once is reserved as far as it goes, and settled as a debt.
    v_uses := jsonb_build_array(jsonb_strip_nulls(jsonb_build_object('limit', v_provider.limit_name,
      'weight', case when v_provider.tokens_per_minute is not null
                     then least(p_estimated_tokens, coalesce(v_provider.tokens_at_once, p_estimated_tokens)) end)));
  end if;
  select e.job_id into v_job
    from intake.enqueue_task('intake.ai_queue_pass' || p_pass,
      jsonb_build_object('shell_file_id', p_shell_file_id, 'estimated_tokens', p_estimated_tokens,
                         'provider_name', p_provider_name, 'api_endpoint', p_api_endpoint, 'correlation_id', v_file.correlation_id),
      'ai_queue', v_file.patient_id::text, p_uses => v_uses) as e;
  return v_job;
end;
$$;

create or replace function intake.read_document(p_shell_file_id uuid)
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'id', f.id, 'patient_id', f.patient_id, 'person', p.display_name, 'kind', f.document_kind, 'language', f.document_language, 'confidence', f.confidence, 'uploaded_on', (f.created_at at time zone 'UTC')::date,
    'entities', (select coalesce(jsonb_agg(e.entity order by e.number), '[]') from intake.document_entities as e where e.shell_file_id = f.id),
    'pages', (select coalesce(jsonb_agg(jsonb_build_object('number', g.page_number, 'width', g.width, 'height', g.height,
                'words', (select coalesce(jsonb_agg(jsonb_build_object('text', w.content, 'x', w.x, 'y', w.y, 'width', w.width,
                            'height', w.height, 'confidence', w.confidence, 'line', w.line_number) order by w.word_number), '[]')
                            from intake.ocr_words as w where w.shell_file_id = f.id and w.page_number = g.page_number))
                order by g.page_number), '[]')
                from intake.file_pages as g where g.shell_file_id = f.id))
    from intake.shell_files as f join intake.user_profiles as p on p.id = f.patient_id where f.id = p_shell_file_id
$$;

-- What a pass has used: in the ledger of calls, and on the profile's account.
create or replace function intake.note_api_call(
  p_shell_file_id uuid, p_job_id uuid, p_provider_name text, p_api_endpoint text, p_estimated integer, p_actual integer, p_seconds integer
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into intake.api_calls (provider_name, api_endpoint, estimated_tokens, actual_tokens, job_id, released_at)
  values (p_provider_name, p_api_endpoint, p_estimated, p_actual, p_job_id, onceward.now());
  perform intake.track_ai_processing_usage(f.patient_id, p_job_id, p_actual, p_seconds)
     from intake.shell_files as f where f.id = p_shell_file_id;
end;
$$;

create or replace function intake.store_classification(
  p_shell_file_id uuid, p_job_id uuid, p_kind text, p_language text, p_confidence double precision, p_entities jsonb, p_call jsonb
)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_profile uuid;
begin
  update intake.shell_files as f
     set document_kind = p_kind, document_language = p_language, confidence = p_confidence, updated_at = onceward.now(),
         needs_review = p_confidence < intake.setting_number('review.confidence_threshold', 0.75)
   where f.id = p_shell_file_id
  returning f.patient_id into strict v_profile;
  delete from intake.document_entities as e where e.shell_file_id = p_shell_file_id;
  insert into intake.document_entities (shell_file_id, patient_id, number, entity)
  select p_shell_file_id, v_profile, t.n, t.e from jsonb_array_elements(p_entities) with ordinality as t (e, n);
  perform intake.note_api_call(p_shell_file_id, p_job_id, p_call ->> 'provider_name', p_call ->> 'api_endpoint',
    (p_call ->> 'estimated_tokens')::integer, (p_call ->> 'actual_tokens')::integer, (p_call ->> 'seconds')::integer);
  perform intake.log_audit_event('shell_files', p_shell_file_id::text, 'UPDATE', null,
    jsonb_build_object('pass', 1, 'entities', jsonb_array_length(p_entities), 'job_id', p_job_id), 'Document classified', 'clinical_data', v_profile);
end;
$$;

create or replace function intake.store_facts(p_shell_file_id uuid, p_job_id uuid, p_facts jsonb, p_call jsonb)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_profile   uuid := (select f.patient_id from intake.shell_files as f where f.id = p_shell_file_id);
  v_threshold numeric := intake.setting_number('review.confidence_threshold', 0.75);
  v_count     integer;
begin
  delete from intake.clinical_facts as c where c.shell_file_id = p_shell_file_id;
  insert into intake.clinical_facts
    (shell_file_id, patient_id, number, kind, name, value, unit, reference_low, reference_high, dose, fact_date,
     page_number, first_word, last_word, confidence, needs_review)
  select p_shell_file_id, v_profile, t.number, t.kind, t.name, t.value, t.unit, t.low, t.high, t.dose, t.date,
         t.page, t.first_word, t.last_word, t.confidence, t.confidence < v_threshold
    from jsonb_to_recordset(p_facts) as t (number integer, kind text, name text, value text, unit text, low text,
           high text, dose text, date text, page integer, first_word integer, last_word integer, confidence double precision);
  get diagnostics v_count = row_count;
  perform intake.note_api_call(p_shell_file_id, p_job_id, p_call ->> 'provider_name', p_call ->> 'api_endpoint',
    (p_call ->> 'estimated_tokens')::integer, (p_call ->> 'actual_tokens')::integer, (p_call ->> 'seconds')::integer);
  perform intake.log_audit_event('clinical_facts', p_shell_file_id::text, 'INSERT', null,
    jsonb_build_object('pass', 2, 'facts', v_count, 'job_id', p_job_id), 'Facts extracted', 'clinical_data', v_profile);
  return v_count;
end;
$$;

create or replace function intake.read_facts(p_shell_file_id uuid)
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(jsonb_agg(jsonb_build_object('kind', c.kind, 'name', c.name, 'value', c.value, 'unit', c.unit, 'low', c.reference_low,
           'high', c.reference_high, 'dose', c.dose, 'date', c.fact_date, 'page', c.page_number, 'first_word', c.first_word,
           'last_word', c.last_word, 'confidence', c.confidence) order by c.number), '[]')
    from intake.clinical_facts as c where c.shell_file_id = p_shell_file_id
$$;

-- The end: facts in their normal form, the entry on the time line, and the file completed.
create or replace function intake.store_timeline(p_shell_file_id uuid, p_job_id uuid, p_normal jsonb, p_entry jsonb)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_profile uuid;
  v_review  boolean;
begin
  update intake.clinical_facts as c
     set code = t.code, code_system = t.code_system, canonical_value = t.canonical_value, canonical_unit = t.canonical_unit,
         canonical_low = t.canonical_low, canonical_high = t.canonical_high, interpretation = t.interpretation,
         iso_date = t.iso_date, doubts = t.doubts, needs_review = c.needs_review or cardinality(t.doubts) > 0
    from jsonb_to_recordset(p_normal) as t (number integer, code text, code_system text, canonical_value numeric,
           canonical_unit text, canonical_low numeric, canonical_high numeric, interpretation text, iso_date date, doubts text[])
   where c.shell_file_id = p_shell_file_id and c.number = t.number;
  update intake.shell_files as f
     set status = 'completed', processed_at = coalesce(f.processed_at, onceward.now()), updated_at = onceward.now(),
         needs_review = f.needs_review or (p_entry ->> 'needs_review')::boolean
                        or exists (select from intake.clinical_facts as c where c.shell_file_id = f.id and c.needs_review),
         processing_error = intake.errors_resolved(f.processing_error)
   where f.id = p_shell_file_id
  returning f.patient_id, f.needs_review into strict v_profile, v_review;
  insert into intake.timeline_entries as t
    (shell_file_id, patient_id, entry_date, is_dated, kind, title, summary, provider, needs_review, reasons)
  values (p_shell_file_id, v_profile, (p_entry ->> 'date')::date, (p_entry ->> 'is_dated')::boolean, p_entry ->> 'kind',
          p_entry ->> 'title', p_entry ->> 'summary', p_entry ->> 'provider', v_review,
          array(select r from jsonb_array_elements_text(p_entry -> 'reasons') as r))
      on conflict (shell_file_id) do update
     set entry_date = excluded.entry_date, is_dated = excluded.is_dated, kind = excluded.kind, title = excluded.title,
         summary = excluded.summary, provider = excluded.provider, needs_review = excluded.needs_review, reasons = excluded.reasons;
  perform intake.log_audit_event('timeline_entries', p_shell_file_id::text, 'INSERT', null,
    jsonb_build_object('pass', 3, 'facts', jsonb_array_length(p_normal), 'needs_review', v_review, 'job_id', p_job_id),
    'Time line entry made', 'clinical_data', v_profile);
end;
$$;
