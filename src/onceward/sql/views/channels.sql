-- Whom alerts are told, without addresses.
create or replace view onceward.channels with (security_invoker = true) as
select c.name, c.kind, c.tenant, c.severity, c.created_at, c.created_by
  from onceward.channel_private as c
 where (c.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.channels is 'Channels that alerts are told through, without their addresses.';
