-- Most jobs name only a task, a payload and a lane, and most lanes have neither bounds nor a full audit.  Such a job is one
-- statement: each further one, and each expression of PL/pgSQL, is felt in the time of an enqueue.  Null, and nothing
-- written, says that there is more to look at; then enqueue does it, and says what is wrong.
create or replace function onceward.enqueue_plain(p_task text, p_payload jsonb, p_lane text default 'default')
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id      uuid;
  v_sleeper boolean;
begin
  insert into onceward.job_private as j
    (id, tenant, lane, task, state, priority, ready_seq, max_attempts, created_at, run_at, payload, line)
  select onceward.new_id(), 'default', p_lane, p_task, 'ready', 0, nextval('onceward.ready_seq'), 8, onceward.now(),
         onceward.now(), p_payload, ''
    from onceward.lane_private as l
   where l.name = p_lane and not l.bounded and l.audit <> 'all'
     and pg_column_size(p_payload) <= l.max_payload_bytes
     -- A payload that comes compressed from a table counts in full.
     and pg_column_compression(p_payload) is null
     and jsonb_typeof(p_payload) = 'object'
     -- 201 levels are 201 containers of eight bytes at least: what is smaller needs no look.
     and (pg_column_size(p_payload) < 1600 or not p_payload @? '$.**{201}')
     and coalesce(nullif(current_setting('onceward.tenant', true), '*'), '') = ''
     -- Not as one pattern with {1,200}: that took longer than the insert.
     and length(p_task) between 1 and 200 and p_task !~ '[^A-Za-z0-9_.:/-]'
  returning j.id,
            exists (select from onceward.worker_private as w
                     where w.asleep_until > onceward.now() and w.retired_at is null and p_lane = any (w.lanes))
       into v_id, v_sleeper;
  -- What onceward.wake does.
  if v_sleeper then
    perform pg_notify('onceward', p_lane);
  end if;
  return v_id;
end;
$$;
comment on function onceward.enqueue_plain(text, jsonb, text) is
  'Enqueues one job that has nothing but a task, a payload and a lane, in the caller''s transaction, and returns its id.  Null: nothing was written, because the lane is unknown, bounded or fully audited, a tenant is set, or an argument is wrong; onceward.enqueue tells which.';

-- Enqueue one job, in the caller's transaction.  Takes no lock that another caller could wait for, except
-- on the same idempotency key, where waiting for the other transaction is the point.
create or replace function onceward.enqueue(
  p_task              text,
  p_payload           jsonb default '{}',
  p_lane              text default 'default',
  p_priority          integer default 0,
  p_run_at            timestamptz default null,
  p_expires_at        timestamptz default null,
  p_timeout           interval default null,
  p_key               text default null,
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
  p_node              text default null,
  p_uses              jsonb default null
)
  returns table (job_id uuid, created boolean, answer text, until timestamptz, reason text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant  text;
  v_cap     integer;
  v_state   text;
  v_sleeper boolean;
  v_holder  uuid;
  v_flow    uuid := p_workflow_id;
  v_fair    boolean;
  v_bounded boolean;
  v_line    text;
  v_audit   boolean;
begin
  -- The defaults need no checking.
  if num_nonnulls(p_run_at, p_expires_at, p_timeout, p_retry, p_tenant, p_concurrency_key, p_headers) > 0
     or p_priority is distinct from 0 or p_max_attempts is distinct from 8 or p_concurrency_limit is distinct from 1
     or p_task is null or length(p_task) not between 1 and 200 or p_task ~ '[^A-Za-z0-9_.:/-]' then
    perform onceward.check_job_arguments(p_task, p_priority, p_run_at, p_expires_at, p_timeout, p_max_attempts,
                                         p_retry, p_tenant, p_concurrency_key, p_concurrency_limit, p_headers);
  elsif num_nonnulls(p_key, p_after, p_workflow_id, p_parent_id, p_node, p_uses) = 0 and p_after_policy = 'fail'
        and p_key_window = 'live' then
    job_id := onceward.enqueue_plain(p_task, p_payload, p_lane);
    if job_id is not null then
      created := true;
      answer := 'accepted';
      return next;
      return;
    end if;
  end if;

  -- Everything that has to be known, in one statement: each further one costs a tenth of the whole enqueue.
  -- A job with a concurrency key enters as blocked and is admitted by a worker: admission needs a lock,
  -- and a lock in the caller's transaction could stop the fleet.
  select l.max_payload_bytes,
         case when coalesce(nullif(current_setting('onceward.tenant', true), '*'), '') = ''
              then coalesce(p_tenant, 'default') end,
         case when p_run_at > onceward.now() then 'scheduled'
              when p_concurrency_key is not null then 'blocked'
              else 'ready' end,
         exists (select from onceward.worker_private as w
                  where w.asleep_until > onceward.now() and w.retired_at is null and p_lane = any (w.lanes)),
         l.fair, l.bounded, l.audit = 'all'
    into v_cap, v_tenant, v_state, v_sleeper, v_fair, v_bounded, v_audit
    from onceward.lane_private as l
   where l.name = p_lane;
  if v_cap is null or v_tenant is null or jsonb_typeof(p_payload) is distinct from 'object'
     or pg_column_size(p_payload) > v_cap
     or pg_column_compression(p_payload) is not null
     or (pg_column_size(p_payload) >= 1600 and p_payload @? '$.**{201}') then
    if v_cap is null then
      perform onceward.no_such_lane(p_lane);
    end if;
    perform onceward.check_payload(p_payload);
    -- A payload that comes compressed from a table counts in full.
    if pg_column_size(p_payload) > v_cap
       or (pg_column_compression(p_payload) is not null and octet_length(p_payload::text) > v_cap) then
      perform onceward.payload_too_large(p_payload, v_cap, p_lane);
    end if;
    v_tenant := onceward.tenant_for(p_tenant);
  end if;

  if p_uses is not null then
    p_uses := onceward.check_uses(p_uses, v_tenant);
    v_line := onceward.line_of(v_fair, v_tenant, p_uses);
  end if;
  -- Work that belongs to a job which was accepted before is not turned away.
  if (v_bounded or p_uses is not null) and num_nonnulls(p_after, p_workflow_id, p_parent_id) = 0
     and p_task <> 'onceward.deliver' then
    select g.answer, g.until, g.reason into answer, until, reason
      from onceward.pressure_on(p_lane, v_tenant, p_uses, p_task, p_key) as g;
    if answer = 'rejected' then
      created := false;
      return next;
      return;
    elsif answer = 'deferred' then
      p_run_at := greatest(p_run_at, until);
      until := p_run_at;
      v_state := 'scheduled';
      -- For explain: nobody else knows later why it was put off.
      p_headers := coalesce(p_headers, '{}') || jsonb_build_object('onceward.deferred', reason);
    end if;
  end if;

  if p_key is null and p_key_window is distinct from 'live' then
    -- Of no effect, and yet it must make sense.
    perform onceward.key_expiry(p_key_window);
  elsif p_key is not null then
    job_id := onceward.new_id();
    v_holder := onceward.take_key(v_tenant, p_task, p_key, p_key_window, job_id, p_payload);
    if v_holder <> job_id then
      job_id := v_holder;
      created := false;
      answer := 'existing';
      until := null;
      reason := null;
      return next;
      return;
    end if;
  end if;

  if p_after is not null then
    v_flow := onceward.check_after(v_tenant, p_after, p_after_policy, p_workflow_id);
    v_state := 'blocked';
  elsif p_after_policy is distinct from 'fail' then
    perform onceward.check_after_policy(p_after_policy);
  end if;

  insert into onceward.job_private as j
    (id, tenant, lane, task, state, priority, ready_seq, max_attempts, created_at, run_at, payload, expires_at,
     timeout, retry, headers, key, key_is_live, concurrency_key, concurrency_limit, concurrency_hash, workflow_id, parent_id,
     node, after, after_policy, awaits, line, uses)
  values
    (coalesce(v_holder, onceward.new_id()), v_tenant, p_lane, p_task, v_state, p_priority,
     case when v_state = 'ready' then nextval('onceward.ready_seq') end,
     p_max_attempts, onceward.now(), coalesce(p_run_at, onceward.now()), p_payload, p_expires_at, p_timeout,
     p_retry, p_headers, p_key, case when p_key is not null then p_key_window = 'live' end,
     p_concurrency_key, case when p_concurrency_key is not null then p_concurrency_limit end,
     hashtextextended(v_tenant || E'\x1f' || p_concurrency_key, 0), v_flow, p_parent_id, p_node,
     p_after, case when p_after is not null then p_after_policy end, case when p_after is not null then 'jobs' end,
     -- What line_of does.
     coalesce(v_line, case when v_fair and v_tenant <> 'default' then v_tenant else '' end), p_uses)
  returning j.id, true, coalesce(answer, 'accepted') into job_id, created, answer;

  if p_after is not null then
    perform onceward.add_dependencies(array[job_id], p_after);
  elsif v_state = 'blocked' then
    perform onceward.ask_admission(v_tenant, p_concurrency_key);
  end if;
  if v_audit then
    perform onceward.audit('job.enqueued', p_tenant => v_tenant, p_job_id => job_id,
      p_after => jsonb_build_object('state', v_state), p_meta => jsonb_build_object('lane', p_lane, 'task', p_task));
  end if;
  -- What onceward.wake does.
  if v_sleeper and v_state <> 'scheduled' then
    perform pg_notify('onceward', p_lane);
  end if;
  return next;
end;
$$;
comment on function onceward.enqueue(text, jsonb, text, integer, timestamptz, timestamptz, interval, text, text, text, integer, integer, jsonb, text, jsonb, uuid[], text, uuid, uuid, text, jsonb) is
  'Enqueues one job in the caller''s transaction.  With a key, the same key within its window (live, forever or an interval) gives the same job and created = false; a different payload under the same key is an error (OW005).  With p_after, it waits for other jobs; p_after_policy says what happens when one of them fails (fail, ignore, compensate).  p_uses names the limits that it uses: [{"limit": ..., "key": ..., "weight": ...}].  The answer is accepted, existing, deferred (the job waits until then) or rejected (there is no job); reason says when a bound is passed.';

create or replace function onceward.payload_too_large(p_payload jsonb, p_cap integer, p_lane text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'payload must be at most % bytes in lane "%", got %', p_cap, p_lane,
    greatest(pg_column_size(p_payload), octet_length(p_payload::text))
    using errcode = 'OW003',
          detail  = 'Nothing was written.',
          hint    = 'Store the data elsewhere and enqueue a reference, or raise the lane''s cap with onceward.add_lane.';
end;
$$;

-- Take an idempotency key for a job, or return the job that holds it.  The unique index decides the race:
-- when the winner rolls back, the waiting loser takes the key itself.
create or replace function onceward.take_key(
  p_tenant  text,
  p_task    text,
  p_key     text,
  p_window  text,
  p_job_id  uuid,
  p_payload jsonb
)
  returns uuid
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_expires timestamptz := onceward.key_expiry(p_window);
  v_hash    bytea := sha256(convert_to(p_payload::text, 'UTF8'));
  v_held    record;
begin
  perform onceward.check_key(p_key);
  loop
    select k.job_id, onceward.hash_of_key(k) as payload_hash, k.expires_at into v_held
      from onceward.key_private as k
     where k.tenant = p_tenant and k.task = p_task and k.key = p_key;
    if found and (v_held.expires_at is null or v_held.expires_at > onceward.now()) then
      if v_held.payload_hash <> v_hash then
        perform onceward.key_conflict(p_task, p_key, v_held.job_id);
      end if;
      return v_held.job_id;
    end if;
    if found then
      delete from onceward.key_private as k
       where k.tenant = p_tenant and k.task = p_task and k.key = p_key and k.job_id = v_held.job_id;
    end if;
    insert into onceward.key_private (tenant, task, key, job_id, payload_hash, expires_at)
    values (p_tenant, p_task, p_key, p_job_id, v_hash, v_expires)
        on conflict do nothing;
    if found then
      return p_job_id;
    end if;
    -- Somebody committed the key between the two statements: look again.
  end loop;
end;
$$;

-- The hash of the payload with which a key was taken.  Where it was not kept, the job is there and has that payload.
create or replace function onceward.hash_of_key(p_key onceward.key_private)
  returns bytea
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(p_key.payload_hash, (select sha256(convert_to(j.payload::text, 'UTF8'))
                                         from onceward.job_private as j where j.id = p_key.job_id))
$$;

create or replace function onceward.key_conflict(p_task text, p_key text, p_job_id uuid)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_task = '(workflow)' then
    raise exception 'key "%" is taken by a workflow with different nodes', onceward.shown(p_key)
      using errcode = 'OW005',
            detail  = format('Workflow %s holds the key.', p_job_id),
            hint    = 'Use another key for different work, or send the same nodes.';
  end if;
  raise exception 'key "%" of task "%" is taken by a job with a different payload', onceward.shown(p_key), onceward.shown(p_task)
    using errcode = 'OW005',
          detail  = format('Job %s holds the key.', p_job_id),
          hint    = 'Use another key for different work, or send the same payload.';
end;
$$;
