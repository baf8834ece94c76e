-- The engine's only clock.  Stable, so that `run_at <= onceward.now()` is an index condition.
-- The testing kit replaces this function to move time; nothing else may.
-- Bodies in this style are parsed when the function is created: no search_path can change what they mean, and
-- the planner can inline them.
create or replace function onceward.now()
  returns timestamptz
  language sql stable
  return pg_catalog.statement_timestamp();
comment on function onceward.now() is 'The engine''s clock.';
