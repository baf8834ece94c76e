-- Legal holds: retention removes nothing of a tenant that is held.
create or replace function onceward.hold_tenant(p_tenant text, p_reason text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_tenant is null or p_tenant !~ '^[^*[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant', p_tenant, 'must be 1 to 200 characters, without * and control characters');
  end if;
  if p_reason is null or length(trim(p_reason)) = 0 then
    perform onceward.bad_argument('reason', p_reason, 'must say why');
  end if;
  perform onceward.check_tenant(p_tenant, 'tenant');
  insert into onceward.legal_hold_private (tenant, held_at, held_by, reason)
  values (p_tenant, onceward.now(), onceward.actor(), left(trim(p_reason), 2000))
      on conflict do nothing;
  if not found then
    return false;
  end if;
  perform onceward.audit('tenant.held', p_tenant => p_tenant, p_entity_type => 'tenant', p_entity_id => p_tenant, p_message => trim(p_reason));
  return true;
end;
$$;
comment on function onceward.hold_tenant(text, text) is
  'Puts a tenant under a legal hold: once this is committed, retention removes nothing of it until the hold is released.  Returns false when it was held already: a tenant has one hold, and the second reason is not recorded.';

create or replace function onceward.release_tenant(p_tenant text, p_reason text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_reason is null or length(trim(p_reason)) = 0 then
    perform onceward.bad_argument('reason', p_reason, 'must say why');
  end if;
  perform onceward.check_tenant(p_tenant, 'tenant');
  update onceward.legal_hold_private as h
     set released_at = onceward.now(), released_by = onceward.actor(), release_reason = left(trim(p_reason), 2000)
   where h.tenant = p_tenant and h.released_at is null;
  if not found then
    return false;
  end if;
  perform onceward.audit('tenant.released', p_tenant => p_tenant, p_entity_type => 'tenant', p_entity_id => p_tenant, p_message => trim(p_reason));
  return true;
end;
$$;
comment on function onceward.release_tenant(text, text) is
  'Ends the legal hold of a tenant: what is past its time goes with the next retention.  Returns false when it was not held.';
