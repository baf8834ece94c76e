-- Enqueue many jobs of one task with the same options but for their keys, in the caller's transaction, in a few statements.
-- job_ids: one per payload, in order.  are_new: which of them this call has made; null when it was all of them.  The rest is said
-- of those.  As arrays, because a row for each job costs as much as a fifth of making it.
create or replace function onceward.enqueue_set(
  p_task              text,
  p_payloads          jsonb[],
  p_keys              text[] default null,
  p_lane              text default 'default',
  p_priority          integer default 0,
  p_run_at            timestamptz default null,
  p_expires_at        timestamptz default null,
  p_timeout           interval default null,
  p_key_window        text default 'live',
  p_concurrency_key   text default null,
  p_concurrency_limit integer default 1,
  p_max_attempts      integer default 8,
  p_retry             jsonb default null,
  p_tenant            text default null,
  p_headers           jsonb default null,
  p_after             uuid[] default null,
  p_after_policy      text default 'fail',
  p_workflow_id       uuid default null,
  p_parent_id         uuid default null,
  p_uses              jsonb default null,
  p_concurrency_keys  text[] default null,
  out job_ids         uuid[],
  out are_new         boolean[],
  out answer          text,
  out until           timestamptz,
  out reason          text
)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now    timestamptz := onceward.now();
  v_tenant text;
  v_cap    integer;
  v_state  text;
  v_ids    uuid[];
  v_held   uuid[];
  v_bad    integer;
  v_flow   uuid := p_workflow_id;
  v_lane   record;
  v_uses   jsonb[];
  v_found  record;
  v_one_of text;
  -- The state of jobs that have one of p_concurrency_keys, and the limit of the others.
  v_keyed  text;
  v_limit  integer := case when p_concurrency_key is not null then p_concurrency_limit end;
  -- Of what is hashed.
  v_prefix text;
begin
  answer := 'accepted';
  if p_concurrency_keys is not null then
    v_one_of := onceward.check_concurrency_keys(p_concurrency_keys, p_concurrency_key, cardinality(p_payloads));
  end if;
  perform onceward.check_job_arguments(p_task, p_priority, p_run_at, p_expires_at, p_timeout, p_max_attempts,
                                       p_retry, p_tenant, coalesce(p_concurrency_key, v_one_of), p_concurrency_limit,
                                       p_headers);
  v_tenant := onceward.tenant_for(p_tenant);
  v_prefix := v_tenant || E'\x1f';
  select l.max_payload_bytes, l.fair, l.bounded, l.audit = 'all' as audited into v_lane from onceward.lane_private as l where l.name = p_lane;
  if not found then
    perform onceward.no_such_lane(p_lane);
  end if;
  v_cap := v_lane.max_payload_bytes;
  if p_payloads is null or array_position(p_payloads, null) is not null then
    perform onceward.bad_argument('payloads', null, 'must be an array of JSON without nulls');
  end if;
  select i into v_bad from unnest(p_payloads) with ordinality as u (payload, i)
   where jsonb_typeof(u.payload) <> 'object' or pg_column_size(u.payload) > v_cap
      -- As in enqueue_plain.
      or (pg_column_size(u.payload) >= 1600 and u.payload @? '$.**{201}')
   limit 1;
  if found then
    perform onceward.check_payload(p_payloads[v_bad]);
    perform onceward.payload_too_large(p_payloads[v_bad], v_cap, p_lane);
  end if;

  v_uses := onceward.check_many_uses(p_uses, v_tenant, cardinality(p_payloads));
  if (v_lane.bounded or p_uses is not null) and num_nonnulls(p_after, p_workflow_id, p_parent_id) = 0 then
    select g.answer, g.until, g.reason into v_found
      from onceward.pressure_on(p_lane, v_tenant, v_uses[1], p_task, null) as g;
    if v_found.answer = 'rejected' then
      answer := v_found.answer;
      reason := v_found.reason;
      return;
    elsif v_found.answer = 'deferred' then
      p_run_at := greatest(p_run_at, v_found.until);
      until := p_run_at;
      p_headers := coalesce(p_headers, '{}') || jsonb_build_object('onceward.deferred', v_found.reason);
    end if;
    answer := coalesce(v_found.answer, answer);
    reason := v_found.reason;
  end if;

  v_ids := onceward.new_ids(cardinality(p_payloads));
  if p_keys is not null then
    if cardinality(p_keys) <> cardinality(p_payloads) then
      perform onceward.bad_argument('keys', cardinality(p_keys)::text,
        format('must be as many as payloads (%s)', cardinality(p_payloads)));
    end if;
    v_held := onceward.take_keys(v_tenant, p_task, p_keys, p_key_window, v_ids, p_payloads);
  else
    perform onceward.key_expiry(p_key_window);
    v_held := v_ids;
  end if;

  v_state := case when p_run_at > v_now then 'scheduled'
                  when p_concurrency_key is not null then 'blocked'
                  else 'ready' end;
  if p_after is not null then
    v_flow := onceward.check_after(v_tenant, p_after, p_after_policy, p_workflow_id);
    v_state := 'blocked';
  elsif p_after_policy is distinct from 'fail' then
    perform onceward.check_after_policy(p_after_policy);
  end if;
  v_keyed := case when v_state = 'ready' then 'blocked' else v_state end;
  insert into onceward.job_private
    (id, tenant, lane, task, state, priority, ready_seq, max_attempts, created_at, run_at, payload, expires_at,
     timeout, retry, headers, key, key_is_live, concurrency_key, concurrency_limit, concurrency_hash, workflow_id, parent_id,
     after, after_policy, awaits, line, uses)
  select u.id, v_tenant, p_lane, p_task, case when u.concurrency_key is null then v_state else v_keyed end, p_priority,
         case when v_state = 'ready' and u.concurrency_key is null then nextval('onceward.ready_seq') end,
         p_max_attempts, v_now, coalesce(p_run_at, v_now), u.payload, p_expires_at, p_timeout, p_retry, p_headers,
         u.key, case when u.key is not null then p_key_window = 'live' end,
         coalesce(u.concurrency_key, p_concurrency_key),
         case when u.concurrency_key is null then v_limit else p_concurrency_limit end,
         hashtextextended(v_prefix || coalesce(u.concurrency_key, p_concurrency_key), 0), v_flow, p_parent_id, p_after,
         case when p_after is not null then p_after_policy end, case when p_after is not null then 'jobs' end,
         case when u.uses is not null then onceward.line_of(v_lane.fair, v_tenant, u.uses)
              when v_lane.fair and v_tenant <> 'default' then v_tenant else '' end, u.uses
    from unnest(v_ids, v_held, p_payloads, p_keys, v_uses, p_concurrency_keys)
           as u (id, held, payload, key, uses, concurrency_key)
   where u.id = u.held;

  if p_after is not null then
    perform onceward.add_dependencies(array(select u.id from unnest(v_ids, v_held) as u (id, held) where u.id = u.held), p_after);
  elsif v_state = 'blocked' then
    perform onceward.ask_admission(v_tenant, p_concurrency_key);
  elsif p_concurrency_keys is not null and v_keyed = 'blocked' then
    -- Once for each key and not for each job; the keys of jobs that were there have been asked about.
    -- Not by ask_admission: a thousand calls of it would take a third of the time of the jobs.
    insert into onceward.admission_private (tenant, concurrency_key)
    select distinct v_tenant, u.key
      from unnest(v_ids, v_held, p_concurrency_keys) as u (id, held, key)
     where u.id = u.held and u.key is not null;
  end if;
  if v_lane.audited then
    for v_found in
      select n.state, array_agg(n.id) as ids
        from (select u.id, case when u.concurrency_key is null then v_state else v_keyed end as state
                from unnest(v_ids, v_held, p_concurrency_keys) as u (id, held, concurrency_key)
               where u.id = u.held) as n
       group by n.state
       order by n.state
    loop
      perform onceward.audit('job.enqueued', p_tenant => v_tenant, p_jobs => v_found.ids,
        p_after => jsonb_build_object('state', v_found.state), p_meta => jsonb_build_object('lane', p_lane, 'task', p_task));
    end loop;
  end if;
  if v_state <> 'scheduled' then
    perform onceward.wake(array[p_lane]);
  end if;
  job_ids := v_held;
  if v_held <> v_ids then
    are_new := array(select u.id = u.held from unnest(v_ids, v_held) as u (id, held));
  end if;
end;
$$;
comment on function onceward.enqueue_set(text, jsonb[], text[], text, integer, timestamptz, timestamptz, interval, text, text, integer, integer, jsonb, text, jsonb, uuid[], text, uuid, uuid, jsonb, text[]) is
  'What enqueue_many does, with one answer for all jobs.  are_new: null when all are new.';

-- The same with a row for each job.
create or replace function onceward.enqueue_many(
  p_task              text,
  p_payloads          jsonb[],
  p_keys              text[] default null,
  p_lane              text default 'default',
  p_priority          integer default 0,
  p_run_at            timestamptz default null,
  p_expires_at        timestamptz default null,
  p_timeout           interval default null,
  p_key_window        text default 'live',
  p_concurrency_key   text default null,
  p_concurrency_limit integer default 1,
  p_max_attempts      integer default 8,
  p_retry             jsonb default null,
  p_tenant            text default null,
  p_headers           jsonb default null,
  p_after             uuid[] default null,
  p_after_policy      text default 'fail',
  p_workflow_id       uuid default null,
  p_parent_id         uuid default null,
  p_uses              jsonb default null,
  p_concurrency_keys  text[] default null
)
  returns table (job_id uuid, created boolean, answer text, until timestamptz, reason text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_set record := onceward.enqueue_set(
    p_task, p_payloads, p_keys, p_lane, p_priority, p_run_at, p_expires_at, p_timeout, p_key_window, p_concurrency_key,
    p_concurrency_limit, p_max_attempts, p_retry, p_tenant, p_headers, p_after, p_after_policy, p_workflow_id, p_parent_id, p_uses,
    p_concurrency_keys);
begin
  if v_set.answer = 'rejected' then
    return query select null::uuid, false, v_set.answer, null::timestamptz, v_set.reason from unnest(p_payloads);
    return;
  end if;
  return query
    select u.id, n.is_new, case when n.is_new then v_set.answer else 'existing' end,
           case when n.is_new then v_set.until end, case when n.is_new then v_set.reason end
      from unnest(v_set.job_ids, v_set.are_new) as u (id, is_new)
     cross join lateral (select coalesce(u.is_new, true) as is_new) as n;
end;
$$;
comment on function onceward.enqueue_many(text, jsonb[], text[], text, integer, timestamptz, timestamptz, interval, text, text, integer, integer, jsonb, text, jsonb, uuid[], text, uuid, uuid, jsonb, text[]) is
  'Enqueues many jobs of one task; returns one row per payload, in order.  p_keys and p_concurrency_keys, when given, are one per payload (null for none).  p_uses is a list of limits for all of them, or one list per payload.';

-- Concurrency keys, one per job.  Returns what check_job_arguments is to look at: the one that is wrong, else any, because the
-- limit has its keys also when all of them are null.
create or replace function onceward.check_concurrency_keys(p_keys text[], p_key text, p_count integer)
  returns text
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_key is not null then
    perform onceward.bad_argument('concurrency_key', p_key, 'cannot be given together with concurrency_keys', 'Leave one of them out.');
  end if;
  if cardinality(p_keys) <> p_count then
    perform onceward.bad_argument('concurrency_keys', cardinality(p_keys)::text, format('must be as many as payloads (%s)', p_count));
  end if;
  return coalesce((select u.key from unnest(p_keys) as u (key) where length(u.key) not between 1 and 500 limit 1), 'good');
end;
$$;

-- p_uses as enqueue takes it, for all jobs, or a list of such lists.  Returns one per job, or none at all.
create or replace function onceward.check_many_uses(p_uses jsonb, p_tenant text, p_count integer)
  returns jsonb[]
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_same jsonb;
begin
  if p_uses is null or p_count = 0 then
    return null;
  end if;
  if jsonb_typeof(p_uses) = 'array' and jsonb_typeof(p_uses -> 0) = 'array' then
    if jsonb_array_length(p_uses) <> p_count then
      perform onceward.bad_argument('uses', jsonb_array_length(p_uses)::text, format('must be as many as payloads (%s)', p_count));
    end if;
    -- Most are equal: each kind is checked once.
    return (with given as materialized (
              select u, i from jsonb_array_elements(p_uses) with ordinality as e (u, i)
            ), kinds as materialized (
              select k.u, onceward.check_uses(k.u, p_tenant) as checked from (select distinct g.u from given as g) as k
            )
            select array_agg(k.checked order by g.i) from given as g join kinds as k on k.u = g.u);
  end if;
  v_same := onceward.check_uses(p_uses, p_tenant);
  return array_fill(v_same, array[p_count]);
end;
$$;

-- take_key for a set, in the order of the keys so that two batches cannot deadlock.
create or replace function onceward.take_keys(
  p_tenant   text,
  p_task     text,
  p_keys     text[],
  p_window   text,
  p_job_ids  uuid[],
  p_payloads jsonb[]
)
  returns uuid[]
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_expires timestamptz := onceward.key_expiry(p_window);
  v_hashes  bytea[];
  v_firsts  record;
  v_stale   boolean := false;
  v_bad     record;
  v_one     record;
  v_held    uuid[];
begin
  select key into v_bad from unnest(p_keys) as u (key) where length(key) not between 1 and 500 limit 1;
  if found then
    perform onceward.check_key(v_bad.key);
  end if;
  begin
    -- Mostly nobody has one of the keys, and no two are the same.  Without "on conflict", which costs nearly as much again for
    -- every row: a key that is taken stops the statement, and what it has inserted is given back.
    -- And without a hash if the key goes with its job, which has the payload.
    insert into onceward.key_private (tenant, task, key, job_id, payload_hash, expires_at)
    select p_tenant, p_task, u.key, u.job_id,
           case when p_window <> 'live' then sha256(convert_to(u.payload::text, 'UTF8')) end, v_expires
      from (select b.key, b.job_id, b.payload
              from unnest(p_keys, p_job_ids, case when p_window <> 'live' then p_payloads end) as b (key, job_id, payload)
             where b.key is not null
             order by b.key collate "C") as u;
    return p_job_ids;
  exception
    when unique_violation then
      null;
  end;

  v_hashes := array(select sha256(convert_to(u.payload::text, 'UTF8')) from unnest(p_payloads) as u (payload));
  -- The first job of each key, in the order of the keys.
  select array_agg(f.key) as keys, array_agg(f.job_id) as ids, array_agg(f.hash) as hashes into v_firsts
    from (select distinct on (b.key collate "C") b.key, b.job_id, b.hash
            from unnest(p_keys, p_job_ids, v_hashes) with ordinality as b (key, job_id, hash, i)
           where b.key is not null
           order by b.key collate "C", b.i) as f;
  loop
    -- A round that has to be repeated gives its keys back first: taking more while holding some would break the order.
    begin
      if v_stale then
        -- One after the other: to remove all expired keys first and insert afterwards would break the order.
        for v_one in select f.key, f.job_id, f.hash from unnest(v_firsts.keys, v_firsts.ids, v_firsts.hashes) as f (key, job_id, hash)
        loop
          delete from onceward.key_private as k
           where k.tenant = p_tenant and k.task = p_task and k.key = v_one.key and k.expires_at <= onceward.now();
          insert into onceward.key_private (tenant, task, key, job_id, payload_hash, expires_at)
          values (p_tenant, p_task, v_one.key, v_one.job_id, v_one.hash, v_expires)
              on conflict do nothing;
        end loop;
      else
        insert into onceward.key_private (tenant, task, key, job_id, payload_hash, expires_at)
        select p_tenant, p_task, f.key, f.job_id, f.hash, v_expires
          from unnest(v_firsts.keys, v_firsts.ids, v_firsts.hashes) as f (key, job_id, hash)
            on conflict do nothing;
        if exists (select from onceward.key_private as e
                    where e.tenant = p_tenant and e.task = p_task and e.key = any (p_keys) and e.expires_at <= onceward.now()) then
          v_stale := true;
          raise exception 'some keys have expired' using errcode = 'ZZ000';
        end if;
      end if;

      -- A subquery for each, here and below: joined, the planner compares every key with every other
      -- while the statistics still say that the table is empty.
      select array_agg(case when u.key is null then u.job_id
                            else (select k.job_id from onceward.key_private as k
                                   where k.tenant = p_tenant and k.task = p_task and k.key = u.key) end order by u.i)
        into v_held
        from unnest(p_keys, p_job_ids) with ordinality as u (key, job_id, i);
      exit when array_position(v_held, null) is null;
      raise exception 'a holder finished between the two statements and gave its key back' using errcode = 'ZZ000';
    exception
      when sqlstate 'ZZ000' then
        null;
    end;
  end loop;

  select u.key, u.job_id into v_bad
    from unnest(p_keys, v_hashes, v_held) as u (key, hash, job_id)
   where u.hash <> (select onceward.hash_of_key(k) from onceward.key_private as k
                     where k.tenant = p_tenant and k.task = p_task and k.key = u.key)
   limit 1;
  if found and v_bad.job_id = any (p_job_ids) then
    -- Its job is one of this call, and goes with it.
    raise exception 'key "%" of task "%" stands twice in this call, with different payloads', onceward.shown(v_bad.key), onceward.shown(p_task)
      using errcode = 'OW005',
            detail  = 'Nothing was written.',
            hint    = 'Use another key for different work, or send the same payload.';
  elsif found then
    perform onceward.key_conflict(p_task, v_bad.key, v_bad.job_id);
  end if;
  return v_held;
end;
$$;
