-- Runs by key.
create or replace view onceward.runs with (security_invoker = true) as
select r.tenant, r.key, r.state, r.holder, r.epoch, r.attempt, r.created_at, r.since, r.expires_at,
       r.state = 'running' and r.expires_at <= onceward.now() as abandoned, r.finished_at, r.result, r.error
  from onceward.run_private as r
 where (r.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.runs is 'What runs or ran once per key: who holds it since when, its result or its error.  Abandoned: its lease is over.';
