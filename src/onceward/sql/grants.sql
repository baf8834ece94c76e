-- Who may do what.  Applied after every upgrade; the state afterwards is the whole truth.

-- Nothing for PUBLIC, nothing left over from an earlier version.
revoke all on schema onceward from public;
revoke all on all tables in schema onceward from public, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
revoke all on all sequences in schema onceward from public, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
revoke all on all functions in schema onceward from public, onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
revoke all on type onceward.claimed from public;
alter default privileges for role onceward_owner revoke execute on functions from public;
grant usage on schema onceward to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;

-- Views run with the rights of the reader, so readers need to read the tables; row-level security narrows that.
grant select on onceward.jobs, onceward.attempts, onceward.lanes, onceward.workers, onceward.dead_letters,
                onceward.tasks, onceward.payload_edits, onceward.steps, onceward.partial_completions, onceward.events,
                onceward.workflows, onceward.workflow_members, onceward.dependencies,
                onceward.deliveries, onceward.delivery_private,
                onceward.job_private, onceward.archive_private, onceward.attempt_private, onceward.lane_private,
                onceward.worker_private, onceward.task_private, onceward.payload_edit_private, onceward.step_private,
                onceward.event_private,
                onceward.migration_private, onceward.code_private
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;

grant execute on function
  onceward.now, onceward.id_at, onceward.current_tenant, onceward.is_for_all, onceward.sees_all_tenants, onceward.caller, onceward.fingerprint,
  onceward.explain, onceward.explain_lane
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.enqueue, onceward.enqueue_plain, onceward.enqueue_many, onceward.enqueue_set, onceward.enqueue_workflow, onceward.declare_lanes,
  onceward.cancel, onceward.cancel_workflow, onceward.emit_event, onceward.deliver
   to onceward_producer, onceward_worker, onceward_operator;
grant execute on function
  onceward.register_worker, onceward.retire_worker, onceward.heartbeat, onceward.claim, onceward.adopt, onceward.exchange,
  onceward.complete, onceward.fail, onceward.snooze, onceward.release, onceward.progress, onceward.promote,
  onceward.rescue, onceward.ensure_partitions, onceward.tidy, onceward.finish_step, onceward.fail_step, onceward.steps_of,
  onceward.sleep, onceward.wait_event, onceward.receive_event, onceward.spawn, onceward.join_jobs, onceward.outcomes_of
   to onceward_worker;
grant execute on function
  onceward.requeue, onceward.requeue_workflow, onceward.resolve, onceward.run_now, onceward.add_lane, onceward.pause_lane, onceward.resume_lane
   to onceward_operator;

grant execute on function onceward.decide_delivery, onceward.delivery_content to onceward_operator;
grant execute on function onceward.begin_delivery, onceward.settle_delivery, onceward.delivery_content to onceward_worker;

grant select on onceward.schedules, onceward.ticks, onceward.runs,
                onceward.schedule_private, onceward.tick_private, onceward.run_private
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.next_ticks, onceward.run_key
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function
  onceward.add_schedule, onceward.drop_schedule, onceward.begin_run, onceward.renew_run, onceward.finish_run, onceward.fail_run
   to onceward_producer, onceward_worker, onceward_operator;
grant execute on function onceward.declare_schedules to onceward_worker;
grant execute on function onceward.metrics to onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.tick to onceward_worker, onceward_operator;
grant execute on function onceward.pause_schedule, onceward.resume_schedule, onceward.run_schedule_now to onceward_operator;

grant select on onceward.limits, onceward.bounds, onceward.shares, onceward.limit_private, onceward.share_private
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.limit_now, onceward.limit_levels, onceward.bound_levels
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.declare_limits, onceward.acquire, onceward.settle_hold, onceward.release_hold
   to onceward_producer, onceward_worker, onceward_operator;
grant execute on function onceward.settle, onceward.limited to onceward_worker;
grant execute on function onceward.pause_limit to onceward_worker, onceward_operator;
grant execute on function
  onceward.set_limit, onceward.drop_limit, onceward.resume_limit, onceward.set_share, onceward.set_bound, onceward.drop_bound
   to onceward_operator;

-- The audit log: producers write into it and do not read it.
grant select on onceward.audit_log, onceward.seals, onceward.audit_private, onceward.seal_private, onceward.seal_leaf_private
   to onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.record_event to onceward_producer, onceward_worker, onceward_operator;
grant execute on function onceward.audit_of to onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.seal to onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.audit_page, onceward.seal_page, onceward.audit_status, onceward.seal_of, onceward.record_checkpoint
   to onceward_operator, onceward_auditor;
grant execute on function onceward.audit_lane, onceward.drop_audit to onceward_operator;

grant select on onceward.monitors, onceward.thresholds, onceward.monitor_runs, onceward.alerts, onceward.silences,
                onceward.channels, onceward.retention, onceward.removals, onceward.legal_holds,
                onceward.monitor_private, onceward.threshold_private, onceward.monitor_run_private, onceward.alert_private,
                onceward.silence_private, onceward.channel_private, onceward.retention_private, onceward.removal_private,
                onceward.legal_hold_private
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.has_channel, onceward.unsent_kinds to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.check_monitors, onceward.retain_due to onceward_worker, onceward_operator;
grant execute on function
  onceward.begin_checks, onceward.run_check, onceward.finish_check, onceward.fail_check, onceward.declare_monitors
   to onceward_worker;
grant execute on function
  onceward.run_monitor, onceward.set_monitor, onceward.enable_monitor, onceward.disable_monitor, onceward.drop_monitor,
  onceward.ack_alert, onceward.close_alert, onceward.silence_alerts, onceward.end_silence,
  onceward.add_channel, onceward.drop_channel, onceward.test_channel,
  onceward.set_retention, onceward.retain, onceward.hold_tenant, onceward.release_tenant
   to onceward_operator;

-- The web pages: readers browse with their own rights; whoever serves the pages signs people in and manages access.
grant execute on function
  onceward.actor, onceward.find_jobs, onceward.count_found, onceward.scan_end, onceward.estimate_jobs, onceward.activity, onceward.pulse
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
-- Dead letters: everybody of a tenant sees who looks after them; operators say so.
grant select on onceward.assignments, onceward.comments, onceward.assignment_private, onceward.comment_private,
                onceward.limit_history, onceward.limit_level_private
   to onceward_producer, onceward_worker, onceward_operator, onceward_auditor;
grant execute on function onceward.assign_dead_letters, onceward.comment_dead_letters to onceward_operator;
grant execute on function
  onceward.add_operator, onceward.disable_operator, onceward.operators, onceward.has_operators, onceward.create_link,
  onceward.link_operator, onceward.use_link, onceward.operator_named, onceward.session_operator, onceward.end_session,
  onceward.create_token, onceward.revoke_token, onceward.token_scopes, onceward.tokens
   to onceward_operator;

-- Row-level security.  The owner's policies let the engine's own functions work; everybody else sees their tenant.
-- Only what differs is changed: these statements lock a table against everybody, and an upgrade comes while programs work.
do $$
declare
  -- As PostgreSQL writes them: a policy is made again when it says anything else.
  c_own    constant text := '((tenant = ( SELECT onceward.current_tenant() AS current_tenant)) OR ( SELECT onceward.sees_all_tenants() AS sees_all_tenants))';
  c_all    constant text := '( SELECT onceward.sees_all_tenants() AS sees_all_tenants)';
  c_people constant text := 'onceward_worker, onceward_operator, onceward_auditor';
  v_table  text;
begin
  for v_table in
    select c.relname from pg_catalog.pg_class as c
     where c.relnamespace = 'onceward'::regnamespace and c.relkind in ('r', 'p') and not (c.relrowsecurity and c.relforcerowsecurity)
     order by c.relname
  loop
    execute format('alter table onceward.%I enable row level security, force row level security', v_table);
  end loop;
  for v_table in
    select c.relname from pg_catalog.pg_class as c
     where c.relnamespace = 'onceward'::regnamespace and c.relkind in ('r', 'p')
     order by c.relname
  loop
    perform onceward.keep_owner_policies(v_table);
  end loop;
  foreach v_table in array array['audit_private', 'seal_leaf_private', 'seal_private'] loop
    perform onceward.keep_trigger(v_table, 'append_only_rows', 'BEFORE DELETE OR UPDATE', 'ROW');
  end loop;

  -- Entries without a tenant are about what everybody shares, and for those who see all.
  perform onceward.keep_policy('audit_private', 'own_tenant', 'select', c_people, c_own, null);
  -- Seals are hashes, and belong to no tenant.
  perform onceward.keep_policy('seal_leaf_private', 'everyone_reads', 'select', c_people, 'true', null);
  perform onceward.keep_policy('seal_private', 'everyone_reads', 'select', c_people, 'true', null);

  foreach v_table in array array['job_private', 'archive_private', 'attempt_private', 'payload_edit_private', 'step_private',
                                 'event_private', 'delivery_private', 'schedule_private', 'tick_private', 'run_private',
                                 'share_private', 'alert_private', 'silence_private', 'channel_private', 'legal_hold_private',
                                 'assignment_private', 'comment_private'] loop
    perform onceward.keep_policy(v_table, 'own_tenant', 'select', 'onceward_producer, ' || c_people, c_own, null);
  end loop;

  -- These belong to no tenant: names of lanes and tasks, processes, what is installed.
  foreach v_table in array array['lane_private', 'task_private', 'worker_private', 'migration_private', 'code_private',
                                 'limit_private', 'monitor_private', 'threshold_private', 'retention_private', 'removal_private',
                                 'limit_level_private'] loop
    perform onceward.keep_policy(v_table, 'everyone_reads', 'select', 'onceward_producer, ' || c_people, 'true', null);
  end loop;

  -- A run of a monitor finds things about any tenant.
  perform onceward.keep_policy('monitor_run_private', 'all_tenants', 'select', c_people, c_all, null);
end;
$$;
