-- Tokens: how programs prove who they are over HTTP.  Each has scopes, and perhaps a tenant and an end.

create or replace function onceward.create_token(
  p_name   text,
  p_hash   bytea,
  p_scopes text[],
  p_tenant text default null,
  p_life   interval default null
)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id uuid := onceward.new_id();
begin
  perform onceward.check_manages_access();
  perform onceward.check_hash(p_hash);
  if p_name is null or p_name !~ '^[^[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('name', p_name, 'must be 1 to 200 characters, without control characters');
  end if;
  if p_scopes is null or cardinality(p_scopes) = 0 or not p_scopes <@ array['read', 'enqueue', 'operate'] then
    perform onceward.bad_argument('scopes', array_to_string(p_scopes, ', '), 'must be some of read, enqueue, operate');
  end if;
  perform onceward.check_tenant_name(p_tenant);
  if p_life <= interval '0' or p_life > interval '10 years' then
    perform onceward.bad_argument('life', p_life::text, 'must be more than 0 and at most 10 years');
  end if;
  insert into onceward.token_private (id, hash, name, scopes, tenant, created_at, created_by, expires_at)
  values (v_id, p_hash, p_name, (select array_agg(distinct s order by s) from unnest(p_scopes) as s), p_tenant,
          onceward.now(), onceward.actor(), onceward.now() + p_life);
  perform onceward.audit('token.created', p_entity_type => 'token', p_entity_id => v_id::text, p_after => jsonb_strip_nulls(
    jsonb_build_object('name', p_name, 'scopes', p_scopes, 'tenant', p_tenant, 'expires_at', onceward.now() + p_life)));
  return v_id;
end;
$$;
comment on function onceward.create_token(text, bytea, text[], text, interval) is
  'Stores the hash of a token for programs, with its scopes: read, enqueue, operate.  Returns its id, which is no secret.';

create or replace function onceward.revoke_token(p_id uuid)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
begin
  perform onceward.check_manages_access();
  update onceward.token_private as t
     set revoked_at = onceward.now(), revoked_by = onceward.actor()
   where t.id = p_id and t.revoked_at is null
  returning t.name into v_name;
  if found then
    perform onceward.audit('token.revoked', p_entity_type => 'token', p_entity_id => p_id::text,
      p_before => jsonb_build_object('name', v_name));
    return true;
  end if;
  if not exists (select from onceward.token_private as t where t.id = p_id) then
    raise exception 'token % does not exist', p_id
      using errcode = 'OW047', hint = 'List them with "onceward token list".';
  end if;
  return false;
end;
$$;
comment on function onceward.revoke_token(uuid) is 'Lets a token be used no more.  Returns false when that was so already.';

create or replace function onceward.token_scopes(p_hash bytea)
  returns table (id uuid, name text, scopes text[], tenant text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update onceward.token_private as t
     set seen_at = onceward.now()
   where t.hash = p_hash and t.revoked_at is null and coalesce(t.expires_at > onceward.now(), true)
     and coalesce(t.seen_at < onceward.now() - interval '1 minute', true);
  return query
    select t.id, t.name, t.scopes, t.tenant
      from onceward.token_private as t
     where t.hash = p_hash and t.revoked_at is null and coalesce(t.expires_at > onceward.now(), true);
end;
$$;
comment on function onceward.token_scopes(bytea) is 'What a token that can be used allows; no row for any other.';

create or replace function onceward.tokens()
  returns table (id uuid, name text, scopes text[], tenant text, created_at timestamptz, created_by text,
                 expires_at timestamptz, seen_at timestamptz, revoked_at timestamptz, revoked_by text)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_manages_access();
  return query
    select t.id, t.name, t.scopes, t.tenant, t.created_at, t.created_by, t.expires_at, t.seen_at, t.revoked_at, t.revoked_by
      from onceward.token_private as t
     order by t.id;
end;
$$;
comment on function onceward.tokens() is 'Tokens for programs, without what would open anything.';
