-- Signing in: one-time links, and the sessions that they begin.  Only hashes of secrets come here.

create or replace function onceward.check_hash(p_hash bytea)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_hash is null or octet_length(p_hash) <> 32 then
    perform onceward.bad_argument('hash', octet_length(p_hash) || ' bytes', 'must be the 32 bytes of a SHA-256');
  end if;
end;
$$;

create or replace function onceward.create_link(p_operator text, p_hash bytea, p_life interval default '15 minutes')
  returns timestamptz
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id       uuid;
  v_disabled timestamptz;
begin
  perform onceward.check_manages_access();
  perform onceward.check_hash(p_hash);
  if p_life is null or p_life <= interval '0' or p_life > interval '7 days' then
    perform onceward.bad_argument('life', p_life::text, 'must be more than 0 and at most 7 days');
  end if;
  select o.id, o.disabled_at into v_id, v_disabled from onceward.operator_private as o where o.name = p_operator;
  if not found then
    perform onceward.no_such_operator(p_operator);
  elsif v_disabled is not null then
    perform onceward.operator_is_disabled(p_operator);
  end if;
  -- Those that nobody can use any more.
  delete from onceward.link_private as l
   where l.hash in (select old.hash from onceward.link_private as old
                     where old.expires_at < onceward.now() - interval '1 day'
                     order by old.expires_at limit 100 for update skip locked);
  insert into onceward.link_private (hash, operator_id, created_at, created_by, expires_at)
  values (p_hash, v_id, onceward.now(), onceward.actor(), onceward.now() + p_life);
  perform onceward.audit('operator.invited', p_entity_type => 'operator', p_entity_id => p_operator,
    p_after => jsonb_build_object('until', onceward.now() + p_life));
  return onceward.now() + p_life;
end;
$$;
comment on function onceward.create_link(text, bytea, interval) is
  'Stores the hash of a one-time link by which an operator signs in.  Returns until when it can be used.';

-- Whose link it is, for the page that asks before it is used.  Null for one that cannot be used.
create or replace function onceward.link_operator(p_hash bytea)
  returns text
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select o.name
    from onceward.link_private as l
    join onceward.operator_private as o on o.id = l.operator_id
   where l.hash = p_hash and l.used_at is null and l.expires_at > onceward.now() and o.disabled_at is null
$$;
comment on function onceward.link_operator(bytea) is 'The operator whom an unused link signs in, or null.  Changes nothing.';

create or replace function onceward.use_link(p_hash bytea, p_session_hash bytea)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id   uuid;
  v_name text;
begin
  perform onceward.check_hash(p_session_hash);
  -- This update decides: of two who come at once, the second finds it used.
  update onceward.link_private as l
     set used_at = onceward.now()
    from onceward.operator_private as o
   where l.hash = p_hash and l.used_at is null and l.expires_at > onceward.now()
     and o.id = l.operator_id and o.disabled_at is null
  returning o.id, o.name into v_id, v_name;
  if not found then
    raise exception 'the sign-in link cannot be used'
      using errcode = 'OW046',
            detail  = 'It was used before, its time is over, or it never was one.',
            hint    = 'Ask for a new one: "onceward operator link".';
  end if;
  delete from onceward.session_private as s
   where s.hash in (select old.hash from onceward.session_private as old
                     where old.expires_at < onceward.now()
                     order by old.expires_at limit 100 for update skip locked);
  insert into onceward.session_private (hash, operator_id, created_at, seen_at, expires_at)
  values (p_session_hash, v_id, onceward.now(), onceward.now(), onceward.now() + interval '12 hours');
  update onceward.operator_private as o set seen_at = onceward.now() where o.id = v_id;
  perform onceward.audit('operator.signed_in', p_entity_type => 'operator', p_entity_id => v_name, p_meta => '{"by": "link"}');
  return v_name;
end;
$$;
comment on function onceward.use_link(bytea, bytea) is
  'Begins a session by a one-time link, which is then used up.  Returns the name of the operator.';

-- A session lasts twelve hours from its last use, a week at most.  Seen is written once a minute, not at every page.
create or replace function onceward.session_operator(p_hash bytea)
  returns table (name text, role text, tenant text)
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update onceward.session_private as s
     set seen_at = onceward.now(), expires_at = least(onceward.now() + interval '12 hours', s.created_at + interval '7 days')
   where s.hash = p_hash and s.expires_at > onceward.now() and s.seen_at < onceward.now() - interval '1 minute';
  return query
    select o.name, o.role, o.tenant
      from onceward.session_private as s
      join onceward.operator_private as o on o.id = s.operator_id
     where s.hash = p_hash and s.expires_at > onceward.now() and o.disabled_at is null;
end;
$$;
comment on function onceward.session_operator(bytea) is 'The operator of a session that lives; no row for any other.';

create or replace function onceward.end_session(p_hash bytea)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_name text;
begin
  delete from onceward.session_private as s using onceward.operator_private as o
   where s.hash = p_hash and o.id = s.operator_id
  returning o.name into v_name;
  if not found then
    return false;
  end if;
  perform onceward.audit('operator.signed_out', p_entity_type => 'operator', p_entity_id => v_name);
  return true;
end;
$$;
comment on function onceward.end_session(bytea) is 'Signs out.  Returns false when there was no such session.';
