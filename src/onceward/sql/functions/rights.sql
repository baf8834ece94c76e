-- Policies and triggers as they have to be.  What is as it should be is left alone: to make it again would lock the table against
-- everybody, and these are called by every upgrade, while programs work.

-- p_using and p_check as PostgreSQL writes them, so that they can be compared.
create or replace function onceward.keep_policy(
  p_table   text,
  p_name    text,
  p_command text,
  p_roles   text,
  p_using   text,
  p_check   text
)
  returns void
  language plpgsql
  -- Names in expressions are written with their schemas then.
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_table constant regclass := format('onceward.%I', p_table);
  v_roles constant oid[] := array(select r.oid from pg_roles as r where r.rolname::text = any (string_to_array(p_roles, ', ')));
begin
  if exists (select from pg_policy as p
              where p.polrelid = v_table and p.polname = p_name and p.polpermissive
                and p.polcmd = case p_command when 'select' then 'r' when 'insert' then 'a' else '*' end
                and p.polroles @> v_roles and p.polroles <@ v_roles
                and pg_get_expr(p.polqual, p.polrelid) is not distinct from p_using
                and pg_get_expr(p.polwithcheck, p.polrelid) is not distinct from p_check) then
    return;
  end if;
  execute format('drop policy if exists %I on %s', p_name, v_table);
  execute format('create policy %I on %s for %s to %s', p_name, v_table, p_command, p_roles)
          || coalesce(' using (' || p_using || ')', '') || coalesce(' with check (' || p_check || ')', '');
end;
$$;

-- A trigger that refuses changes.  p_when as PostgreSQL writes it.
create or replace function onceward.keep_trigger(p_table text, p_name text, p_when text, p_each text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_trigger constant text := format('TRIGGER %I %s ON onceward.%I FOR EACH %s EXECUTE FUNCTION onceward.refuse_change()', p_name, p_when, p_table, p_each);
begin
  if not exists (select from pg_trigger as t
                  where t.tgrelid = format('onceward.%I', p_table)::regclass and t.tgname = p_name and t.tgenabled <> 'D'
                    and pg_get_triggerdef(t.oid) = 'CREATE ' || v_trigger) then
    execute 'create or replace ' || v_trigger;
  end if;
end;
$$;

-- What the owner of a table, or of a partition, may do with its rows: the engine's functions act as the owner.
create or replace function onceward.keep_owner_policies(p_table text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_table !~ '^(audit|seal|seal_leaf)_(private|default|\d{8})$' then
    perform onceward.keep_policy(p_table, 'owner_all', 'all', 'onceward_owner', 'true', 'true');
    return;
  end if;
  -- The audit log is read and appended to, by its owner too.  Triggers stop whoever is above policies.
  perform onceward.make_append_only(p_table);
  if exists (select from pg_policies as p where p.schemaname = 'onceward' and p.tablename = p_table and p.policyname = 'owner_all') then
    execute format('drop policy owner_all on onceward.%I', p_table);
  end if;
  perform onceward.keep_policy(p_table, 'owner_reads', 'select', 'onceward_owner', 'true', null);
  perform onceward.keep_policy(p_table, 'owner_appends', 'insert', 'onceward_owner', null, 'true');
end;
$$;
