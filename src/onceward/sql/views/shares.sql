-- Shares of tenants.
create or replace view onceward.shares with (security_invoker = true) as
select s.lane, s.tenant, s.share from onceward.share_private as s
 where (s.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.shares is 'How many turns a tenant gets in a lane; without a row, one.';
