-- Who may do what.  The state afterwards is the whole truth.
-- The engine's roles carry over: producers begin runs, workers run them, operators decide, auditors read.

revoke all on schema alerts from public, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
revoke all on all tables in schema alerts from public, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
revoke all on all functions in schema alerts from public, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant usage on schema alerts to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;

grant select on all tables in schema alerts to onceward_worker, onceward_operator, onceward_auditor;
-- Whoever calls a function over HTTP sees what became of it.
grant select on alerts.tenants, alerts.runs, alerts.job_runs, alerts.sync_errors to onceward_producer;
-- What the synchronisations write.
grant insert, update, delete on alerts.metric_definitions, alerts.metric_values, alerts.orders, alerts.customer_profiles,
                                alerts.sync_cursors to onceward_worker;
-- What people set.  Rules are changed by functions, which write down who has changed what.
grant insert, update, delete on alerts.metric_definitions, alerts.metric_values, alerts.sync_sources to onceward_operator;

grant execute on function alerts.tenant_id to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function alerts.acting_tenant, alerts.window_at, alerts.begin_function, alerts.has_alert to onceward_producer, onceward_worker, onceward_operator;
grant execute on function alerts.plan_schedules to onceward_worker, onceward_operator;
grant execute on function alerts.detect, alerts.make_cards, alerts.measure_outcomes, alerts.reserve_notifications,
                          alerts.note_deliveries, alerts.tidy_runs to onceward_worker;
grant execute on function alerts.add_tenant, alerts.settle_alert, alerts.move_card, alerts.retry_run, alerts.resolve_run to onceward_operator;
grant execute on function alerts.save_rule, alerts.enable_rule to onceward_operator;
grant execute on function alerts.preview_rule to onceward_operator, onceward_auditor;
grant execute on function alerts.shown to onceward_worker, onceward_operator, onceward_auditor;

-- Row-level security: the rows of the tenant of the transaction.  None set: none.  '*': all, for those who may.
do $$
declare
  v_table text;
begin
  for v_table in
    select c.relname from pg_catalog.pg_class as c where c.relnamespace = 'alerts'::regnamespace and c.relkind = 'r'
  loop
    execute format('alter table alerts.%I enable row level security, force row level security', v_table);
    execute format('drop policy if exists owner_all on alerts.%I', v_table);
    execute format('create policy owner_all on alerts.%I to onceward_owner using (true) with check (true)', v_table);
    execute format('drop policy if exists own_tenant on alerts.%I', v_table);
    execute format('create policy own_tenant on alerts.%I to onceward_producer, onceward_worker, onceward_operator, onceward_auditor '
                   'using (%I = (select alerts.tenant_id()) or (select onceward.sees_all_tenants())) '
                   'with check (%I = (select alerts.tenant_id()) or (select onceward.sees_all_tenants()))',
                   v_table, case v_table when 'tenants' then 'id' else 'tenant_id' end, case v_table when 'tenants' then 'id' else 'tenant_id' end);
  end loop;
end;
$$;

-- Supabase's backend role runs the application.
do $$
begin
  if exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
    grant onceward_producer, onceward_worker, onceward_operator to service_role;
  end if;
exception
  when insufficient_privilege then null;  -- an administrator grants them
end;
$$;
reset role;
