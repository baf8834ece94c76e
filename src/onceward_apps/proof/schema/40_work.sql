-- What a program calls that works proof jobs in SQL, beside or instead of Onceward's worker.
-- A claim is a lease of five minutes on the engine's job.  Every later call names it: by p_epoch, or else by the last claim
-- that was made here, so that a report about a job which a worker has taken over meanwhile is refused.
-- Where raw_ops.proof_jobs is read, jit is off: with its subqueries over partitions it seems dear, and compiling it takes
-- seconds where running it takes milliseconds.

create or replace function raw_ops.fn_claim_proof_jobs_v1(p_limit integer default 10)
  returns setof raw_ops.proof_jobs
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_worker uuid;
  v_given  uuid[];
begin
  if p_limit is null or p_limit not between 1 and 100 then
    raise exception 'p_limit must be between 1 and 100, got %', coalesce(p_limit::text, 'null') using errcode = 'OW008';
  end if;
  -- Where no worker runs, nobody else takes back what a dead program held.
  perform onceward.rescue(100, false);
  if not exists (select from onceward.jobs as j
                  where j.lane = 'proof' and (j.state = 'ready' or (j.state = 'scheduled' and j.run_at <= onceward.now()))) then
    return;
  end if;
  v_worker := onceward.register_worker('proof program', array['proof'], p_lease => interval '5 minutes', p_host => 'sql',
                                       p_pid => pg_backend_pid(), p_concurrency => p_limit);
  with claimed as materialized (
    select c.job_id, c.epoch from onceward.claim(v_worker, array['proof'], p_limit) as c
     where c.task = 'proof.generate'
  )
  insert into raw_ops.proof_claims as k (job_id, epoch, worker_id, claimed_at, claimed_by)
  select c.job_id, c.epoch, v_worker, onceward.now(), onceward.caller() from claimed as c
   -- Once the ledger has the email, only a worker may go on: a program would send another one.
   where not exists (select from onceward.steps as s where s.job_id = c.job_id and s.name = 'email_entered' and s.state = 'done')
      on conflict (job_id) do update
     set epoch = excluded.epoch, worker_id = excluded.worker_id, claimed_at = excluded.claimed_at, claimed_by = excluded.claimed_by;
  v_given := array(select k.job_id from raw_ops.proof_claims as k where k.worker_id = v_worker);
  -- What was claimed and is not given out goes back, and uses up no attempt.
  perform onceward.release(v_worker, array_agg(j.id))
     from onceward.jobs as j
    where j.worker_id = v_worker and j.state = 'running' and j.id <> all (v_given)
   having count(*) > 0;
  if cardinality(v_given) = 0 then
    perform onceward.retire_worker(v_worker);
  end if;
  return query select * from raw_ops.proof_jobs as p where p.id = any (v_given) order by p.created_at, p.id;
end;
$$;
comment on function raw_ops.fn_claim_proof_jobs_v1(integer) is
  'Claims up to p_limit proof jobs for five minutes and returns them.  An attempt is counted here.  Claim what can be worked on now, and renew with fn_heartbeat_proof_jobs_v1.';

create or replace function raw_ops.fn_heartbeat_proof_jobs_v1(p_job_ids uuid[])
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_worker uuid;
  v_count  integer := 0;
begin
  for v_worker in
    select distinct k.worker_id from raw_ops.proof_claims as k where k.job_id = any (p_job_ids) order by 1
  loop
    begin
      perform onceward.heartbeat(v_worker);
      v_count := v_count + (select count(*) from onceward.jobs as j
                             where j.worker_id = v_worker and j.state = 'running' and j.id = any (p_job_ids));
    exception
      when sqlstate 'OW009' then null;  -- its lease is over: not counted
    end;
  end loop;
  return v_count;
end;
$$;
comment on function raw_ops.fn_heartbeat_proof_jobs_v1(uuid[]) is
  'Renews the five minutes of these claimed jobs.  Returns how many are still held; stop working on the others.';

-- The epoch under which a call speaks: what the caller names, or that of the last claim made in SQL.
create or replace function raw_ops.fn_claim_epoch(p_job_id uuid, p_epoch bigint)
  returns bigint
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(p_epoch, (select k.epoch from raw_ops.proof_claims as k where k.job_id = p_job_id))
$$;

create or replace function raw_ops.fn_holds(p_job_id uuid, p_epoch bigint)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from onceward.jobs as j where j.id = p_job_id and j.state = 'running' and j.epoch = p_epoch)
$$;

-- The claim has ended; its lease goes when nothing else is held under it.
create or replace function raw_ops.fn_end_claim(p_job_id uuid)
  returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_worker uuid;
begin
  delete from raw_ops.proof_claims as k where k.job_id = p_job_id returning k.worker_id into v_worker;
  if found and not exists (select from raw_ops.proof_claims as k where k.worker_id = v_worker) then
    perform onceward.retire_worker(v_worker);
  end if;
end;
$$;

-- Steps of the batch's job that the caller holds.  Null when nobody works on it: then a person sets the assets.
create or replace function raw_ops.fn_steps_reported(p_batch_id uuid, p_epoch bigint, p_steps text[], p_url text)
  returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job   uuid;
  v_epoch bigint;
  v_step  text;
begin
  select l.job_id, raw_ops.fn_claim_epoch(l.job_id, p_epoch) into v_job, v_epoch
    from raw_ops.proof_job_links as l where l.batch_id = p_batch_id;
  if p_epoch is null and not exists (select from onceward.jobs as j where j.id = v_job and j.state = 'running') then
    return null;
  end if;
  if v_epoch is null or not raw_ops.fn_holds(v_job, v_epoch) then
    return 'Another worker has this job';
  end if;
  foreach v_step in array p_steps loop
    -- Checks the lease again, under a lock.
    perform onceward.finish_step(v_job, v_epoch, v_step, to_jsonb(p_url));
  end loop;
  return null;
end;
$$;

create or replace function raw_ops.fn_set_batch_qr_assets_v1(
  p_batch_id uuid, p_qr_image_url text, p_proof_url text, p_epoch bigint default null
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_code    text;
  v_problem text;
begin
  if coalesce(p_qr_image_url, '') = '' or coalesce(p_proof_url, '') = '' then
    return raw_ops.fn_refusal('qr_image_url and proof_url are required');
  end if;
  select b.batch_code into v_code from raw_ops.batches as b where b.id = p_batch_id;
  if not found then
    return raw_ops.fn_refusal('Batch not found');
  end if;
  v_problem := raw_ops.fn_steps_reported(p_batch_id, p_epoch, array['qr_generated', 'qr_uploaded'], p_qr_image_url);
  if v_problem is not null then
    return raw_ops.fn_refusal(v_problem);
  end if;
  update raw_ops.batches as b
     set qr_image_url = p_qr_image_url, proof_url = p_proof_url, updated_at = onceward.now()
   where b.id = p_batch_id and (b.qr_image_url, b.proof_url) is distinct from (p_qr_image_url, p_proof_url);
  if found then
    perform raw_ops.fn_log_event('batch', p_batch_id, 'INFO', 'QR assets set for batch ' || v_code,
      jsonb_build_object('batch_code', v_code, 'qr_image_url', p_qr_image_url, 'proof_url', p_proof_url));
  end if;
  return jsonb_build_object('success', true, 'batch_code', v_code);
end;
$$;
comment on function raw_ops.fn_set_batch_qr_assets_v1(uuid, text, text, bigint) is
  'Sets where the QR code of a batch lies, and with it the steps qr_generated and qr_uploaded of the job that the caller holds.  Refused when another worker holds it; allowed when nobody does.';

create or replace function raw_ops.fn_set_batch_label_asset_v1(p_batch_id uuid, p_label_pdf_url text, p_epoch bigint default null)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_code    text;
  v_problem text;
begin
  if coalesce(p_label_pdf_url, '') = '' then
    return raw_ops.fn_refusal('label_pdf_url is required');
  end if;
  select b.batch_code into v_code from raw_ops.batches as b where b.id = p_batch_id;
  if not found then
    return raw_ops.fn_refusal('Batch not found');
  end if;
  v_problem := raw_ops.fn_steps_reported(p_batch_id, p_epoch, array['label_generated', 'label_uploaded'], p_label_pdf_url);
  if v_problem is not null then
    return raw_ops.fn_refusal(v_problem);
  end if;
  update raw_ops.batches as b
     set label_pdf_url = p_label_pdf_url, label_texts = raw_ops.fn_label_texts(b), updated_at = onceward.now()
   where b.id = p_batch_id and b.label_pdf_url is distinct from p_label_pdf_url;
  if found then
    perform raw_ops.fn_log_event('batch', p_batch_id, 'INFO', 'Label PDF set for batch ' || v_code,
      jsonb_build_object('batch_code', v_code, 'label_pdf_url', p_label_pdf_url));
  end if;
  return jsonb_build_object('success', true, 'batch_code', v_code);
end;
$$;
comment on function raw_ops.fn_set_batch_label_asset_v1(uuid, text, bigint) is
  'Sets where the label of a batch lies, and with it the steps label_generated and label_uploaded, as fn_set_batch_qr_assets_v1 does.';

-- Between drawing and storing: whoever goes on after a crash draws the same label again, whatever was changed meanwhile.
create or replace function raw_ops.fn_keep_label_texts_v1(p_batch_id uuid, p_texts jsonb)
  returns void
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  update raw_ops.batches as b
     set label_texts = p_texts, updated_at = onceward.now()
   where b.id = p_batch_id and b.label_texts is null
$$;
comment on function raw_ops.fn_keep_label_texts_v1(uuid, jsonb) is
  'Keeps what product and brand said when the label of a batch was drawn; the first call counts.';

create or replace function raw_ops.fn_finalize_proof_job_v1(
  p_job_id uuid, p_qr_image_url text, p_label_pdf_url text, p_processing_duration_ms integer, p_epoch bigint default null
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_epoch   bigint := raw_ops.fn_claim_epoch(p_job_id, p_epoch);
  v_job     raw_ops.proof_jobs;
  v_code    text;
  v_missing text[];
begin
  select * into v_job from raw_ops.proof_jobs as p where p.id = p_job_id;
  select b.batch_code into v_code from raw_ops.batches as b where b.id = v_job.batch_id;
  -- The repetition of a call whose reply was lost.
  if v_job.state = 'done' and p_epoch = v_job.epoch then
    return jsonb_build_object('success', true, 'batch_code', v_code);
  end if;
  if not coalesce(raw_ops.fn_holds(p_job_id, v_epoch), false) then
    return raw_ops.fn_refusal('Job not found or not in claimed state');
  end if;
  -- A step that nobody has reported has not run.  The email has no function of its own in the contract: the last
  -- thing before this call, it is reported by it.
  v_missing := array(select f.name from (values ('qr_generated', v_job.qr_generated), ('qr_uploaded', v_job.qr_uploaded),
    ('label_generated', v_job.label_generated), ('label_uploaded', v_job.label_uploaded)) as f (name, is_done) where not f.is_done);
  if cardinality(v_missing) > 0 then
    return raw_ops.fn_refusal('Steps not done: ' || array_to_string(v_missing, ', '),
                              jsonb_build_object('missing_steps', to_jsonb(v_missing), 'batch_code', v_code));
  end if;
  perform onceward.finish_step(p_job_id, v_epoch, 'email_sent', to_jsonb('reported by finalize'::text));
  perform onceward.complete(p_job_id, v_epoch, jsonb_build_object('qr_image_url', p_qr_image_url,
    'label_pdf_url', p_label_pdf_url, 'processing_duration_ms', greatest(p_processing_duration_ms, 0)));
  update raw_ops.batches as b
     set qr_image_url = coalesce(p_qr_image_url, b.qr_image_url), label_pdf_url = coalesce(p_label_pdf_url, b.label_pdf_url),
         updated_at = onceward.now()
   where b.id = v_job.batch_id;
  perform raw_ops.fn_end_claim(p_job_id);
  return jsonb_build_object('success', true, 'batch_code', v_code);
end;
$$;
comment on function raw_ops.fn_finalize_proof_job_v1(uuid, text, text, integer, bigint) is
  'Ends a claimed proof job as done, and reports that its email was sent.  Refused when the claim is over, or when a step before the email was not reported.';

-- One step of a claimed job, for programs that report each by itself: the email, above all, right after it was sent.
create or replace function raw_ops.fn_record_proof_step_v1(p_job_id uuid, p_step text, p_epoch bigint default null)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_epoch bigint := raw_ops.fn_claim_epoch(p_job_id, p_epoch);
begin
  if p_step is null or p_step not in ('qr_generated', 'qr_uploaded', 'label_generated', 'label_uploaded', 'email_sent') then
    return raw_ops.fn_refusal('step must be qr_generated, qr_uploaded, label_generated, label_uploaded or email_sent');
  end if;
  if not coalesce(raw_ops.fn_holds(p_job_id, v_epoch), false) then
    return raw_ops.fn_refusal('Job not found or not in claimed state');
  end if;
  perform onceward.finish_step(p_job_id, v_epoch, p_step, to_jsonb('reported by a program'::text));
  return jsonb_build_object('success', true);
end;
$$;
comment on function raw_ops.fn_record_proof_step_v1(uuid, text, bigint) is 'Records that one of the five steps of a claimed job is done.';

create or replace function raw_ops.fn_mark_proof_job_failed_v1(
  p_job_id uuid, p_error text, p_error_category text default 'unknown', p_step_progress jsonb default '{}', p_epoch bigint default null
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_epoch bigint := raw_ops.fn_claim_epoch(p_job_id, p_epoch);
  v_job   raw_ops.proof_jobs;
  v_state text;
  v_step  text;
  -- A failure is always recorded, whatever its reporter calls it.
  v_category text := raw_ops.fn_error_category(jsonb_build_object('category', p_error_category));
begin
  select * into v_job from raw_ops.proof_jobs as p where p.id = p_job_id;
  if not found then
    return raw_ops.fn_refusal('Job not found');
  end if;
  if not coalesce(raw_ops.fn_holds(p_job_id, v_epoch), false) then
    return raw_ops.fn_refusal('Job is not claimed by the caller. Current state: ' || v_job.state);
  end if;
  for v_step in
    select s.key from jsonb_each(case when jsonb_typeof(p_step_progress) = 'object' then p_step_progress else '{}' end) as s
     where s.value = 'true'
       and s.key in ('qr_generated', 'qr_uploaded', 'label_generated', 'label_uploaded', 'email_sent')
     order by s.key
  loop
    perform onceward.finish_step(p_job_id, v_epoch, v_step, to_jsonb('reported by a program'::text));
  end loop;
  select f.state into v_state
    from onceward.fail(p_job_id, v_epoch, 'ProofJobFailed', coalesce(p_error, 'no reason given'), v_category) as f;
  perform raw_ops.fn_end_claim(p_job_id);
  return jsonb_build_object('success', true,
    'new_state', case when v_state = 'dead_letter' then 'dead_letter' else 'failed' end,
    'attempts', v_job.attempts, 'max_attempts', v_job.max_attempts, 'alert_needed', v_state = 'dead_letter',
    'alert_config', case when v_state = 'dead_letter' then raw_ops.fn_dead_letter_alert(p_job_id) end);
end;
$$;
comment on function raw_ops.fn_mark_proof_job_failed_v1(uuid, text, text, jsonb, bigint) is
  'Records the failure of a claimed proof job: it is tried again in 30 seconds, or is a dead letter after 5 attempts, and then alert_config says what to tell whom.  A late report is refused.';

-- What to tell whom about a dead letter.
create or replace function raw_ops.fn_dead_letter_alert(p_job_id uuid)
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select jsonb_build_object('channel', 'ops-urgent', 'severity', 'critical', 'title', 'Proof Job Dead Letter: ' || b.batch_code,
    'message', format('Proof generation failed after %s attempt%s. Manual intervention required.', p.attempts, case when p.attempts <> 1 then 's' end),
    'fields', jsonb_build_array(
      jsonb_build_object('label', 'Batch', 'value', b.batch_code, 'inline', true),
      jsonb_build_object('label', 'Attempts', 'value', p.attempts::text, 'inline', true),
      jsonb_build_object('label', 'Error', 'value', left(p.last_error, 200), 'inline', false),
      jsonb_build_object('label', 'Category', 'value', p.error_category, 'inline', true)))
    from raw_ops.proof_jobs as p join raw_ops.batches as b on b.id = p.batch_id
   where p.id = p_job_id
$$;
