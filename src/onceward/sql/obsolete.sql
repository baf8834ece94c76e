-- Functions of an earlier version that this one no longer has, or has with other parameters: left behind, they would
-- make calls ambiguous.  Everything current was replaced in this very transaction, which its row says.
do $$
declare
  v_old regprocedure;
begin
  for v_old in
    select p.oid::regprocedure
      from pg_catalog.pg_proc as p
     where p.pronamespace = 'onceward'::regnamespace
       and p.xmin <> pg_catalog.pg_current_xact_id()::xid
  loop
    execute format('drop function %s', v_old);
  end loop;
end;
$$;
