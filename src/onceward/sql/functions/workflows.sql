-- Workflows: jobs that belong together, because one waits for or was spawned by another, or because they were enqueued as one.

-- p_nodes: [{"name": ..., "task": ..., "payload": {...}, "after": [names], ... options of enqueue}, ...]
-- The key of a workflow stands among those of jobs, under a name that no task can have.
create or replace function onceward.enqueue_workflow(
  p_nodes jsonb, p_tenant text default null, p_key text default null, p_key_window text default 'forever'
)
  returns table (node text, job_id uuid, workflow_id uuid, created boolean)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_workflow uuid := onceward.new_id();
  v_holder   uuid;
  v_ids      jsonb := '{}';
  v_nodes    jsonb;
  v_name     text;
  v_node     jsonb;
  v_after    uuid[];
begin
  perform onceward.check_nodes(p_nodes);
  if p_key is not null then
    if p_key_window is not distinct from 'live' then
      perform onceward.bad_argument('key_window', p_key_window, 'must be forever or an interval, for a workflow',
        'Jobs of a workflow may come and go; give the time in which a repetition may arrive.');
    end if;
    v_holder := onceward.take_key(onceward.tenant_for(p_tenant), '(workflow)', p_key, p_key_window, v_workflow, p_nodes);
    if v_holder <> v_workflow then
      return query
        select n ->> 'name', j.id, v_holder, false
          from jsonb_array_elements(p_nodes) with ordinality as u (n, i)
          left join onceward.jobs as j on j.node = n ->> 'name' and j.id = any (array(
            select m.job_id from onceward.workflow_members as m where m.workflow_id = v_holder))
         order by u.i;
      return;
    end if;
  end if;
  v_nodes := (select jsonb_object_agg(n ->> 'name', n) from jsonb_array_elements(p_nodes) as n);
  foreach v_name in array onceward.node_order(p_nodes) loop
    v_node := v_nodes -> v_name;
    v_after := array(select (v_ids ->> a)::uuid from jsonb_array_elements_text(coalesce(v_node -> 'after', '[]')) as a);
    select e.job_id into job_id
      from onceward.enqueue(
        p_task => v_node ->> 'task',
        p_payload => coalesce(v_node -> 'payload', '{}'),
        p_lane => coalesce(v_node ->> 'lane', 'default'),
        p_priority => coalesce((v_node ->> 'priority')::integer, 0),
        p_run_at => (v_node ->> 'run_at')::timestamptz,
        p_timeout => (v_node ->> 'timeout')::interval,
        p_max_attempts => coalesce((v_node ->> 'max_attempts')::integer, 8),
        p_retry => v_node -> 'retry',
        p_tenant => p_tenant,
        p_headers => v_node -> 'headers',
        p_concurrency_key => v_node ->> 'concurrency_key',
        p_concurrency_limit => coalesce((v_node ->> 'concurrency_limit')::integer, 1),
        p_after => nullif(v_after, '{}'),
        p_after_policy => coalesce(v_node ->> 'after_policy', 'fail'),
        p_workflow_id => v_workflow,
        p_node => v_name,
        p_uses => v_node -> 'uses') as e;
    v_ids := v_ids || jsonb_build_object(v_name, job_id);
  end loop;
  return query
    select n ->> 'name', (v_ids ->> (n ->> 'name'))::uuid, v_workflow, true
      from jsonb_array_elements(p_nodes) with ordinality as u (n, i) order by u.i;
exception
  -- A time that is none, a number with letters in it: only the field of a node can be meant.
  when invalid_text_representation or invalid_datetime_format or datetime_field_overflow or interval_field_overflow
       or numeric_value_out_of_range then
    perform onceward.bad_argument('nodes', v_node::text, format('must have valid fields, in node "%s" (%s)', v_name, sqlerrm));
end;
$$;
comment on function onceward.enqueue_workflow(jsonb, text, text, text) is
  'Enqueues jobs that wait for each other, all or none: a list of nodes with name, task, payload, after (names) and options of enqueue.  A cycle is refused (OW012) and named.  With a key, the same key within its window (forever or an interval) gives the same workflow and created = false; other nodes under it are an error (OW005).  Returns the job of each node.';

create or replace function onceward.check_nodes(p_nodes jsonb)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_known text[] := array['name', 'task', 'payload', 'after', 'after_policy', 'lane', 'priority', 'run_at', 'timeout',
                          'max_attempts', 'retry', 'concurrency_key', 'concurrency_limit', 'uses', 'headers'];
  v_bad   text;
  v_other text;
begin
  if jsonb_typeof(p_nodes) is distinct from 'array' or jsonb_array_length(p_nodes) not between 1 and 1000 then
    perform onceward.bad_argument('nodes', left(p_nodes::text, 100), 'must be a list of 1 to 1000 nodes',
      'Enqueue thousands of equal jobs with onceward.enqueue_many, and one that waits for them with p_after.');
  end if;
  select n::text into v_bad from jsonb_array_elements(p_nodes) as n
   where jsonb_typeof(n) <> 'object' or coalesce(n ->> 'name', '') !~ '^[^[:cntrl:]]{1,200}$' or n ->> 'task' is null
      or jsonb_typeof(coalesce(n -> 'after', '[]')) <> 'array'
   limit 1;
  if found then
    perform onceward.bad_argument('nodes', v_bad, 'must be objects with a name and a task; after is a list of names');
  end if;
  select k, n ->> 'name' into v_bad, v_other
    from jsonb_array_elements(p_nodes) as n cross join jsonb_object_keys(n) as k where k <> all (v_known) limit 1;
  if found then
    perform onceward.bad_argument('nodes', v_bad, format('cannot have this field, in node "%s"', v_other),
      'Fields: ' || array_to_string(v_known, ', ') || '.');
  end if;
  select n ->> 'name' into v_bad from jsonb_array_elements(p_nodes) as n group by 1 having count(*) > 1 limit 1;
  if found then
    perform onceward.bad_argument('nodes', v_bad, 'must have names of their own');
  end if;
  select n ->> 'name', a into v_other, v_bad
    from jsonb_array_elements(p_nodes) as n cross join jsonb_array_elements_text(coalesce(n -> 'after', '[]')) as a
   where a not in (select m ->> 'name' from jsonb_array_elements(p_nodes) as m)
   limit 1;
  if found then
    perform onceward.bad_argument('nodes', v_bad, format('must be the name of a node, in after of node "%s"', v_other));
  end if;
end;
$$;

-- Names such that each comes after those that it waits for.
create or replace function onceward.node_order(p_nodes jsonb)
  returns text[]
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_order text[] := '{}';
  v_left  jsonb;
  v_next  text[];
  v_path  text[];
  v_at    text;
begin
  select jsonb_object_agg(n ->> 'name', coalesce(n -> 'after', '[]')) into v_left from jsonb_array_elements(p_nodes) as n;
  while v_left <> '{}' loop
    -- Those that wait for nobody keep the order in which they were given.
    select array_agg(n.name order by n.i) into v_next
      from (select u.node ->> 'name' as name, u.i from jsonb_array_elements(p_nodes) with ordinality as u (node, i)) as n
     where v_left ? n.name
       and not exists (select from jsonb_array_elements_text(v_left -> n.name) as a where v_left ? a);
    if v_next is null then
      -- Everybody who is left waits for somebody who is left: walk until a name comes again.
      v_at := (select l.key from jsonb_each(v_left) as l limit 1);
      while array_position(v_path, v_at) is null loop
        v_path := v_path || v_at;
        v_at := (select a from jsonb_array_elements_text(v_left -> v_at) as a where v_left ? a limit 1);
      end loop;
      v_path := v_path[array_position(v_path, v_at):] || v_at;
      raise exception 'workflow has a cycle: %', array_to_string(v_path, ' waits for ')
        using errcode = 'OW012', detail = 'Nothing was written.', hint = 'Take one of these names out of "after".';
    end if;
    v_order := v_order || v_next;
    v_left := v_left - v_next;
  end loop;
  return v_order;
end;
$$;

create or replace function onceward.no_such_workflow(p_workflow_id uuid)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'workflow % does not exist', p_workflow_id
    using errcode = 'OW006', hint = 'Look for it with "onceward workflow list".';
end;
$$;

-- The jobs of a workflow that the session may act for: its own, and the job whose id it bears.  An id says nothing about
-- the tenant, so somebody else's jobs may name it too.
create or replace function onceward.jobs_of_workflow(p_workflow_id uuid)
  returns table (id uuid, state text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := nullif(onceward.current_tenant(), '*');
  v_other  text;
begin
  return query
    select m.job_id, m.state from onceward.workflow_members as m
     where m.workflow_id = p_workflow_id and (v_tenant is null or m.tenant = v_tenant)
     order by m.job_id;
  if found then
    perform onceward.check_tenant(m.tenant) from onceward.workflow_members as m
      where m.workflow_id = p_workflow_id and (v_tenant is null or m.tenant = v_tenant) limit 1;
    return;
  end if;
  -- Not from the view, which shows the session's tenant alone.
  select m.tenant into v_other
    from (select j.tenant from onceward.job_private as j where j.workflow_id = p_workflow_id
          union all
          select a.tenant from onceward.archive_private as a where a.workflow_id = p_workflow_id) as m
   limit 1;
  if found then
    perform onceward.check_tenant(v_other);
  end if;
  perform onceward.no_such_workflow(p_workflow_id);
end;
$$;

create or replace function onceward.cancel_workflow(p_workflow_id uuid, p_reason text default null)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job   record;
  v_count integer := 0;
begin
  -- In the order in which everybody locks jobs.
  for v_job in
    select w.id from onceward.jobs_of_workflow(p_workflow_id) as w
     where w.state in ('scheduled', 'ready', 'blocked', 'running') order by w.id
  loop
    -- One that has ended meanwhile needs no cancelling.
    perform from onceward.job_private as j where j.id = v_job.id and j.state <> 'dead_letter' for update;
    if found then
      perform onceward.cancel(v_job.id, p_reason);
      v_count := v_count + 1;
    end if;
  end loop;
  return v_count;
end;
$$;
comment on function onceward.cancel_workflow(uuid, text) is
  'Cancels every job of a workflow that has not ended; those that run are asked to stop.  Returns how many.';

create or replace function onceward.requeue_workflow(p_workflow_id uuid)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id    uuid;
  v_job   onceward.job_private;
  v_count integer := 0;
begin
  for v_id in
    select w.id from onceward.jobs_of_workflow(p_workflow_id) as w where w.state in ('dead_letter', 'cancelled') order by w.id
  loop
    perform onceward.requeue(v_id);
    select * into v_job from onceward.job_private as j where j.id = v_id;
    if v_job.after is not null then
      -- Again after those that it waited for; what has ended well counts at once.
      update onceward.job_private as j set state = 'blocked', ready_seq = null, awaits = 'jobs' where j.id = v_id;
      delete from onceward.dependency_private as d where d.job_id = v_id;
      perform onceward.add_dependencies(array[v_id], v_job.after);
      perform onceward.audit_job(v_job, 'job.waiting', 'blocked');
    end if;
    v_count := v_count + 1;
  end loop;
  return v_count;
end;
$$;
comment on function onceward.requeue_workflow(uuid) is
  'Runs the dead letters and cancelled jobs of a workflow again, each after those that it waits for.  Returns how many.';
