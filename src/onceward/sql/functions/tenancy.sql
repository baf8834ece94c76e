-- Who calls, and for which tenant.  The tenant is the setting "onceward.tenant" of the session or transaction.
-- Unset: row-level security shows no rows.  '*': all tenants, for owners, workers, operators and auditors only.

-- The calling role, also inside a security definer function.
create or replace function onceward.caller()
  returns name
  language sql stable
  return coalesce(nullif(pg_catalog.current_setting('role', true), 'none'), session_user::text)::name;
comment on function onceward.caller() is 'The role that calls, also inside a security definer function.';

-- Whom the records name.  A program that acts for a person says so in "onceward.actor"; it vouches for that name.
create or replace function onceward.actor()
  returns text
  language sql stable
  return coalesce(nullif(pg_catalog.left(pg_catalog.current_setting('onceward.actor', true), 200), ''), onceward.caller()::text);
comment on function onceward.actor() is
  'Who acts, as records name it: the setting "onceward.actor" of the transaction, else the role that calls.';

create or replace function onceward.current_tenant()
  returns text
  language sql stable
  return nullif(pg_catalog.current_setting('onceward.tenant', true), '');
comment on function onceward.current_tenant() is 'The tenant this session acts for, or null.';

-- Superusers and the owner are bound by no policy.  So views ask for this as well: whoever names a tenant sees that one's rows.
-- Who may see all of them is for the policies to say.  A security definer function acts with its owner's rights instead of the
-- session's, and answers for whom it likes: there the policies alone decide.
create or replace function onceward.is_for_all()
  returns boolean
  language sql stable
  return coalesce(nullif(pg_catalog.current_setting('onceward.tenant', true), ''), '*') = '*'
      or current_user <> onceward.caller();
comment on function onceward.is_for_all() is
  'Whether the reader acts for no single tenant: the session names none, or all with ''*'', or this is a security definer function.';

create or replace function onceward.sees_all_tenants()
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  -- Never null: whoever asks "not sees_all_tenants()" means it.
  select coalesce(onceward.current_tenant() = '*', false)
     and (pg_has_role(onceward.caller(), 'onceward_owner', 'usage')
          or pg_has_role(onceward.caller(), 'onceward_operator', 'usage')
          or pg_has_role(onceward.caller(), 'onceward_worker', 'usage')
          or pg_has_role(onceward.caller(), 'onceward_auditor', 'usage'))
$$;
comment on function onceward.sees_all_tenants() is 'Whether this session may see the rows of every tenant.';

-- Whether the rows of a tenant are for this caller: its own tenant's, all with '*', and all for an owner that has set none.
create or replace function onceward.sees_tenant(p_tenant text)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(onceward.current_tenant() = p_tenant, false)
      or coalesce(onceward.sees_all_tenants(), false)
      or (onceward.current_tenant() is null and pg_has_role(onceward.caller(), 'onceward_owner', 'usage'))
$$;

-- Refuse to touch what is another tenant's.  Owners act for everybody; others need a matching tenant or '*'.
create or replace function onceward.check_tenant(p_tenant text, p_what text default 'job')
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if onceward.sees_tenant(p_tenant) then
    return;
  end if;
  raise exception '% belongs to another tenant', p_what
    using errcode = 'OW011',
          detail  = format('This session acts for tenant %s.', coalesce(quote_literal(onceward.shown(onceward.current_tenant())), '(none)')),
          hint    = format('Set "onceward.tenant" to the tenant of the %s.', p_what);
end;
$$;

-- The tenant of a new job: what the caller names, else the session's, else 'default'.
create or replace function onceward.tenant_for(p_tenant text)
  returns text
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_session text := onceward.current_tenant();
begin
  if v_session is null or v_session = '*' then
    return coalesce(p_tenant, 'default');
  end if;
  if v_session !~ '^[^*[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant of the session', v_session,
      'must be 1 to 200 characters, without * and control characters');
  end if;
  if p_tenant is not null and p_tenant <> v_session then
    raise exception 'cannot enqueue for tenant "%"', onceward.shown(p_tenant)
      using errcode = 'OW011',
            detail  = format('This session acts for tenant "%s".', onceward.shown(v_session)),
            hint    = 'Leave the tenant out, or change "onceward.tenant".';
  end if;
  return v_session;
end;
$$;
