-- Who may do what.  The state afterwards is the whole truth.
-- anon: nothing.  authenticated: reads what the user of the token has access to.  service_role: calls, and reads everything.

revoke all on schema intake from public, anon, authenticated, service_role;
revoke all on all tables in schema intake from public, anon, authenticated, service_role;
revoke all on all sequences in schema intake from public, anon, authenticated, service_role;
revoke all on all functions in schema intake from public, anon, authenticated, service_role;
grant usage on schema intake to authenticated, service_role;
-- Policies and views call functions with the reader's rights.
grant usage on schema onceward to authenticated, service_role;
grant execute on function onceward.caller, onceward.now to authenticated, service_role;
grant execute on function onceward.limit_levels to service_role;

do $$
declare
  v_table text;
begin
  for v_table in
    select c.relname from pg_catalog.pg_class as c where c.relnamespace = 'intake'::regnamespace and c.relkind = 'r'
  loop
    execute format('alter table intake.%I enable row level security, force row level security', v_table);
    execute format('drop policy if exists owner_all on intake.%I', v_table);
    execute format('create policy owner_all on intake.%I to onceward_owner using (true) with check (true)', v_table);
    execute format('drop policy if exists service_reads on intake.%I', v_table);
    execute format('create policy service_reads on intake.%I for select to service_role using (true)', v_table);
    execute format('grant select on intake.%I to service_role', v_table);
  end loop;
  -- By profile, everywhere: the same rule for each table that has a person's data (H11).
  foreach v_table in array array['shell_files', 'file_pages', 'ocr_words', 'document_entities', 'clinical_facts', 'timeline_entries'] loop
    execute format('grant select on intake.%I to authenticated', v_table);
    execute format('drop policy if exists own_profiles on intake.%I', v_table);
    execute format('create policy own_profiles on intake.%I for select to authenticated '
                   'using (intake.has_profile_access((select intake.uid()), patient_id))', v_table);
  end loop;
  foreach v_table in array array['user_usage_tracking', 'usage_events'] loop
    execute format('grant select on intake.%I to authenticated', v_table);
    execute format('drop policy if exists own_profiles on intake.%I', v_table);
    execute format('create policy own_profiles on intake.%I for select to authenticated '
                   'using (intake.has_profile_access((select intake.uid()), profile_id))', v_table);
  end loop;
end;
$$;

grant select on intake.user_profiles, intake.profile_access, intake.subscription_plans to authenticated;
drop policy if exists own_profiles on intake.user_profiles;
create policy own_profiles on intake.user_profiles for select to authenticated
  using (intake.has_profile_access((select intake.uid()), id));
-- Those who were given access, and the owner, who gave it.
drop policy if exists own_access on intake.profile_access;
create policy own_access on intake.profile_access for select to authenticated
  using (user_id = (select intake.uid())
         or exists (select from intake.user_profiles as p where p.id = profile_id and p.account_owner_id = (select intake.uid())));
drop policy if exists everybody_reads on intake.subscription_plans;
create policy everybody_reads on intake.subscription_plans for select to authenticated using (is_active);

grant select on intake.audit_log, intake.job_queue, intake.api_rate_limits to service_role;
grant execute on function intake.uid, intake.is_admin, intake.is_service_role, intake.has_profile_access to authenticated, service_role;

grant execute on function
  intake.enqueue_job_v3, intake.claim_next_job_v3, intake.update_job_heartbeat, intake.complete_job, intake.reschedule_job, intake.fail_job,
  intake.acquire_api_capacity, intake.release_api_capacity, intake.log_audit_event, intake.track_shell_file_upload_usage,
  intake.track_ai_processing_usage, intake.get_user_usage_status, intake.get_profile_audit, intake.may_upload, intake.accept_upload, intake.orphans_among,
  intake.begin_file, intake.refuse_file, intake.store_page, intake.finish_ocr, intake.record_processing_error, intake.reconcile_files,
  intake.enqueue_pass, intake.read_document, intake.store_classification, intake.store_facts, intake.read_facts, intake.store_timeline,
  intake.configure, intake.use_link, intake.create_profile, intake.share_profile, intake.service_levels, intake.missed_checks, intake.declare_limits, intake.job_types, intake.is_enabled, intake.setting_number, intake.as_uuid, intake.job_status
   to service_role;

reset role;

-- The views of the engine's data are read with the reader's rights, and under its rule for tenants.
do $$
begin
  if not pg_catalog.pg_has_role('service_role', 'onceward_operator', 'usage') or not pg_catalog.pg_has_role('service_role', 'onceward_worker', 'usage') then
    grant onceward_producer, onceward_worker, onceward_operator to service_role;
  end if;
exception
  when insufficient_privilege then
    raise notice 'could not grant the engine''s roles to service_role: an administrator has to run "grant onceward_producer, onceward_worker, onceward_operator to service_role"';
  -- Two installers at once: the first one wins.
  when duplicate_object or unique_violation or internal_error then null;
end;
$$;
