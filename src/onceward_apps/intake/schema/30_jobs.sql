-- Jobs: the engine's, in the words of the contract.  Numbers stand in system_configuration and nowhere else (H6).

-- Tenants, which are profiles here, take turns: five hundred uploads of one do not make the others wait.
select onceward.declare_lanes(array['fast_queue', 'ai_queue', 'standard_queue']);

-- The types of the contract, their lanes, and what their payloads must name.
create or replace function intake.job_types()
  returns table (job_type text, job_lane text, must_name text)
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  values ('shell_file_processing', 'fast_queue', 'shell_file_id'),
         ('ai_processing', 'ai_queue', 'shell_file_id'),
         ('data_migration', 'standard_queue', null),
         ('audit_cleanup', 'standard_queue', null),
         ('system_maintenance', 'standard_queue', null),
         ('notification_delivery', 'standard_queue', null),
         ('report_generation', 'standard_queue', null),
         ('backup_operation', 'standard_queue', null),
         ('semantic_processing', 'ai_queue', 'shell_file_id'),
         ('consent_verification', 'standard_queue', null),
         ('provider_verification', 'standard_queue', null)
$$;
comment on function intake.job_types() is 'The job types that enqueue_job_v3 takes, and the lane of each.';

-- 2, 4, 8 … seconds up to 64, each job with its own jitter of up to a tenth, so that what failed together comes back apart.
create or replace function intake.retry_policy()
  returns jsonb
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'waits', (select jsonb_agg(round((least(power(2, n), 64) * (1 + random() * 0.1))::numeric, 3) order by n)
                from generate_series(1, greatest(1, intake.setting_number('worker.max_retries', 6)::integer)) as n),
    'max_snoozes', intake.setting_number('worker.max_snoozes', 200)::integer)
$$;

-- Every job of the system is enqueued here.
create or replace function intake.enqueue_task(
  p_task text, p_payload jsonb, p_lane text, p_tenant text, p_priority integer default 5, p_run_at timestamptz default null,
  p_key text default null, p_uses jsonb default null
)
  returns table (job_id uuid, created boolean)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_before  text := intake.be_tenant(p_tenant);
  v_timeout numeric := case p_lane
    when 'fast_queue' then intake.setting_number('worker.fast_queue_timeout_ms', 120000)
    when 'ai_queue' then intake.setting_number('worker.ai_queue_timeout_ms', 600000)
    else 1000 * intake.setting_number('worker.timeout_seconds', 300) end;
begin
  select e.job_id, e.created into job_id, created
    from onceward.enqueue(
      p_task, p_payload, p_lane => p_lane, p_priority => p_priority, p_run_at => p_run_at,
      p_key => p_key, p_key_window => case when p_key is null then 'live' else 'forever' end,
      p_max_attempts => 1 + intake.setting_number('worker.max_retries', 6)::integer,
      p_retry => intake.retry_policy(), p_timeout => make_interval(secs => v_timeout::double precision / 1000),
      p_uses => p_uses) as e;
  perform intake.be_tenant(v_before);
  return next;
end;
$$;

-- A whole number between 1 and a million, or the default; anything else is refused with its name (H12).
create or replace function intake.checked_tokens(p_payload jsonb)
  returns integer
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_given jsonb := p_payload -> 'estimated_tokens';
begin
  if v_given is null or v_given = 'null' then
    return 1000;
  end if;
  if jsonb_typeof(v_given) <> 'number' or (v_given #>> '{}')::numeric not between 1 and 1000000
     or (v_given #>> '{}')::numeric % 1 <> 0 then
    raise exception 'job_payload.estimated_tokens must be a whole number from 1 to 1000000' using errcode = 'OW008';
  end if;
  return (v_given #>> '{}')::integer;
end;
$$;

-- The names of the contract outside; inside, aliases that no column has (H1).
create or replace function intake.enqueue_job_v3(
  job_type     text,
  job_name     text,
  job_payload  jsonb,
  job_category text default 'standard',
  priority     integer default 5,
  scheduled_at timestamptz default null
)
  returns intake.enqueued_job
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  p_type     alias for $1;
  p_name     alias for $2;
  p_payload  alias for $3;
  p_category alias for $4;
  p_priority alias for $5;
  p_at       alias for $6;
  v_type     record;
  v_file     uuid := intake.as_uuid(p_payload ->> 'shell_file_id');
  v_profile  uuid;
  v_payload  jsonb;
  v_delay    integer := 0;
  v_at       timestamptz := coalesce(p_at, onceward.now());
  v_job      intake.enqueued_job;
begin
  select * into v_type from intake.job_types() as t where t.job_type = p_type;
  if not found then
    raise exception 'job type "%" is not known', left(coalesce(p_type, 'null'), 60)
      using errcode = 'OW008', hint = 'Known: ' || (select string_agg(t.job_type, ', ') from intake.job_types() as t);
  end if;
  if p_name is null or length(p_name) not between 1 and 200 then
    raise exception 'job_name must have 1 to 200 characters' using errcode = 'OW008';
  end if;
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' or p_payload = '{}' then
    raise exception 'job_payload must be an object with at least one field' using errcode = 'OW008';
  end if;
  if v_type.must_name is not null and v_file is null then
    raise exception 'job_payload.% must be an id', v_type.must_name using errcode = 'OW008';
  end if;
  if p_priority is null or p_priority not between 1 and 10 then
    raise exception 'priority must be between 1 and 10, got %', coalesce(p_priority::text, 'null') using errcode = 'OW008';
  end if;
  if p_category is null or p_category !~ '^[a-z_]{1,40}$' then
    raise exception 'job_category must be a word in small letters' using errcode = 'OW008';
  end if;
  if v_file is not null then
    select f.patient_id into v_profile from intake.shell_files as f where f.id = v_file;
    if not found then
      raise exception 'file % does not exist', v_file using errcode = 'no_data_found';
    end if;
  end if;
  v_payload := p_payload || jsonb_build_object('estimated_tokens', intake.checked_tokens(p_payload),
    'job_name', p_name, 'job_category', p_category,
    'correlation_id', coalesce(intake.as_uuid(p_payload ->> 'correlation_id'), gen_random_uuid()));
  if v_type.job_lane = 'ai_queue' then
    v_delay := intake.backpressure_delay(v_payload);
    v_at := v_at + make_interval(secs => v_delay);
  end if;
  v_job.scheduled_at := v_at;
  select e.job_id into v_job.job_id
    from intake.enqueue_task('intake.' || p_type, v_payload, v_type.job_lane, coalesce(v_profile::text, 'default'), p_priority,
                             case when v_at > onceward.now() then v_at end,
                             -- A file waits for its turn before it begins, and not within its time.
                             p_uses => case when p_type = 'shell_file_processing' then '[{"limit": "intake:fast_queue"}]'::jsonb end) as e;
  perform intake.log_audit_event('job_queue', v_job.job_id::text, 'INSERT', null,
    jsonb_build_object('job_type', p_type, 'job_id', v_job.job_id, 'scheduled_at', v_at,
                       'correlation_id', v_payload ->> 'correlation_id', 'backpressure_delay_seconds', v_delay),
    'Job enqueued with correlation tracking', 'system', v_profile);
  return v_job;
end;
$$;
comment on function intake.enqueue_job_v3(text, text, jsonb, text, integer, timestamptz) is
  'Enqueues a job of a known type and returns its id and when it is due: later, when the provider that its payload names is under pressure.';

create or replace function intake.job_status(p_state text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  -- One state machine: failed is the dead letter, and has dead_letter_at.
  select case p_state when 'running' then 'processing' when 'done' then 'completed' when 'resolved' then 'completed'
                      when 'dead_letter' then 'failed' when 'cancelled' then 'cancelled' else 'pending' end
$$;

create or replace view intake.job_queue as
select j.id,
       split_part(j.task, '.', 2) as job_type,
       j.lane as job_lane,
       coalesce(j.payload ->> 'job_name', split_part(j.task, '.', 2)) as job_name,
       coalesce(j.payload ->> 'job_category', 'standard') as job_category,
       j.payload as job_payload,
       -- A job that waits for its passes is at work.
       case when j.awaits = 'join' then 'processing' else intake.job_status(j.state) end as status,
       j.priority,
       j.run_at as scheduled_at,
       j.started_at,
       j.finished_at as completed_at,
       greatest(0, j.attempt - case when j.state = 'scheduled' then 0 else 1 end) as retry_count,
       j.max_attempts - 1 as max_retries,
       coalesce(c.worker_id, w.name) as worker_id,
       -- When the claim ends unless there is a sign of life (H3).
       case when j.state = 'running' then w.expires_at end as heartbeat_at,
       d.dead_at as dead_letter_at,
       j.last_error as error_details,
       j.result as job_result,
       j.snoozes as reschedule_count,
       intake.as_uuid(j.payload ->> 'shell_file_id') as shell_file_id,
       j.payload ->> 'correlation_id' as correlation_id,
       j.created_at,
       greatest(j.created_at, j.started_at, j.finished_at, d.dead_at) as updated_at
  from onceward.jobs as j
  left join onceward.workers as w on w.id = j.worker_id
  left join onceward.dead_letters as d on d.id = j.id
  left join intake.job_claims as c on c.job_id = j.id and c.epoch = j.epoch
 where j.lane in ('fast_queue', 'ai_queue', 'standard_queue') and j.task like 'intake.%';
comment on view intake.job_queue is 'The queue, as the engine has it, in the words of the contract.';
