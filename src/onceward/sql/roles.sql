-- The five roles.  This file is one statement on purpose: when the role that installs Onceward may not
-- create roles, an administrator runs exactly this, and the installation goes on without any privilege.
-- "onceward.installer" names the role that installs; it becomes a member of onceward_owner.
do $$
declare
  v_installer text := coalesce(nullif(current_setting('onceward.installer', true), ''), current_user);
  v_role      text;
begin
  foreach v_role in array array['onceward_owner', 'onceward_producer', 'onceward_worker',
                                'onceward_operator', 'onceward_auditor']
  loop
    begin
      if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
        execute format('create role %I nologin', v_role);
      end if;
    exception
      -- Two installers in two databases of one cluster: roles are shared, the first one wins.
      when duplicate_object or unique_violation then null;
    end;
  end loop;

  -- From 16 on, creating a role no longer makes its creator able to act as it.
  if not pg_catalog.pg_has_role(v_installer, 'onceward_owner', 'member')
     or not pg_catalog.pg_has_role(v_installer, 'onceward_owner', 'usage') then
    if current_setting('server_version_num')::int >= 160000 then
      execute format('grant onceward_owner to %I with inherit true, set true', v_installer);
    else
      execute format('grant onceward_owner to %I', v_installer);
    end if;
  end if;

  execute format('grant create on database %I to onceward_owner', current_database());
  -- Who may not grant this is only warned.
  if not pg_catalog.has_database_privilege('onceward_owner', current_database(), 'create') then
    raise exception 'permission denied to grant create on database "%"', current_database()
      using errcode = 'insufficient_privilege';
  end if;

  -- The monitor of pinned xmin has to see the transactions of other roles.
  if not pg_catalog.pg_has_role('onceward_owner', 'pg_read_all_stats', 'usage') then
    begin
      grant pg_read_all_stats to onceward_owner;
    exception
      when insufficient_privilege then
        raise notice 'could not grant pg_read_all_stats to onceward_owner: the monitor of pinned xmin will not see who it is';
      -- Two installers at once: the first one wins.
      when duplicate_object or unique_violation or internal_error then null;
    end;
  end if;

  -- Supabase: its backend role does everything but own the schema.
  if exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
    begin
      grant onceward_producer, onceward_worker, onceward_operator to service_role;
    exception
      when insufficient_privilege then
        raise notice 'could not grant the roles to service_role: an administrator has to run "grant onceward_producer, onceward_worker, onceward_operator to service_role"';
    end;
  end if;
end;
$$
