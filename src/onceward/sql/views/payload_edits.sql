-- Payloads as they were before an operator changed them.
create or replace view onceward.payload_edits with (security_invoker = true) as
select e.job_id, e.edited_at, e.tenant, e.edited_by, e.payload_before
  from onceward.payload_edit_private as e
 where (e.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.payload_edits is 'Payloads as they were before a requeue changed them.';
