-- What operators do with a job that gave up, and what the worker does about its email.

create or replace function raw_ops.fn_missing_assets(p_batch_id uuid)
  returns text[]
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_batch   raw_ops.batches;
  v_missing text[] := '{}';
begin
  select * into v_batch from raw_ops.batches as b where b.id = p_batch_id;
  if v_batch.qr_image_url is null then v_missing := array_append(v_missing, 'qr_image_url'); end if;
  if v_batch.label_pdf_url is null then v_missing := array_append(v_missing, 'label_pdf_url'); end if;
  if v_batch.proof_url is null then v_missing := array_append(v_missing, 'proof_url'); end if;
  return v_missing;
end;
$$;

-- The engine asks this before any resolution, also from its own CLI and pages.
create or replace function raw_ops.fn_check_before_resolve(p_job_id uuid)
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select 'batch is missing ' || array_to_string(m.assets, ', ')
    from raw_ops.proof_job_links as l
   cross join lateral (select raw_ops.fn_missing_assets(l.batch_id) as assets) as m
   where l.job_id = p_job_id and cardinality(m.assets) > 0
$$;
select onceward.set_resolve_check('proof.generate', 'raw_ops.fn_check_before_resolve(uuid)'::regprocedure);

-- Null, or why the engine refused: somebody else was faster.
create or replace function raw_ops.fn_engine_resolve(p_job_id uuid, p_note text, p_override boolean)
  returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := raw_ops.fn_be_tenant('default');
  v_error  text;
begin
  begin
    perform onceward.resolve(p_job_id, p_note, p_override);
  exception
    when sqlstate 'OW007' then v_error := sqlerrm;
  end;
  perform raw_ops.fn_be_tenant(v_tenant);
  return v_error;
end;
$$;

create or replace function raw_ops.fn_engine_requeue(p_job_id uuid)
  returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := raw_ops.fn_be_tenant('default');
  v_error  text;
begin
  begin
    perform onceward.requeue(p_job_id);
  exception
    when sqlstate 'OW007' then v_error := sqlerrm;
  end;
  perform raw_ops.fn_be_tenant(v_tenant);
  return v_error;
end;
$$;

create or replace function raw_ops.fn_resolve_proof_job_manually_v1(
  p_job_id uuid, p_resolution_note text, p_skip_asset_check boolean default false
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_state   text;
  v_batch   uuid;
  v_code    text;
  v_missing text[];
  v_error   text;
begin
  -- Whoever decides second sees what the first has decided.
  perform from raw_ops.proof_job_links as l where l.job_id = p_job_id for update;
  select p.state, p.batch_id, b.batch_code into v_state, v_batch, v_code
    from raw_ops.proof_jobs as p join raw_ops.batches as b on b.id = p.batch_id
   where p.id = p_job_id;
  if not found then
    return raw_ops.fn_refusal('Job not found');
  end if;
  if v_state <> 'dead_letter' then
    return raw_ops.fn_refusal('Only dead_letter jobs can be manually resolved. Current state: ' || v_state);
  end if;
  if trim(coalesce(p_resolution_note, '')) = '' then
    return raw_ops.fn_refusal('resolution_note must say how the job was settled');
  end if;
  if length(p_resolution_note) > 2000 then
    return raw_ops.fn_refusal(raw_ops.fn_too_long('resolution_note', p_resolution_note, 2000));
  end if;
  v_missing := raw_ops.fn_missing_assets(v_batch);
  if cardinality(v_missing) > 0 and not coalesce(p_skip_asset_check, false) then
    return raw_ops.fn_refusal('Cannot resolve: batch is missing assets. Use p_skip_asset_check := true to override.',
                              jsonb_build_object('missing_assets', to_jsonb(v_missing), 'batch_code', v_code));
  end if;
  v_error := raw_ops.fn_engine_resolve(p_job_id, p_resolution_note, coalesce(p_skip_asset_check, false));
  if v_error is not null then
    return raw_ops.fn_refusal('Only dead_letter jobs can be manually resolved: ' || v_error);
  end if;
  perform raw_ops.fn_audit('proof.job_resolved', v_code, p_resolution_note, jsonb_build_object('state', v_state),
    jsonb_build_object('state', 'resolved_manual', 'asset_check_skipped', coalesce(p_skip_asset_check, false), 'missing_assets', to_jsonb(v_missing)));
  return jsonb_build_object('success', true, 'batch_code', v_code, 'resolved', true);
end;
$$;
comment on function raw_ops.fn_resolve_proof_job_manually_v1(uuid, text, boolean) is
  'Settles a dead letter by hand.  Refused while the batch lacks an asset, unless p_skip_asset_check; the note and the override are in the audit trail.';

create or replace function raw_ops.fn_requeue_proof_job_v1(p_job_id uuid, p_note text)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_state text;
  v_batch uuid;
  v_code  text;
  v_error text;
begin
  perform from raw_ops.proof_job_links as l where l.job_id = p_job_id for update;
  select p.state, p.batch_id, b.batch_code into v_state, v_batch, v_code
    from raw_ops.proof_jobs as p join raw_ops.batches as b on b.id = p.batch_id
   where p.id = p_job_id;
  if not found then
    return raw_ops.fn_refusal('Job not found');
  end if;
  if trim(coalesce(p_note, '')) = '' then
    return raw_ops.fn_refusal('note must say what has changed');
  end if;
  if length(p_note) > 2000 then
    return raw_ops.fn_refusal(raw_ops.fn_too_long('note', p_note, 2000));
  end if;
  if v_state <> 'dead_letter' then
    return raw_ops.fn_refusal('Only dead_letter jobs can be requeued. Current state: ' || v_state);
  end if;
  v_error := raw_ops.fn_engine_requeue(p_job_id);
  if v_error is not null then
    return raw_ops.fn_refusal('Only dead_letter jobs can be requeued: ' || v_error);
  end if;
  -- An email that was given up is tried afresh with it.
  perform raw_ops.fn_engine_requeue(d.id)
     from onceward.deliveries as d
    where d.id = raw_ops.fn_email_id(v_batch) and d.state = 'abandoned';
  perform raw_ops.fn_log_event('proof_job', v_batch, 'INFO', 'Proof job requeued',
    jsonb_build_object('batch_code', v_code, 'job_id', p_job_id, 'previous_state', v_state, 'note', p_note));
  perform raw_ops.fn_audit('proof.job_requeued', v_code, p_note, jsonb_build_object('state', v_state), jsonb_build_object('state', 'queued'));
  return jsonb_build_object('success', true, 'batch_code', v_code, 'new_state', 'queued');
end;
$$;
comment on function raw_ops.fn_requeue_proof_job_v1(uuid, text) is
  'Runs a dead letter again with fresh attempts; finished steps stay finished.  The note is in the audit trail.';

-- The batch's email in the ledger: the result of the step that has put it there.
create or replace function raw_ops.fn_email_id(p_batch_id uuid)
  returns uuid
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select (s.result #>> '{}')::uuid
    from raw_ops.proof_job_links as l
    join onceward.steps as s on s.job_id = l.job_id and s.name = 'email_entered' and s.state = 'done'
   where l.batch_id = p_batch_id
$$;

-- Asked in the transaction that enters the email: a program that worked on the job before may have sent it.
create or replace function raw_ops.fn_email_is_reported_v1(p_job_id uuid)
  returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from onceward.steps as s where s.job_id = p_job_id and s.name = 'email_sent' and s.state = 'done')
$$;
comment on function raw_ops.fn_email_is_reported_v1(uuid) is 'Whether the step email_sent of a job is done.';

-- What became of the email.  One that was given up, and could pass later, is put in line again, when p_again.
create or replace function raw_ops.fn_copacker_email_v1(p_batch_id uuid, p_again boolean default false)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_mail  record;
  v_later boolean;
begin
  select d.id, d.state, d.tries, d.category, d.message, d.provider_ref into v_mail
    from onceward.deliveries as d
   where d.id = raw_ops.fn_email_id(p_batch_id);
  if not found then
    return null;
  end if;
  -- With tries left it was refused, not worn out.
  select l.attempt >= l.max_attempts into v_later from onceward.dead_letters as l where l.id = v_mail.id;
  v_later := coalesce(v_later, false) and v_mail.state = 'abandoned';
  if v_later and p_again then
    perform raw_ops.fn_engine_requeue(v_mail.id);
  end if;
  return jsonb_build_object('delivery_id', v_mail.id, 'state', v_mail.state, 'tries', v_mail.tries, 'category', v_mail.category,
    'message', v_mail.message, 'provider_ref', v_mail.provider_ref, 'can_pass_later', v_later);
end;
$$;
comment on function raw_ops.fn_copacker_email_v1(uuid, boolean) is
  'The state of a batch''s label email in the delivery ledger; with p_again, one that was given up but could pass later is put in line again.';
