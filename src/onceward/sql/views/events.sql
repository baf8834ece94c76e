-- Events that were emitted.
create or replace view onceward.events with (security_invoker = true) as
select e.tenant, e.name, e.payload, e.emitted_at, e.expires_at, e.made_by from onceward.event_private as e
 where e.expires_at > onceward.now() and (e.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.events is 'Events that were emitted, until they expire.';
