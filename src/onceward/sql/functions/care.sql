-- Who looks after dead letters, and what they say about them.  Both belong to a kind of failure: a task and a fingerprint, so
-- that the next job that fails alike finds somebody who knows.
-- Who acts for one tenant assigns and speaks for that tenant; who sees all of them, for the whole, which tenants do not see.

create or replace function onceward.assign_dead_letters(p_task text, p_fingerprint text, p_to text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_tenant      text := onceward.tenant_of_care();
  v_fingerprint text := coalesce(p_fingerprint, '');
  v_to          text := nullif(trim(p_to), '');
  v_was         text;
begin
  if v_to !~ '^[^[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('to', p_to, 'must be 1 to 200 characters, without control characters');
  end if;
  if v_to is not null then
    perform onceward.check_care(p_task, v_fingerprint);
  end if;
  select a.assigned_to into v_was from onceward.assignment_private as a
   where a.task = p_task and a.fingerprint = v_fingerprint and coalesce(a.tenant, '') = coalesce(v_tenant, '')
     for update;
  if v_was is not distinct from v_to then
    return false;
  end if;
  if v_to is null then
    delete from onceward.assignment_private as a
     where a.task = p_task and a.fingerprint = v_fingerprint and coalesce(a.tenant, '') = coalesce(v_tenant, '');
  else
    insert into onceward.assignment_private (id, tenant, task, fingerprint, assigned_to, assigned_by, assigned_at)
    values (onceward.new_id(), v_tenant, p_task, v_fingerprint, v_to, onceward.actor(), onceward.now())
        on conflict (task, fingerprint, coalesce(tenant, '')) do update
       set assigned_to = excluded.assigned_to, assigned_by = excluded.assigned_by, assigned_at = excluded.assigned_at;
  end if;
  perform onceward.audit('dead_letter.assigned', p_tenant => v_tenant, p_entity_type => 'failure',
    p_entity_id => concat_ws(' ', p_task, nullif(v_fingerprint, '')),
    p_before => jsonb_build_object('assigned_to', v_was), p_after => jsonb_build_object('assigned_to', v_to));
  return true;
end;
$$;
comment on function onceward.assign_dead_letters(text, text, text) is
  'Says who looks after the dead letters of a task with this fingerprint, those that come later included; null for nobody.  Returns whether that is new.';

create or replace function onceward.comment_dead_letters(p_task text, p_fingerprint text, p_body text, p_job_id uuid default null)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_tenant      text := onceward.tenant_of_care();
  v_fingerprint text := coalesce(p_fingerprint, '');
  v_id          uuid := onceward.new_id();
begin
  if p_body is null or length(trim(p_body)) = 0 or length(p_body) > 10000 then
    perform onceward.bad_argument('comment', left(p_body, 100), 'must be 1 to 10000 characters');
  end if;
  perform onceward.check_care(p_task, v_fingerprint);
  if p_job_id is not null and not exists (
       select from onceward.job_private as j
        where j.id = p_job_id and j.state = 'dead_letter' and j.task = p_task
          and coalesce(j.last_error ->> 'fingerprint', '') = v_fingerprint and onceward.sees_tenant(j.tenant)) then
    perform onceward.no_such_job(p_job_id);
  end if;
  insert into onceward.comment_private (id, tenant, task, fingerprint, job_id, author, said_at, body)
  values (v_id, v_tenant, p_task, v_fingerprint, p_job_id, onceward.actor(), onceward.now(), trim(p_body));
  perform onceward.audit('dead_letter.commented', p_tenant => v_tenant, p_job_id => p_job_id, p_entity_type => 'failure',
    p_entity_id => concat_ws(' ', p_task, nullif(v_fingerprint, '')), p_message => left(trim(p_body), 1000),
    p_meta => jsonb_build_object('comment', v_id));
  return v_id;
end;
$$;
comment on function onceward.comment_dead_letters(text, text, text, uuid) is
  'Adds to what people say about the dead letters of a task with this fingerprint; p_job_id names one of them.  Returns the comment''s id.';

-- Null: of all tenants.
create or replace function onceward.tenant_of_care()
  returns text
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if onceward.sees_all_tenants() or onceward.current_tenant() is null then
    perform onceward.check_tenant('*', 'kind of failure');
    return null;
  end if;
  return onceward.current_tenant();
end;
$$;

-- A slip in a name must not make a thread that nobody finds.  By the index of dead letters.
create or replace function onceward.check_care(p_task text, p_fingerprint text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if not exists (select from onceward.job_private as j
                  where j.state = 'dead_letter' and j.task = p_task and coalesce(j.last_error ->> 'fingerprint', '') = p_fingerprint
                    and onceward.sees_tenant(j.tenant)) then
    raise exception 'no dead letter of task "%" has fingerprint "%"', onceward.shown(p_task), onceward.shown(p_fingerprint)
      using errcode = 'OW006', hint = 'List them with "onceward dead-letter list --group".';
  end if;
end;
$$;
