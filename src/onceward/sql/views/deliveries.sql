-- The ledger, without addresses and contents.
create or replace view onceward.deliveries with (security_invoker = true) as
select d.id, d.tenant, d.kind, d.key, d.state, d.tries, d.provider, d.provider_ref, d.created_at, d.first_try_at,
       d.sending_at, case when j.state = 'scheduled' then j.run_at end as next_try_at, d.unclear_since, d.ended_at,
       d.last_error ->> 'type' as error_type, d.last_error ->> 'category' as category,
       d.last_error ->> 'message' as message, d.decided_by, d.note, d.is_alert, d.made_by
  from onceward.delivery_private as d
  left join onceward.job_private as j on j.id = d.id
 where (d.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.deliveries is 'Outside effects: what became of each, without its address and content.';
