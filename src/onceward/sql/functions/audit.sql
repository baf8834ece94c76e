-- The audit log: one entry per operator's action and per end of a job, in lanes that ask for it per transition.
-- Entries are written in the transaction of what they tell.  Payloads, results and messages of errors are never in them.

-- The one way for the engine to write an entry.  What a person does is always written; see audits_all for the rest.
create or replace function onceward.audit(
  p_kind        text,
  p_tenant      text default null,
  p_job_id      uuid default null,
  p_entity_type text default null,
  p_entity_id   text default null,
  p_before      jsonb default null,
  p_after       jsonb default null,
  p_message     text default null,
  p_meta        jsonb default null,
  p_jobs        uuid[] default null
)
  returns bigint
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_seq bigint;
begin
  insert into onceward.audit_private
    (at, kind, source, actor, role, tenant, job_id, jobs, entity_type, entity_id, before, after, message, meta)
  values
    (onceward.now(), p_kind, 'engine', onceward.actor(), onceward.caller(), p_tenant, p_job_id, p_jobs, p_entity_type,
     p_entity_id, p_before, p_after, left(p_message, 1000), p_meta)
  returning seq into v_seq;
  return v_seq;
end;
$$;

-- A job that goes from the state it is in to another.
create or replace function onceward.audit_job(
  p_job     onceward.job_private,
  p_kind    text,
  p_state   text,
  p_message text default null,
  p_meta    jsonb default null
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.audit(
    p_kind,
    p_tenant  => p_job.tenant,
    p_job_id  => p_job.id,
    p_before  => jsonb_build_object('state', p_job.state),
    p_after   => jsonb_build_object('state', p_state),
    p_message => p_message,
    p_meta    => jsonb_strip_nulls(jsonb_build_object(
                   'lane', p_job.lane, 'task', p_job.task, 'epoch', p_job.epoch, 'attempt', p_job.attempt,
                   'worker', p_job.worker_id) || coalesce(p_meta, '{}')));
end;
$$;

-- Whether a lane wants every transition in the log, and not only ends.
create or replace function onceward.audits_all(p_lane text)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce((select l.audit = 'all' from onceward.lane_private as l where l.name = p_lane), false)
$$;

create or replace function onceward.audit_lane(p_name text, p_mode text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_was text;
begin
  if p_mode is null or p_mode not in ('ends', 'all') then
    perform onceward.bad_argument('mode', p_mode, 'must be ends or all',
      'Ends of jobs and actions of people are always in the log.');
  end if;
  select l.audit into v_was from onceward.lane_private as l where l.name = p_name for update;
  if not found then
    perform onceward.no_such_lane(p_name);
  end if;
  if v_was = p_mode then
    return false;
  end if;
  update onceward.lane_private as l set audit = p_mode where l.name = p_name;
  perform onceward.audit('lane.changed', p_entity_type => 'lane', p_entity_id => p_name,
    p_before => jsonb_build_object('audit', v_was), p_after => jsonb_build_object('audit', p_mode));
  return true;
end;
$$;
comment on function onceward.audit_lane(text, text) is
  'What of a lane goes into the audit log: ends of jobs (ends, the default) or every transition (all).  What people do is always there.  Returns whether anything changed.';

create or replace function onceward.record_event(
  p_kind        text,
  p_message     text default null,
  p_entity_type text default null,
  p_entity_id   text default null,
  p_before      jsonb default null,
  p_after       jsonb default null,
  p_meta        jsonb default null,
  p_job_id      uuid default null,
  p_actor       text default null,
  p_tenant      text default null
)
  returns bigint
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := onceward.tenant_for(p_tenant);
  v_part   record;
  v_seq    bigint;
begin
  if p_kind is null or p_kind !~ '^[A-Za-z0-9_.:/-]{1,200}$' then
    perform onceward.bad_argument('kind', p_kind, 'must be 1 to 200 letters, digits or . _ : / -');
  end if;
  if v_tenant !~ '^[^*[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant', v_tenant, 'must be 1 to 200 characters, without * and control characters');
  end if;
  for v_part in
    select * from (values ('message', p_message, 2000), ('entity_type', p_entity_type, 200),
                          ('entity_id', p_entity_id, 500), ('actor', p_actor, 200)) as t (name, value, most)
     where length(t.value) > t.most
  loop
    perform onceward.bad_argument(v_part.name, v_part.value, format('must be at most %s characters', v_part.most));
  end loop;
  if p_entity_id is not null and p_entity_type is null then
    perform onceward.bad_argument('entity_type', null, 'must say what entity_id is the id of');
  end if;
  for v_part in
    select * from (values ('before', p_before), ('after', p_after), ('meta', p_meta)) as t (name, value)
     where octet_length(t.value::text) > 16384
  loop
    perform onceward.bad_argument(v_part.name, octet_length(v_part.value::text) || ' bytes', 'must be at most 16384 bytes',
      'Store the data elsewhere and record a reference.');
  end loop;
  insert into onceward.audit_private
    (at, kind, source, actor, role, tenant, job_id, entity_type, entity_id, before, after, message, meta)
  values
    (onceward.now(), p_kind, 'application', coalesce(nullif(p_actor, ''), onceward.actor()), onceward.caller(), v_tenant,
     p_job_id, p_entity_type, p_entity_id, p_before, p_after, p_message, p_meta)
  returning seq into v_seq;
  return v_seq;
end;
$$;
comment on function onceward.record_event(text, text, text, text, jsonb, jsonb, jsonb, uuid, text, text) is
  'Writes an entry of an application into the audit log, in the caller''s transaction: what happened (kind, message), to what (entity), from what to what (before, after), by whom (p_actor, else the setting onceward.actor, else the role).  Returns its number.';

-- Everything the log has about a job.  Entries of batches are found by their time, which is the time of the transition.
create or replace function onceward.audit_of(p_job_id uuid)
  returns table (
    seq bigint, at timestamptz, kind text, source text, actor text, role text, tenant text, job_id uuid, jobs uuid[],
    entity_type text, entity_id text, before jsonb, after jsonb, message text, meta jsonb, xact xid8
  )
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select e.* from onceward.audit_log as e where e.job_id = p_job_id
  union all
  select e.*
    from (select j.created_at as at from onceward.jobs as j where j.id = p_job_id
          union
          select j.started_at from onceward.jobs as j where j.id = p_job_id
          union
          select j.finished_at from onceward.jobs as j where j.id = p_job_id
          union
          select a.started_at from onceward.attempts as a where a.job_id = p_job_id) as moment
    join onceward.audit_log as e on e.at = moment.at and e.jobs @> array[p_job_id]
   order by 1
$$;
comment on function onceward.audit_of(uuid) is
  'The entries of the audit log about a job, in order, those of batches included.  Shows what the reader may see.';

-- No change of rows, no truncation; rights to do so are taken even from the owner.  Row triggers of a parent come to its
-- partitions by themselves, those on truncation do not.
create or replace function onceward.make_append_only(p_table text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.keep_trigger(p_table, 'append_only_whole', 'BEFORE TRUNCATE', 'STATEMENT');
  execute format('revoke update, delete, truncate on onceward.%I from onceward_owner', p_table);
end;
$$;

-- Nobody changes the log: not its owner, and not a superuser by mistake.
create or replace function onceward.refuse_change()
  returns trigger
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'the audit log is append-only'
    using errcode = 'OW035',
          detail  = format('%s of table onceward.%s was refused.', tg_op, tg_table_name),
          hint    = 'Write a new entry that corrects the old one. Whole days are dropped with onceward.drop_audit.';
end;
$$;
