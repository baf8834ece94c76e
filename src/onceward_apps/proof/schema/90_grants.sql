-- Who may do what.  The state afterwards is the whole truth.
-- The engine's roles carry over: producers create, workers work, operators decide, auditors read; anon is the public.

revoke all on schema raw_ops from public, anon, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
revoke all on all tables in schema raw_ops from public, anon, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
revoke all on all functions in schema raw_ops from public, anon, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant usage on schema raw_ops to anon, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;

-- Row-level security on every table: the owner's functions, and nobody else unless a policy below says so.
do $$
declare
  v_table text;
begin
  for v_table in
    select c.relname from pg_catalog.pg_class as c where c.relnamespace = 'raw_ops'::regnamespace and c.relkind = 'r'
  loop
    execute format('alter table raw_ops.%I enable row level security, force row level security', v_table);
    execute format('drop policy if exists owner_all on raw_ops.%I', v_table);
    execute format('create policy owner_all on raw_ops.%I to onceward_owner using (true) with check (true)', v_table);
  end loop;
end;
$$;

-- The public: released batches, by the columns that are public.
grant select (public_batch_id, status, expiry_date, released_at, proof_url) on raw_ops.batches to anon;
drop policy if exists "Allow public read on released batches" on raw_ops.batches;
create policy "Allow public read on released batches" on raw_ops.batches for select to anon using (status = 'RELEASED');
grant select on raw_ops.public_batches, raw_ops.public_lab_results to anon;
grant execute on function raw_ops.fn_get_latest_released_batch_v1, raw_ops.fn_search_batch_v1,
  raw_ops.fn_record_proof_page_event_v1
   to anon, onceward_producer, onceward_worker, onceward_operator;

-- The company's programs and people.
grant select on raw_ops.proof_jobs, raw_ops.ops_events, raw_ops.public_batches, raw_ops.public_lab_results,
                raw_ops.proof_queue_status, raw_ops.proof_duration_trend, raw_ops.proof_failure_history,
                raw_ops.proof_partial_completions, raw_ops.proof_batch_volume, raw_ops.portal_batches
   to onceward_worker, onceward_operator, onceward_auditor;
grant select on raw_ops.batches, raw_ops.products, raw_ops.formulations, raw_ops.config, raw_ops.lab_parameters, raw_ops.lab_results,
                raw_ops.batch_status_history, raw_ops.monitoring_runs
   to onceward_operator, onceward_auditor;
do $$
declare
  v_table text;
begin
  foreach v_table in array array['batches', 'products', 'formulations', 'config', 'lab_parameters', 'lab_results',
                                 'batch_status_history', 'monitoring_runs'] loop
    execute format('drop policy if exists people_read on raw_ops.%I', v_table);
    execute format('create policy people_read on raw_ops.%I for select to onceward_operator, onceward_auditor using (true)', v_table);
  end loop;
end;
$$;
-- Readers of the views call their functions.
grant execute on function raw_ops.fn_proof_state, raw_ops.fn_error_category, raw_ops.fn_attempt_began, raw_ops.fn_duration_ms,
  raw_ops.fn_is_recalled
   to onceward_worker, onceward_operator, onceward_auditor;
grant execute on function raw_ops.fn_create_batch_v1, raw_ops.fn_create_batches_v1, raw_ops.fn_get_proof_page_v1, raw_ops.fn_get_proof_home_v1,
  raw_ops.fn_take_search_place_v1
   to onceward_producer, onceward_worker, onceward_operator;
grant execute on function raw_ops.fn_get_portal_batch_v1 to onceward_operator, onceward_auditor;
grant execute on function raw_ops.fn_get_batch_v1 to onceward_worker, onceward_operator, onceward_auditor;
grant execute on function
  raw_ops.fn_claim_proof_jobs_v1, raw_ops.fn_heartbeat_proof_jobs_v1, raw_ops.fn_set_batch_qr_assets_v1,
  raw_ops.fn_set_batch_label_asset_v1, raw_ops.fn_keep_label_texts_v1, raw_ops.fn_record_proof_step_v1, raw_ops.fn_finalize_proof_job_v1,
  raw_ops.fn_mark_proof_job_failed_v1, raw_ops.fn_enqueue_missing_proof_jobs_v1, raw_ops.fn_copacker_email_v1, raw_ops.fn_email_is_reported_v1,
  raw_ops.fn_check_proof_system_health_v2, raw_ops.fn_apply_retention_v1, raw_ops.fn_expired_labels_v1,
  raw_ops.fn_forget_label_v1, raw_ops.fn_dead_letter_alert
   to onceward_worker;
grant execute on function
  raw_ops.fn_set_batch_qr_assets_v1, raw_ops.fn_set_batch_label_asset_v1, raw_ops.fn_resolve_proof_job_manually_v1,
  raw_ops.fn_requeue_proof_job_v1, raw_ops.fn_record_lab_results_v1, raw_ops.fn_release_batch_v1, raw_ops.fn_reject_batch_v1,
  raw_ops.fn_check_proof_system_health_v2, raw_ops.fn_update_product_v1
   to onceward_operator;

-- Supabase's backend role may do everything that is documented.
do $$
begin
  if exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
    grant usage on schema raw_ops to service_role;
    grant onceward_producer, onceward_worker, onceward_operator to service_role;
  end if;
exception
  when insufficient_privilege then null;  -- an administrator grants them
end;
$$;
reset role;
