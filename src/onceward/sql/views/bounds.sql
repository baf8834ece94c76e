-- Bounds of lanes, and what was measured last.
create or replace view onceward.bounds with (security_invoker = true) as
select b.* from onceward.bound_levels() as b;
comment on view onceward.bounds is 'Bounds of lanes and of tenants in them, with what a worker measured last.';
