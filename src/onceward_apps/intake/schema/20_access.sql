-- Who asks, and whom they may see.  The user is the `sub` of the token that the gate has verified, in the setting
-- "request.jwt.claims" of the transaction.  A claim never makes anybody the service role: that is a role of the database.

create or replace function intake.uid()
  returns uuid
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  return nullif(nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub', '')::uuid;
exception
  when invalid_text_representation then return null;  -- not a token of ours: nobody
end;
$$;
comment on function intake.uid() is 'The user for whom the transaction acts, or null.';

create or replace function intake.is_service_role()
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select pg_has_role(onceward.caller(), 'service_role', 'usage') or pg_has_role(onceward.caller(), 'onceward_owner', 'usage')
$$;
comment on function intake.is_service_role() is 'Whether the database role that calls is the service role.  Claims do not count.';

create or replace function intake.is_admin()
  returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select (intake.uid() is null and intake.is_service_role())
      or exists (select from intake.admins as a where a.user_id = intake.uid())
$$;
comment on function intake.is_admin() is 'Whether the user is listed as an admin, or the service role acts for nobody.  Admins see no documents.';

create or replace function intake.has_profile_access(p_user_id uuid, p_profile_id uuid, p_access_level text default 'read')
  returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  -- Nobody may ask about somebody else: who has access to what is private, too.
  select p_user_id is not null
     and (p_user_id = intake.uid() or intake.is_service_role())
     and (exists (select from intake.user_profiles as p where p.id = p_profile_id and p.account_owner_id = p_user_id)
          or exists (select from intake.profile_access as a
                      where a.profile_id = p_profile_id and a.user_id = p_user_id and a.revoked_at is null
                        and (a.access_level = 'write' or p_access_level = 'read')))
$$;
comment on function intake.has_profile_access(uuid, uuid, text) is
  'Whether a user owns a profile, or was given access to it: read, or write for additions.';

-- The guard of functions that run with the owner's rights: the service role, and when it acts for a user, that user's access.
create or replace function intake.check_profile_access(p_profile_id uuid, p_access_level text default 'read')
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if not intake.is_service_role() or (intake.uid() is not null and not intake.has_profile_access(intake.uid(), p_profile_id, p_access_level))
     or not exists (select from intake.user_profiles as p where p.id = p_profile_id) then
    raise exception 'no access to this profile'
      using errcode = 'insufficient_privilege', hint = 'The owner of the profile can give access.';
  end if;
end;
$$;

-- Null for what is no id, instead of an error.
create or replace function intake.as_uuid(p_text text)
  returns uuid
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when p_text ~* '^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$' then p_text::uuid end
$$;

-- A number of system_configuration; a value that is no number is an error that names its key.
create or replace function intake.setting_number(p_key text, p_default numeric)
  returns numeric
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_value jsonb := (select c.config_value from intake.system_configuration as c where c.config_key = p_key);
begin
  if v_value is null then
    return p_default;
  end if;
  if jsonb_typeof(v_value) <> 'number' then
    raise exception 'setting "%" must be a number', p_key using errcode = 'OW008';
  end if;
  return (v_value #>> '{}')::numeric;
end;
$$;

create or replace function intake.is_enabled(p_key text)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select c.config_value = 'true' from intake.system_configuration as c where c.config_key = p_key), false)
$$;
comment on function intake.is_enabled(text) is 'Whether a feature flag is on.';

create or replace function intake.configure(p_key text, p_value jsonb)
  returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_old jsonb;
begin
  select c.config_value into v_old from intake.system_configuration as c where c.config_key = p_key for update;
  if not found then
    raise exception 'setting "%" does not exist', left(p_key, 100) using errcode = 'OW008';
  end if;
  if p_value is null or jsonb_typeof(p_value) <> jsonb_typeof(v_old) then
    raise exception 'setting "%" must be a %', p_key, jsonb_typeof(v_old) using errcode = 'OW008';
  end if;
  if p_value <> v_old then
    update intake.system_configuration as c set config_value = p_value, updated_at = onceward.now() where c.config_key = p_key;
    perform intake.log_audit_event('system_configuration', p_key, 'UPDATE', jsonb_build_object('value', v_old),
      jsonb_build_object('value', p_value), 'Setting changed', 'system');
  end if;
end;
$$;
comment on function intake.configure(text, jsonb) is 'Changes a setting or a flag, which keeps its type.';

-- The engine's tenant is the profile: profiles take turns in a lane, and the engine's own rules keep them apart.
create or replace function intake.be_tenant(p_tenant text)
  returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_before text := coalesce(current_setting('onceward.tenant', true), '');
begin
  perform set_config('onceward.tenant', p_tenant, true);
  return v_before;
end;
$$;

create or replace function intake.create_profile(
  p_id uuid, p_account_owner_id uuid, p_display_name text, p_date_of_birth date default null, p_plan_type text default 'free'
)
  returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  with made as (
    insert into intake.user_profiles (id, account_owner_id, display_name, date_of_birth, plan_type)
    values (p_id, p_account_owner_id, p_display_name, p_date_of_birth, p_plan_type)
        on conflict do nothing
    returning 1
  )
  select exists (select from made)
$$;
comment on function intake.create_profile(uuid, uuid, text, date, text) is 'Adds a profile to an account.  False when it is there already.';

create or replace function intake.share_profile(p_profile_id uuid, p_user_id uuid, p_access_level text)
  returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- The owner gives and takes; those who were given access do not pass it on.
  if not intake.is_service_role()
     or not exists (select from intake.user_profiles as p
                     where p.id = p_profile_id and p.account_owner_id = coalesce(intake.uid(), p.account_owner_id)) then
    raise exception 'no access to this profile' using errcode = 'insufficient_privilege';
  end if;
  insert into intake.profile_access as a (profile_id, user_id, access_level, revoked_at)
  values (p_profile_id, p_user_id, coalesce(p_access_level, 'read'), case when p_access_level is null then onceward.now() end)
      on conflict (profile_id, user_id) do update
     set access_level = excluded.access_level, revoked_at = excluded.revoked_at;
  perform intake.log_audit_event('profile_access', p_profile_id::text, 'UPDATE', null,
    jsonb_build_object('user_id', p_user_id, 'access_level', p_access_level), 'Access changed', 'security', p_profile_id);
end;
$$;
comment on function intake.share_profile(uuid, uuid, text) is 'Gives a user access to a profile, read or write; null takes it back.';

-- Of two that use a link at the same moment, one gets true.
create or replace function intake.use_link(p_id uuid, p_user_id uuid, p_until timestamptz)
  returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- A day later: the clocks of programs that verify differ a little.
  delete from intake.used_links as u
   where u.id in (select o.id from intake.used_links as o where o.until < onceward.now() - interval '1 day' limit 100 for update skip locked);
  insert into intake.used_links (id, user_id, until) values (p_id, p_user_id, p_until) on conflict do nothing;
  return found;
end;
$$;
comment on function intake.use_link(uuid, uuid, timestamptz) is 'Marks a sign-in link as used.  False when it was.';

-- One signature (H13).  What is recorded names rows, states and counts; documents' contents do not belong here.
create or replace function intake.log_audit_event(
  p_table_name          text,
  p_record_id           text,
  p_operation           text,
  p_old_values          jsonb default null,
  p_new_values          jsonb default null,
  p_reason              text default null,
  p_compliance_category text default 'system',
  p_patient_id          uuid default null
)
  returns bigint
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text;
  v_job    text := p_new_values ->> 'job_id';
  v_seq    bigint;
begin
  if p_table_name is null or p_table_name !~ '^[a-z_]{1,63}$' then
    raise exception 'p_table_name must be the name of a table' using errcode = 'OW008';
  end if;
  if p_operation is null or p_operation not in ('INSERT', 'UPDATE', 'DELETE', 'SELECT', 'EXECUTE') then
    raise exception 'p_operation must be INSERT, UPDATE, DELETE, SELECT or EXECUTE' using errcode = 'OW008';
  end if;
  if p_patient_id is not null then
    perform intake.check_profile_access(p_patient_id);
  end if;
  v_tenant := intake.be_tenant(coalesce(p_patient_id::text, 'default'));
  v_seq := onceward.record_event(
    'intake.' || p_table_name || '.' || lower(p_operation),
    p_message     => p_reason,
    p_entity_type => 'intake.' || p_table_name,
    p_entity_id   => p_record_id,
    p_before      => p_old_values,
    p_after       => p_new_values,
    p_meta        => jsonb_strip_nulls(jsonb_build_object('compliance_category', p_compliance_category, 'patient_id', p_patient_id,
                       'correlation_id', p_new_values ->> 'correlation_id')),
    p_job_id      => intake.as_uuid(v_job),
    p_actor       => intake.uid()::text);
  perform intake.be_tenant(v_tenant);
  return v_seq;
end;
$$;
comment on function intake.log_audit_event(text, text, text, jsonb, jsonb, text, text, uuid) is
  'Writes into the engine''s audit log: which row, what was done, from what to what, why, and whose it is.  Returns the entry''s number.';

create or replace view intake.audit_log as
select e.seq as id,
       split_part(e.kind, '.', 2) as table_name,
       e.entity_id as record_id,
       upper(split_part(e.kind, '.', 3)) as operation,
       e.before as old_values,
       e.after as new_values,
       e.message as reason,
       e.meta ->> 'compliance_category' as compliance_category,
       (e.meta ->> 'patient_id')::uuid as patient_id,
       e.job_id,
       e.meta ->> 'correlation_id' as correlation_id,
       e.actor as changed_by,
       e.at as changed_at
  from onceward.audit_log as e
 where e.kind like 'intake.%.%';
comment on view intake.audit_log is
  'Every touch of a profile''s data, as the engine''s audit log has it; read under the engine''s rule for tenants, which are profiles here.';

-- A person may know who touched their own.
create or replace function intake.get_profile_audit(p_profile_id uuid, p_limit integer default 100)
  returns setof intake.audit_log
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform intake.check_profile_access(p_profile_id);
  return query select a.* from intake.audit_log as a where a.patient_id = p_profile_id order by a.id desc limit least(p_limit, 1000);
end;
$$;
comment on function intake.get_profile_audit(uuid, integer) is 'The newest entries of the audit log about a profile.';
