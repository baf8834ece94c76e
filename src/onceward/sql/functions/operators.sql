-- Operators: people who sign in to the web pages, each with a role and perhaps bound to a tenant.
-- Managing them is for sessions that act for all tenants: one that is bound to a tenant could make itself an account.

create or replace function onceward.check_manages_access()
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- An unset tenant makes the first of these null.
  if not coalesce(onceward.sees_all_tenants(), false)
     and not (onceward.current_tenant() is null and pg_has_role(onceward.caller(), 'onceward_owner', 'usage')) then
    raise exception 'operators and tokens are managed for all tenants at once'
      using errcode = 'OW011',
            detail  = format('This session acts for tenant %s.', coalesce(quote_literal(onceward.shown(onceward.current_tenant())), '(none)')),
            hint    = 'Set "onceward.tenant" to ''*'', with a role that may see every tenant.';
  end if;
end;
$$;

create or replace function onceward.check_tenant_name(p_tenant text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_tenant !~ '^[^*[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant', p_tenant, 'must be 1 to 200 characters, without * and control characters');
  end if;
end;
$$;

create or replace function onceward.no_such_operator(p_name text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'operator "%" does not exist', onceward.shown(p_name)
    using errcode = 'OW045',
          hint    = 'List them with "onceward operator list"; add one with "onceward operator add".';
end;
$$;

create or replace function onceward.operator_is_disabled(p_name text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'operator "%" is disabled', onceward.shown(p_name)
    using errcode = 'OW007',
          detail  = 'Nothing was changed.',
          hint    = 'Enable the operator again with "onceward operator add NAME --enable", or with p_enable => true in SQL.';
end;
$$;

-- What is not said stays: whoever names an operator once more must not widen what that one sees without having meant it.
create or replace function onceward.add_operator(
  p_name        text,
  p_role        text default null,
  p_tenant      text default null,
  p_all_tenants boolean default false,
  p_enable      boolean default false
)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_old onceward.operator_private;
  v_new onceward.operator_private;
begin
  perform onceward.check_manages_access();
  if p_name is null or p_name !~ '^[^[:cntrl:][:space:]][^[:cntrl:]]{0,198}[^[:cntrl:][:space:]]$|^[^[:cntrl:][:space:]]$' then
    perform onceward.bad_argument('name', p_name, 'must be 1 to 200 characters, without control characters',
      'With single sign-on, the name is the email address that the provider vouches for.');
  end if;
  if p_role not in ('viewer', 'operator', 'admin') then
    perform onceward.bad_argument('role', p_role, 'must be viewer, operator or admin');
  end if;
  perform onceward.check_tenant_name(p_tenant);
  if p_tenant is not null and p_all_tenants then
    perform onceward.bad_argument('all_tenants', 'true', 'and tenant exclude each other',
      'Name the tenant, or lift the bound.');
  end if;
  insert into onceward.operator_private as o (id, name, role, tenant, created_at, created_by)
  values (onceward.new_id(), p_name, coalesce(p_role, 'operator'), p_tenant, onceward.now(), onceward.actor())
      on conflict (name) do nothing
  returning o.* into v_new;
  if not found then
    select * into v_old from onceward.operator_private as o where o.name = p_name for update;
    -- What crossed with the disabling must not come back with the operator.
    if v_old.disabled_at is not null then
      if not coalesce(p_enable, false) then
        perform onceward.operator_is_disabled(p_name);
      end if;
      perform onceward.end_access(v_old.id);
    end if;
    p_role := coalesce(p_role, v_old.role);
    p_tenant := case when p_all_tenants then null else coalesce(p_tenant, v_old.tenant) end;
    update onceward.operator_private as o
       set role = p_role, tenant = p_tenant, disabled_at = null
     where o.name = p_name
       and (o.role, o.tenant, o.disabled_at) is distinct from (p_role, p_tenant, null::timestamptz)
    returning o.* into v_new;
    if not found then
      return 'unchanged';
    end if;
  end if;
  perform onceward.audit_setting('operator', p_name, onceward.operator_settings(v_old), onceward.operator_settings(v_new));
  return case when v_old.name is null then 'created' else 'changed' end;
end;
$$;
comment on function onceward.add_operator(text, text, text, boolean, boolean) is
  'Adds an operator of the web pages, or changes the role and tenant of one.  Roles: viewer, operator (of a new one, when none is given), admin.  What is not given stays as it is: p_all_tenants lifts the bound to a tenant, and p_enable enables a disabled operator, who is refused without it.  Returns created, changed or unchanged.';

-- Links and sessions before the operator: in this order everybody locks them.  One that is begun in this very moment finds the
-- operator disabled whenever it is used.
create or replace function onceward.end_access(p_operator_id uuid)
  returns void
  language sql
  set search_path = pg_catalog, pg_temp
as $$
  delete from onceward.link_private as l where l.operator_id = p_operator_id;
  delete from onceward.session_private as s where s.operator_id = p_operator_id;
$$;

create or replace function onceward.disable_operator(p_name text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id uuid := (select o.id from onceward.operator_private as o where o.name = p_name);
begin
  perform onceward.check_manages_access();
  if v_id is null then
    perform onceward.no_such_operator(p_name);
  end if;
  perform onceward.end_access(v_id);
  update onceward.operator_private as o set disabled_at = onceward.now() where o.id = v_id and o.disabled_at is null;
  if not found then
    return false;
  end if;
  perform onceward.audit('operator.disabled', p_entity_type => 'operator', p_entity_id => p_name);
  return true;
end;
$$;
comment on function onceward.disable_operator(text) is
  'Ends every session and link of an operator, and lets none begin.  Returns false when that was so already.';

create or replace function onceward.operators()
  returns table (name text, role text, tenant text, created_at timestamptz, created_by text, seen_at timestamptz,
                 disabled_at timestamptz, sessions bigint)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_manages_access();
  return query
    select o.name, o.role, o.tenant, o.created_at, o.created_by, o.seen_at, o.disabled_at,
           (select count(*) from onceward.session_private as s where s.operator_id = o.id and s.expires_at > onceward.now())
      from onceward.operator_private as o
     order by o.name;
end;
$$;
comment on function onceward.operators() is 'Operators of the web pages, with how many sessions each has.';

create or replace function onceward.has_operators()
  returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from onceward.operator_private as o where o.disabled_at is null)
$$;
comment on function onceward.has_operators() is 'Whether anybody can sign in to the web pages.  Nothing more is told.';

-- For somebody whom a provider of single sign-on has vouched for; the caller has checked that, page by page.  The log has the
-- first page after a pause that would have ended a session.
create or replace function onceward.operator_named(p_name text)
  returns table (name text, role text, tenant text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_manages_access();
  perform onceward.audit('operator.signed_in', p_entity_type => 'operator', p_entity_id => o.name, p_meta => '{"by": "single sign-on"}')
     from onceward.operator_private as o
    where o.name = p_name and o.disabled_at is null and coalesce(o.seen_at < onceward.now() - interval '12 hours', true);
  update onceward.operator_private as o
     set seen_at = onceward.now()
   where o.name = p_name and o.disabled_at is null and coalesce(o.seen_at < onceward.now() - interval '1 minute', true);
  return query
    select o.name, o.role, o.tenant from onceward.operator_private as o where o.name = p_name and o.disabled_at is null;
end;
$$;
comment on function onceward.operator_named(text) is
  'The role and tenant of an operator for whom single sign-on has vouched; no row for one who is unknown or disabled.';
