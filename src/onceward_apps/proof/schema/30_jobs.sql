-- Proof jobs: the engine's jobs of the task proof.generate, in the words of the contract.

select onceward.declare_lanes(array['proof']);

create or replace function raw_ops.fn_enqueue_proof_job_of(p_batch_id uuid)
  returns uuid
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := raw_ops.fn_be_tenant('default');
  v_job    uuid;
begin
  select e.job_id into v_job
    from onceward.enqueue(
      'proof.generate', jsonb_build_object('batch_id', p_batch_id),
      p_lane         => 'proof',
      p_key          => 'proof:batch:' || p_batch_id,
      p_key_window   => 'forever',
      p_max_attempts => 5,
      -- The next cycle comes 30 seconds later.
      p_retry        => '{"waits": [30]}',
      p_timeout      => interval '5 minutes') as e;
  insert into raw_ops.proof_job_links (batch_id, job_id) values (p_batch_id, v_job)
      on conflict do nothing;
  perform raw_ops.fn_be_tenant(v_tenant);
  return v_job;
end;
$$;

create or replace function raw_ops.fn_enqueue_proof_job()
  returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform raw_ops.fn_enqueue_proof_job_of(new.id);
  return new;
end;
$$;
create or replace trigger trigger_enqueue_proof_job
  after insert on raw_ops.batches
  for each row execute function raw_ops.fn_enqueue_proof_job();

-- Batches that were brought in without the trigger (a restore, a copy) get their job with the next cycle.
create or replace function raw_ops.fn_enqueue_missing_proof_jobs_v1(p_limit integer default 100)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_batch uuid;
  v_count integer := 0;
begin
  for v_batch in
    select b.id from raw_ops.batches as b
     where b.created_at > onceward.now() - interval '90 days'
       and (b.qr_image_url is null or b.label_pdf_url is null)
       and not exists (select from raw_ops.proof_job_links as l where l.batch_id = b.id)
     order by b.created_at
     limit p_limit
       for update skip locked
  loop
    perform raw_ops.fn_enqueue_proof_job_of(v_batch);
    v_count := v_count + 1;
  end loop;
  return v_count;
end;
$$;
comment on function raw_ops.fn_enqueue_missing_proof_jobs_v1(integer) is
  'Enqueues the proof job of recent batches that have neither assets nor a job.  Returns how many.';

-- The six states.  A job that waits for its email to leave is at work; one that was rescued has failed and is tried again.
create or replace function raw_ops.fn_proof_state(p_state text, p_awaits text, p_attempt integer)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_state = 'running' or p_awaits = 'join' then 'claimed'
    when p_state in ('done', 'dead_letter') then p_state
    when p_state in ('resolved', 'cancelled') then 'resolved_manual'
    when p_attempt = 0 then 'queued'
    else 'failed'
  end
$$;

-- The six categories, from what a program reported or from the type of a handler's error.
create or replace function raw_ops.fn_error_category(p_error jsonb)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_error is null then null
    when p_error ->> 'category' in ('qr_generation', 'storage_upload', 'pdf_generation', 'email_delivery', 'db_error', 'unknown')
      then p_error ->> 'category'
    when p_error ->> 'type' like '%QrGeneration%' then 'qr_generation'
    when p_error ->> 'type' like '%StorageUpload%' then 'storage_upload'
    when p_error ->> 'type' like '%PdfGeneration%' then 'pdf_generation'
    when p_error ->> 'type' like '%EmailDelivery%' then 'email_delivery'
    when p_error ->> 'type' like '%Database%' then 'db_error'
    else 'unknown'
  end
$$;

-- When the work of the present attempt began: it may have been put off several times since, without failing.
create or replace function raw_ops.fn_attempt_began(p_job_id uuid)
  returns timestamptz
  -- Functions of a view run with the rights of its reader, who may not read the engine.
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select min(a.started_at)
    from onceward.attempts as a
   where a.job_id = p_job_id
     and a.epoch > coalesce((select max(b.epoch) from onceward.attempts as b
                              where b.job_id = p_job_id and b.outcome not in ('suspended', 'snoozed', 'running', 'done')), 0)
$$;

-- Of a job that is done: what the program that did it has reported, or how long its last attempt took.
create or replace function raw_ops.fn_duration_ms(p_job_id uuid, p_result jsonb, p_finished_at timestamptz)
  returns integer
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select coalesce((p_result ->> 'processing_duration_ms')::numeric::integer,
                  (extract(epoch from p_finished_at - raw_ops.fn_attempt_began(p_job_id)) * 1000)::integer)
$$;

create or replace view raw_ops.proof_jobs as
select l.job_id as id,
       l.batch_id,
       'proof:batch:' || l.batch_id as job_key,
       raw_ops.fn_proof_state(j.state, j.awaits, j.attempt) as state,
       j.attempt + case when j.awaits = 'join' then 1 else 0 end as attempts,
       j.max_attempts,
       coalesce(case when j.state = 'cancelled' then j.note end, j.last_error ->> 'message') as last_error,
       raw_ops.fn_error_category(j.last_error) as error_category,
       case when j.state = 'done' then raw_ops.fn_duration_ms(j.id, j.result, j.finished_at) end as processing_duration_ms,
       exists (select from onceward.steps as s where s.job_id = l.job_id and s.name = 'qr_generated' and s.state = 'done') as qr_generated,
       exists (select from onceward.steps as s where s.job_id = l.job_id and s.name = 'qr_uploaded' and s.state = 'done') as qr_uploaded,
       exists (select from onceward.steps as s where s.job_id = l.job_id and s.name = 'label_generated' and s.state = 'done') as label_generated,
       exists (select from onceward.steps as s where s.job_id = l.job_id and s.name = 'label_uploaded' and s.state = 'done') as label_uploaded,
       exists (select from onceward.steps as s where s.job_id = l.job_id and s.name = 'email_sent' and s.state = 'done') as email_sent,
       j.created_at,
       greatest(j.created_at, j.started_at, j.finished_at,
                (select max(a.ended_at) from onceward.attempts as a where a.job_id = l.job_id),
                (select max(s.finished_at) from onceward.steps as s where s.job_id = l.job_id)) as updated_at,
       coalesce(raw_ops.fn_attempt_began(l.job_id), j.started_at,
                (select max(a.started_at) from onceward.attempts as a where a.job_id = l.job_id)) as claimed_at,
       case when j.state = 'done' then j.finished_at end as completed_at,
       -- Beyond the contract: names the claim, for programs that want their late reports refused.
       j.epoch
  from raw_ops.proof_job_links as l
  join onceward.jobs as j on j.id = l.job_id;
comment on view raw_ops.proof_jobs is
  'Proof generation, one row per batch: state, attempts and which of the five steps are done.  A view of the engine''s jobs.';

-- What became of jobs, as lines of the audit log.
create or replace view raw_ops.proof_job_events as
with job as (
  select l.job_id, l.batch_id, l.created_at as linked_at, b.batch_code, j.state, j.attempt, j.max_attempts, j.finished_at,
         j.result, j.note, jsonb_build_object('batch_code', b.batch_code, 'batch_id', l.batch_id, 'job_id', l.job_id) as meta
    from raw_ops.proof_job_links as l
    join raw_ops.batches as b on b.id = l.batch_id
    join onceward.jobs as j on j.id = l.job_id
), line as (
  select j.job_id, j.batch_id, 'enqueued' as what, 'INFO' as kind, 'Proof job enqueued' as message, j.meta, j.linked_at as at
    from job as j
  union all
  select j.job_id, j.batch_id, 'attempt ' || a.epoch,
         case a.outcome when 'dead_letter' then 'ERROR' else 'EXCEPTION' end,
         case a.outcome when 'dead_letter' then format('Proof job moved to dead letter queue after %s attempts', a.attempt)
                        else format('Proof job failed (attempt %s/%s)', a.attempt, j.max_attempts) end,
         j.meta || jsonb_build_object('error', a.message, 'attempts', a.attempt, 'max_attempts', j.max_attempts,
           'error_category', raw_ops.fn_error_category(jsonb_build_object('type', a.error_type, 'category', a.category)),
           -- What was done when it failed.
           'step_progress', (select jsonb_object_agg(f.name, exists (
              select from onceward.steps as s where s.job_id = j.job_id and s.name = f.name and s.state = 'done' and s.finished_at <= a.ended_at))
             from unnest(array['qr_generated', 'qr_uploaded', 'label_generated', 'label_uploaded', 'email_sent']) as f (name))),
         a.ended_at
    from job as j
    join onceward.attempts as a on a.job_id = j.job_id and a.outcome in ('failed', 'rescued', 'dead_letter')
  union all
  select j.job_id, j.batch_id, 'ended', 'INFO',
         case j.state when 'done' then 'Proof job completed successfully'
                      when 'resolved' then 'Proof job manually resolved' else 'Proof job cancelled' end,
         j.meta || case j.state when 'done' then coalesce(j.result, '{}') - 'processing_duration_ms'
                      || jsonb_build_object('duration_ms', raw_ops.fn_duration_ms(j.job_id, j.result, j.finished_at))
                    else jsonb_build_object('resolution_note', j.note, 'previous_state', 'dead_letter',
                      'asset_check_skipped', coalesce(j.note like '%; check overridden: %', false)) end,
         j.finished_at
    from job as j
   where j.finished_at is not null
)
select md5(l.job_id || ' ' || l.what)::uuid as id, 'proof_job' as entity_type, l.batch_id as entity_id, l.kind, l.message,
       l.meta, l.at as created_at
  from line as l;

create or replace view raw_ops.ops_events as
select e.id, e.entity_type, e.entity_id, e.kind, e.message, e.meta, e.created_at from raw_ops.ops_event_log as e
union all
select p.id, p.entity_type, p.entity_id, p.kind, p.message, p.meta, p.created_at from raw_ops.proof_job_events as p
 -- Those that are about to go are written down already.
 where not exists (select from raw_ops.ops_event_log as e where e.id = p.id);
comment on view raw_ops.ops_events is
  'The audit trail: what people and functions did, and what became of each job, as the engine has recorded it.';
