-- The engine's only clock.  Stable, so that `run_at <= onceward.now()` is an index condition.
-- The testing kit replaces this function to move time; nothing else may.
create or replace function onceward.now()
  returns timestamptz
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$ select statement_timestamp() $$;
comment on function onceward.now() is 'The engine''s clock.';
