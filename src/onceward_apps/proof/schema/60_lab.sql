-- Lab results, and what they decide: a batch is released by passing results and by nothing else.

-- Before there was a reason.
drop function if exists raw_ops.fn_record_lab_results_v1(uuid, jsonb, text, text, date, text);
create or replace function raw_ops.fn_record_lab_results_v1(
  p_batch_id uuid, p_results jsonb, p_lab_name text, p_certificate_reference text, p_analysis_date date,
  p_certificate_pdf_url text default null, p_reason text default null
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_batch   raw_ops.batches;
  v_problem text;
  -- What failed before, and has passed by these results.
  v_mended  text[];
  v_reason  text := nullif(trim(p_reason), '');
begin
  -- Locked: a release at the same moment sees either none of these results or all of them.
  select * into v_batch from raw_ops.batches as b where b.id = p_batch_id for update;
  if not found then
    return raw_ops.fn_refusal('Batch not found');
  end if;
  if v_batch.status <> 'QA_HOLD' then
    return raw_ops.fn_refusal('Results are recorded while a batch is in QA_HOLD. Current status: ' || v_batch.status);
  end if;
  v_problem := raw_ops.fn_check_lab_results(v_batch, p_results, p_lab_name, p_certificate_reference, p_analysis_date);
  if v_problem is not null then
    return raw_ops.fn_refusal(v_problem);
  end if;
  v_mended := array(
    select r.parameter from raw_ops.lab_results as r
      join jsonb_array_elements(p_results) as g on g ->> 'parameter' = r.parameter and (g -> 'passed')::boolean
     where r.batch_id = p_batch_id and r.superseded_at is null and not r.passed
     order by r.parameter);
  v_problem := case
    when cardinality(v_mended) > 0 and v_reason is null
      then format('%s failed before; a reason is required for why it has passed now', array_to_string(v_mended, ', '))
    else raw_ops.fn_too_long('reason', v_reason, 2000)
  end;
  if v_problem is not null then
    return raw_ops.fn_refusal(v_problem, jsonb_build_object('failed_before', to_jsonb(v_mended)));
  end if;

  update raw_ops.lab_results as r
     set superseded_at = onceward.now()
    from jsonb_array_elements(p_results) as g
   where r.batch_id = p_batch_id and r.superseded_at is null and r.parameter = g ->> 'parameter';
  insert into raw_ops.lab_results
    (batch_id, parameter, method, result, limit_value, passed, lab_name, certificate_reference, certificate_pdf_url,
     analysis_date, recorded_by)
  select p_batch_id, g ->> 'parameter', trim(g ->> 'method'), trim(g ->> 'result'), trim(g ->> 'limit'), (g -> 'passed')::boolean,
         trim(p_lab_name), trim(p_certificate_reference), p_certificate_pdf_url, p_analysis_date, onceward.actor()
    from jsonb_array_elements(p_results) as g;
  perform raw_ops.fn_log_event('batch', p_batch_id, 'INFO', 'Lab results recorded for batch ' || v_batch.batch_code,
    jsonb_build_object('batch_code', v_batch.batch_code, 'results', p_results, 'certificate_reference', p_certificate_reference));
  perform raw_ops.fn_audit('proof.lab_results_recorded', v_batch.batch_code,
    format('Lab results of batch %s recorded: %s', v_batch.batch_code, trim(p_certificate_reference)),
    p_after => jsonb_build_object('passed', (select jsonb_object_agg(g ->> 'parameter', g -> 'passed') from jsonb_array_elements(p_results) as g)));
  if cardinality(v_mended) > 0 then
    perform raw_ops.fn_log_event('batch', p_batch_id, 'WARNING',
      format('Failed results of batch %s became passed (%s): %s', v_batch.batch_code, array_to_string(v_mended, ', '), v_reason),
      jsonb_build_object('batch_code', v_batch.batch_code, 'parameters', to_jsonb(v_mended), 'reason', v_reason));
    perform raw_ops.fn_audit('proof.failed_results_corrected', v_batch.batch_code, v_reason,
      jsonb_build_object('failed', to_jsonb(v_mended)), jsonb_build_object('passed', to_jsonb(v_mended)));
  end if;
  return jsonb_build_object('success', true, 'batch_code', v_batch.batch_code, 'recorded', jsonb_array_length(p_results))
    || raw_ops.fn_release_verdict(p_batch_id);
end;
$$;
comment on function raw_ops.fn_record_lab_results_v1(uuid, jsonb, text, text, date, text, text) is
  'Records results of a batch in QA_HOLD: [{parameter, method, result, limit, passed}].  A parameter that was recorded before is corrected; the old result stays.  p_reason is required when a failed result becomes a passed one.  Returns whether the batch can be released, and what is missing.';

-- Null, or that a text is longer than anybody reads.
create or replace function raw_ops.fn_too_long(p_name text, p_text text, p_most integer)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select format('%s may have %s characters, got %s', p_name, p_most, length(p_text)) where length(p_text) > p_most
$$;

-- Whether what was found is a number, the limit is one of the same unit, and the first is larger.  False where they cannot
-- be compared, also for "< 10 cfu/g", which says less than a number.
create or replace function raw_ops.fn_exceeds_limit(p_found text, p_limit text)
  returns boolean
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  with figure as (
    select regexp_match(lower(p_found), '^\s*((?:\d{1,3}(?:[ ,]\d{3})+|\d+)(?:\.\d+)?)\s*(\D.*)?$') as found,
           regexp_match(lower(p_limit), '^\s*[<≤]?\s*((?:\d{1,3}(?:[ ,]\d{3})+|\d+)(?:\.\d+)?)\s*(\D.*)?$') as most
  )
  select coalesce(
    regexp_replace(coalesce(f.found[2], ''), '\s', '', 'g') = regexp_replace(coalesce(f.most[2], ''), '\s', '', 'g')
      and regexp_replace(f.found[1], '[ ,]', '', 'g')::numeric > regexp_replace(f.most[1], '[ ,]', '', 'g')::numeric, false)
    from figure as f
$$;

-- Where nothing may be found, something was: a word for it that is not denied.  What a laboratory writes otherwise is for people.
create or replace function raw_ops.fn_was_found(p_found text, p_limit text)
  returns boolean
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select p_limit ~* '^\s*(absent|not detected|none|negative|nil)\M'
     and p_found ~* '\m(present|detected|positive|found|isolated|confirmed)\M'
     and p_found !~* '\m(not|no|non|none|nothing|nil|never|without|absent|negative)\M'
$$;

-- What is wrong with the results, or null: nothing is half recorded.
create or replace function raw_ops.fn_check_lab_results(
  p_batch raw_ops.batches, p_results jsonb, p_lab_name text, p_certificate_reference text, p_analysis_date date
)
  returns text
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_item    jsonb;
  v_name    text;
  v_problem text := coalesce(raw_ops.fn_too_long('lab_name', p_lab_name, 200),
                             raw_ops.fn_too_long('certificate_reference', p_certificate_reference, 200));
begin
  if v_problem is not null then return v_problem; end if;
  if trim(coalesce(p_lab_name, '')) = '' then return 'lab_name is required'; end if;
  if trim(coalesce(p_certificate_reference, '')) = '' then return 'certificate_reference is required'; end if;
  if p_analysis_date is null then return 'analysis_date is required'; end if;
  if p_analysis_date < p_batch.produced_at then
    return format('analysis_date %s lies before the production date %s', p_analysis_date, p_batch.produced_at);
  end if;
  -- Fourteen hours: it is not that day yet anywhere on earth.
  if p_analysis_date > ((onceward.now() + interval '14 hours') at time zone 'UTC')::date then
    return format('analysis_date %s lies in the future', p_analysis_date);
  end if;
  if jsonb_typeof(p_results) is distinct from 'array' or jsonb_array_length(p_results) not between 1 and 50 then
    return 'results must be a list of 1 to 50 results';
  end if;
  for v_item in select g from jsonb_array_elements(p_results) as g loop
    if jsonb_typeof(v_item) <> 'object' then return 'each result must be an object'; end if;
    v_name := v_item ->> 'parameter';
    if not exists (select from raw_ops.lab_parameters as l where l.parameter = v_name) then
      return format('parameter %s is not known; known: %s', coalesce(quote_literal(left(v_name, 60)), 'null'),
                    (select string_agg(l.parameter, ', ' order by l.place) from raw_ops.lab_parameters as l));
    end if;
    if jsonb_typeof(v_item -> 'passed') is distinct from 'boolean' then
      return format('passed of %s must be true or false', v_name);
    end if;
    if trim(coalesce(v_item ->> 'method', '')) = '' or trim(coalesce(v_item ->> 'result', '')) = ''
       or trim(coalesce(v_item ->> 'limit', '')) = '' then
      return format('method, result and limit of %s are required', v_name);
    end if;
    v_problem := coalesce(raw_ops.fn_too_long('method of ' || v_name, v_item ->> 'method', 200),
                          raw_ops.fn_too_long('result of ' || v_name, v_item ->> 'result', 200),
                          raw_ops.fn_too_long('limit of ' || v_name, v_item ->> 'limit', 200));
    if v_problem is not null then return v_problem; end if;
    if length(v_item::text) > 2000 then return format('result of %s is too long', v_name); end if;
    if (v_item -> 'passed')::boolean and raw_ops.fn_exceeds_limit(v_item ->> 'result', v_item ->> 'limit') then
      return format('%s of %s is more than the limit %s, and cannot have passed', v_item ->> 'result', v_name, v_item ->> 'limit');
    end if;
    if (v_item -> 'passed')::boolean and raw_ops.fn_was_found(v_item ->> 'result', v_item ->> 'limit') then
      return format('%s of %s is not %s, and cannot have passed', v_item ->> 'result', v_name, v_item ->> 'limit');
    end if;
  end loop;
  if (select count(distinct g ->> 'parameter') from jsonb_array_elements(p_results) as g) < jsonb_array_length(p_results) then
    return 'a parameter is named twice';
  end if;
  return null;
end;
$$;

-- Which results a batch lacks, and which it failed.
create or replace function raw_ops.fn_release_verdict(p_batch_id uuid)
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  with current_results as (
    select r.parameter, r.passed from raw_ops.lab_results as r where r.batch_id = p_batch_id and r.superseded_at is null
  ), verdict as (
    select array(select l.parameter from raw_ops.lab_parameters as l
                  where l.is_required and not exists (select from current_results as r where r.parameter = l.parameter)
                  order by l.place) as missing,
           array(select r.parameter from current_results as r where not r.passed order by r.parameter) as failed,
           (select count(*) from current_results) as results
  )
  select jsonb_build_object('can_be_released', v.results > 0 and cardinality(v.missing) = 0 and cardinality(v.failed) = 0,
                            'missing_results', to_jsonb(v.missing), 'failed_results', to_jsonb(v.failed))
    from verdict as v
$$;

create or replace function raw_ops.fn_release_batch_v1(p_batch_id uuid, p_note text default null)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_batch   raw_ops.batches;
  v_verdict jsonb;
begin
  select * into v_batch from raw_ops.batches as b where b.id = p_batch_id for update;
  if not found then
    return raw_ops.fn_refusal('Batch not found');
  end if;
  if v_batch.status <> 'QA_HOLD' then
    return raw_ops.fn_refusal('Only a batch in QA_HOLD can be released. Current status: ' || v_batch.status);
  end if;
  if length(p_note) > 2000 then
    return raw_ops.fn_refusal(raw_ops.fn_too_long('note', p_note, 2000));
  end if;
  v_verdict := raw_ops.fn_release_verdict(p_batch_id);
  if not (v_verdict -> 'can_be_released')::boolean then
    return raw_ops.fn_refusal('Cannot release: the lab results do not allow it', v_verdict || jsonb_build_object('batch_code', v_batch.batch_code));
  end if;
  perform raw_ops.fn_set_status(v_batch, 'RELEASED', coalesce(nullif(trim(p_note), ''), 'All required results have passed'));
  return jsonb_build_object('success', true, 'batch_code', v_batch.batch_code, 'public_batch_id', v_batch.public_batch_id, 'status', 'RELEASED');
end;
$$;
comment on function raw_ops.fn_release_batch_v1(uuid, text) is
  'Releases a batch in QA_HOLD whose required results are there and all of whose results have passed.  Else it says what is missing.';

create or replace function raw_ops.fn_reject_batch_v1(p_batch_id uuid, p_reason text)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_batch raw_ops.batches;
begin
  select * into v_batch from raw_ops.batches as b where b.id = p_batch_id for update;
  if not found then
    return raw_ops.fn_refusal('Batch not found');
  end if;
  if trim(coalesce(p_reason, '')) = '' then
    return raw_ops.fn_refusal('reason is required');
  end if;
  if length(p_reason) > 2000 then
    return raw_ops.fn_refusal(raw_ops.fn_too_long('reason', p_reason, 2000));
  end if;
  if v_batch.status = 'REJECTED' then
    return raw_ops.fn_refusal('Batch is already rejected');
  end if;
  perform raw_ops.fn_set_status(v_batch, 'REJECTED', trim(p_reason));
  return jsonb_build_object('success', true, 'batch_code', v_batch.batch_code, 'status', 'REJECTED',
                            'recalled', v_batch.status = 'RELEASED');
end;
$$;
comment on function raw_ops.fn_reject_batch_v1(uuid, text) is
  'Rejects a batch in QA_HOLD, or recalls a released one.  Final.';

create or replace function raw_ops.fn_set_status(p_batch raw_ops.batches, p_status text, p_reason text)
  returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- For the trigger that writes the history; of this transaction only.
  perform set_config('raw_ops.reason', p_reason, true);
  update raw_ops.batches as b
     set status = p_status, updated_at = onceward.now(),
         released_at = case when p_status = 'RELEASED' then onceward.now() else b.released_at end
   where b.id = p_batch.id;
  perform set_config('raw_ops.reason', '', true);
  perform raw_ops.fn_log_event('batch', p_batch.id, case when p_status = 'REJECTED' then 'WARNING' else 'INFO' end,
    format('Batch %s: %s → %s', p_batch.batch_code, p_batch.status, p_status),
    jsonb_build_object('batch_code', p_batch.batch_code, 'old_status', p_batch.status, 'new_status', p_status, 'reason', p_reason));
  perform raw_ops.fn_audit('proof.batch_' || lower(p_status), p_batch.batch_code, p_reason,
    jsonb_build_object('status', p_batch.status), jsonb_build_object('status', p_status));
end;
$$;
