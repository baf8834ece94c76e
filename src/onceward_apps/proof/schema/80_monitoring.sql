-- Monitoring: the health check with every threshold of its table, and the five saved questions.

create or replace function raw_ops.fn_proof_figures()
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'stuck_claimed', count(*) filter (where p.state = 'claimed' and p.claimed_at < onceward.now() - interval '5 minutes'),
    'dead_letter_count', count(*) filter (where p.state = 'dead_letter'),
    'failed_count', count(*) filter (where p.state = 'failed'),
    'partial_completion_count', count(*) filter (where p.state in ('failed', 'dead_letter')
      and (p.qr_generated or p.label_generated) and not (p.qr_uploaded and p.label_uploaded and p.email_sent)),
    'avg_duration_ms', coalesce(round(avg(p.processing_duration_ms) filter (where p.state = 'done' and p.completed_at > onceward.now() - interval '24 hours')), 0),
    'queue_depth', count(*) filter (where p.state in ('queued', 'failed') and p.attempts < p.max_attempts),
    'completed_24h', count(*) filter (where p.state = 'done' and p.completed_at > onceward.now() - interval '24 hours'))
    from raw_ops.proof_jobs as p
   -- What ended longer ago cannot count.
   where p.state <> 'resolved_manual' and (p.completed_at is null or p.completed_at > onceward.now() - interval '24 hours')
$$;

-- The worst that holds, or null.
create or replace function raw_ops.fn_proof_alert(p_figures jsonb)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  with level as (
    select * from (values
      (1, (p_figures ->> 'dead_letter_count')::integer > 0, 'ops-urgent', 'critical', 'Proof System: Dead Letter Jobs',
       (p_figures ->> 'dead_letter_count') || ' proof job(s) in dead letter queue. Manual intervention required.'),
      (2, (p_figures ->> 'stuck_claimed')::integer > 0, 'ops-urgent', 'critical', 'Proof System: Stuck Jobs',
       (p_figures ->> 'stuck_claimed') || ' proof job(s) stuck in claimed state for >5 minutes.'),
      (3, (p_figures ->> 'partial_completion_count')::integer > 0, 'ops-alerts', 'warning', 'Proof System: Partial Completions',
       (p_figures ->> 'partial_completion_count') || ' proof job(s) with partial step completion.'),
      (4, (p_figures ->> 'failed_count')::integer > 3, 'ops-alerts', 'warning', 'Proof System: Elevated Failures',
       (p_figures ->> 'failed_count') || ' proof job(s) in failed state awaiting retry.'),
      (5, (p_figures ->> 'avg_duration_ms')::numeric > 60000, 'ops-alerts', 'warning', 'Proof System: Slow Processing',
       'Proof jobs took ' || (p_figures ->> 'avg_duration_ms') || 'ms on average in the last 24 hours (limit 60000ms).')
    ) as l (place, holds, channel, severity, title, message)
     where l.holds order by l.place limit 1
  )
  select jsonb_build_object('channel', l.channel, 'severity', l.severity, 'title', l.title, 'message', l.message,
    'fields', (select jsonb_agg(jsonb_build_object('label', f.label, 'value', f.value, 'inline', true))
      from (values ('Dead Letter', p_figures ->> 'dead_letter_count'), ('Stuck', p_figures ->> 'stuck_claimed'),
                   ('Failed', p_figures ->> 'failed_count'), ('Partial', p_figures ->> 'partial_completion_count'),
                   ('Queue', p_figures ->> 'queue_depth'), ('Avg Duration', (p_figures ->> 'avg_duration_ms') || 'ms')) as f (label, value)))
    from level as l
$$;

create or replace function raw_ops.fn_check_proof_system_health_v2()
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_began   timestamptz := clock_timestamp();
  v_figures jsonb;
  v_alert   jsonb;
  v_error   text;
  v_took    integer;
  v_run     uuid;
begin
  begin
    v_figures := raw_ops.fn_proof_figures();
    v_alert := raw_ops.fn_proof_alert(v_figures);
  exception
    when others then
      v_error := sqlerrm;
  end;
  v_took := round(extract(epoch from clock_timestamp() - v_began) * 1000);
  -- Outside the block that may have failed: a failed run leaves its row.
  insert into raw_ops.monitoring_runs
    (check_name, status, duration_ms, alert_triggered, result_summary, result_json, error_message)
  values
    ('proof_system_health', case when v_error is null then 'success' else 'error' end, v_took, v_alert is not null,
     format('Queue: %s, Done 24h: %s, Failed: %s, DLQ: %s', v_figures ->> 'queue_depth', v_figures ->> 'completed_24h',
            v_figures ->> 'failed_count', v_figures ->> 'dead_letter_count'),
     v_figures, v_error)
  returning id into v_run;
  if v_error is not null then
    return jsonb_build_object('success', false, 'run_id', v_run, 'check_name', 'proof_system_health', 'error', v_error,
                              'duration_ms', v_took);
  end if;
  return jsonb_build_object('success', true, 'run_id', v_run, 'check_name', 'proof_system_health', 'duration_ms', v_took,
                            'alert_config', v_alert);
end;
$$;
comment on function raw_ops.fn_check_proof_system_health_v2() is
  'Looks at the proof pipeline, writes a row of monitoring_runs and returns what to tell whom (alert_config), or null.  A run that fails is recorded, too.';

-- The same thresholds as a monitor of the engine: each condition an alert that is opened once, acknowledged, silenced, and
-- closed by itself.
create or replace function raw_ops.fn_proof_findings(p_thresholds jsonb)
  returns table (key text, summary text, severity text, value numeric, tenant text)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  with figures as (select raw_ops.fn_proof_figures() as f)
  select c.key, c.summary, c.severity, c.value, 'default'
    from figures as g
   cross join lateral (values
     ('dead_letters', (g.f ->> 'dead_letter_count') || ' proof job(s) in dead letter queue. Manual intervention required.', 'critical',
      (g.f ->> 'dead_letter_count')::numeric, p_thresholds ->> 'dead_letters'),
     ('stuck', (g.f ->> 'stuck_claimed') || ' proof job(s) stuck in claimed state for >5 minutes.', 'critical',
      (g.f ->> 'stuck_claimed')::numeric, p_thresholds ->> 'stuck'),
     ('partial_completions', (g.f ->> 'partial_completion_count') || ' proof job(s) with partial step completion.', 'warning',
      (g.f ->> 'partial_completion_count')::numeric, p_thresholds ->> 'partial_completions'),
     ('failed', (g.f ->> 'failed_count') || ' proof job(s) in failed state awaiting retry.', 'warning',
      (g.f ->> 'failed_count')::numeric, p_thresholds ->> 'failed'),
     ('slow', 'Proof jobs took ' || (g.f ->> 'avg_duration_ms') || 'ms on average in the last 24 hours.', 'warning',
      (g.f ->> 'avg_duration_ms')::numeric, p_thresholds ->> 'average_ms')) as c (key, summary, severity, value, threshold)
   -- A threshold that is off is null.
   where c.value > c.threshold::numeric
$$;
select onceward.add_monitor(
  'proof_system_health', 'raw_ops.fn_proof_findings(jsonb)', p_every => interval '5 minutes',
  p_description => 'Proof jobs: dead letters, stuck, partly done, failing, slow',
  p_thresholds => '[
    {"name": "dead_letters", "value": 0, "description": "more dead letters than this: critical"},
    {"name": "stuck", "value": 0, "description": "more jobs than this claimed for 5 minutes: critical"},
    {"name": "partial_completions", "value": 0, "description": "more jobs than this with some of their steps done"},
    {"name": "failed", "value": 3, "description": "more failed jobs than this wait for their next attempt"},
    {"name": "average_ms", "value": 60000, "description": "jobs of 24 hours took more milliseconds than this on average"}]');

-- 1. State distribution, last 7 days.
create or replace view raw_ops.proof_queue_status as
select s.state, count(p.id) as jobs, min(p.created_at) as oldest
  from (values ('queued', 1), ('claimed', 2), ('failed', 3), ('dead_letter', 4), ('resolved_manual', 5), ('done', 6)) as s (state, place)
  left join raw_ops.proof_jobs as p on p.state = s.state and p.created_at > onceward.now() - interval '7 days'
 group by s.state, s.place
 order by s.place;
comment on view raw_ops.proof_queue_status is 'Jobs of the last 7 days by state.';

-- 2. Duration per day, 7 days.
create or replace view raw_ops.proof_duration_trend as
select d.day::date as day, round(avg(p.processing_duration_ms)) as avg_ms, max(p.processing_duration_ms) as max_ms, count(p.id) as completed
  from generate_series(date_trunc('day', onceward.now() at time zone 'UTC') - interval '6 days',
                       date_trunc('day', onceward.now() at time zone 'UTC'), interval '1 day') as d (day)
  left join raw_ops.proof_jobs as p
    on p.state = 'done' and p.completed_at >= d.day at time zone 'UTC' and p.completed_at < (d.day + interval '1 day') at time zone 'UTC'
 group by d.day
 order by d.day;
comment on view raw_ops.proof_duration_trend is 'Average and longest duration and number of jobs done, per day (UTC) of the last 7.';

-- 3. Dead letters, retries and resolutions per day, 30 days.
create or replace view raw_ops.proof_failure_history as
select d.day::date as day,
       count(e.id) filter (where e.message like 'Proof job moved to dead letter%') as dead_letters,
       count(e.id) filter (where e.message like 'Proof job failed%') as retried,
       count(e.id) filter (where e.message = 'Proof job manually resolved') as resolved
  from generate_series(date_trunc('day', onceward.now() at time zone 'UTC') - interval '29 days',
                       date_trunc('day', onceward.now() at time zone 'UTC'), interval '1 day') as d (day)
  left join raw_ops.ops_events as e
    on e.entity_type = 'proof_job' and e.created_at >= d.day at time zone 'UTC' and e.created_at < (d.day + interval '1 day') at time zone 'UTC'
 group by d.day
 order by d.day;
comment on view raw_ops.proof_failure_history is 'Dead letters, failures that were tried again and resolutions, per day (UTC) of the last 30.';

-- 4. Jobs with some steps done and some not.
create or replace view raw_ops.proof_partial_completions as
select b.batch_code, p.id, p.batch_id, p.state, p.attempts, p.max_attempts, p.error_category, p.last_error,
       p.qr_generated, p.qr_uploaded, p.label_generated, p.label_uploaded, p.email_sent, p.updated_at
  from raw_ops.proof_jobs as p
  join raw_ops.batches as b on b.id = p.batch_id
 where p.state in ('failed', 'dead_letter')
   and (p.qr_generated or p.label_generated)
   and not (p.qr_uploaded and p.label_uploaded and p.email_sent)
 order by p.created_at;
comment on view raw_ops.proof_partial_completions is 'Jobs that failed with some of their steps done.';

-- 5. Batches per week and status, 12 weeks.
create or replace view raw_ops.proof_batch_volume as
select w.week::date as week, s.status, count(b.id) as batches, coalesce(sum(b.kg_produced), 0) as kg
  from generate_series(date_trunc('week', onceward.now() at time zone 'UTC') - interval '11 weeks',
                       date_trunc('week', onceward.now() at time zone 'UTC'), interval '1 week') as w (week)
 cross join (values ('RELEASED', 1), ('QA_HOLD', 2), ('REJECTED', 3)) as s (status, place)
  left join raw_ops.batches as b
    on b.status = s.status and b.created_at >= w.week at time zone 'UTC' and b.created_at < (w.week + interval '1 week') at time zone 'UTC'
 group by w.week, s.status, s.place
 order by w.week, s.place;
comment on view raw_ops.proof_batch_volume is 'Batches and kilograms by status, per week (UTC) of the last 12.';

-- Retention: proof jobs 90 days, label PDFs 2 years; batches, results, QR codes and the audit trail stay.
create or replace function raw_ops.fn_apply_retention_v1(p_limit integer default 1000)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_old      uuid[];
  v_counters integer;
  v_answer   jsonb;
begin
  v_old := array(
    select l.batch_id from raw_ops.proof_job_links as l left join onceward.jobs as j on j.id = l.job_id
     where l.created_at < onceward.now() - interval '90 days'
       -- Ended so long ago, or gone from the engine.
       and coalesce(j.finished_at, case when j.id is null then l.created_at end) < onceward.now() - interval '90 days'
     order by l.created_at limit p_limit);
  -- The audit trail is for ever: what it shows of jobs is written down before they go, here or in the engine, which
  -- keeps ended jobs for 90 days as well and may be earlier by some hours.
  insert into raw_ops.ops_event_log (id, entity_type, entity_id, kind, message, meta, created_at)
  select e.id, e.entity_type, e.entity_id, e.kind, e.message, e.meta, e.created_at
    from raw_ops.proof_job_events as e
   where e.entity_id in (select l.batch_id from raw_ops.proof_job_links as l join onceward.jobs as j on j.id = l.job_id
                          where l.created_at < onceward.now() - interval '80 days' and j.finished_at < onceward.now() - interval '80 days'
                          order by l.created_at limit p_limit)
      on conflict do nothing;
  delete from raw_ops.proof_job_links as l where l.batch_id = any (v_old);
  delete from raw_ops.proof_claims as k
   where k.job_id in (select c.job_id from raw_ops.proof_claims as c
                       where c.claimed_at < onceward.now() - interval '1 day' order by c.job_id limit p_limit);
  with old as materialized (
    select c.bucket, c.window_start from raw_ops.proof_event_counters as c
     where c.window_start < onceward.now() - interval '2 days' order by 1, 2 limit p_limit for update skip locked)
  delete from raw_ops.proof_event_counters as c using old as o where c.bucket = o.bucket and c.window_start = o.window_start;
  get diagnostics v_counters = row_count;
  v_answer := jsonb_build_object('proof_jobs', cardinality(v_old), 'event_counters', v_counters);
  if cardinality(v_old) > 0 then
    perform raw_ops.fn_log_event('retention', null, 'INFO', format('Retention removed %s proof jobs', cardinality(v_old)), v_answer);
  end if;
  return v_answer;
end;
$$;
comment on function raw_ops.fn_apply_retention_v1(integer) is
  'Removes ended proof jobs after 90 days, having copied their lines into the audit trail.  Returns and logs what it removed.';

create or replace function raw_ops.fn_expired_labels_v1(p_limit integer default 100)
  returns table (batch_id uuid, batch_code text, label_pdf_url text)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select b.id, b.batch_code, b.label_pdf_url from raw_ops.batches as b
   where b.label_pdf_url is not null and b.created_at < onceward.now() - interval '2 years'
   order by b.created_at limit p_limit
$$;
comment on function raw_ops.fn_expired_labels_v1(integer) is 'Batches whose label PDF is older than 2 years.';

-- Called when the file is gone.
create or replace function raw_ops.fn_forget_label_v1(p_batch_id uuid)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_code text;
begin
  update raw_ops.batches as b set label_pdf_url = null, updated_at = onceward.now()
   where b.id = p_batch_id and b.label_pdf_url is not null and b.created_at < onceward.now() - interval '2 years'
  returning b.batch_code into v_code;
  if found then
    perform raw_ops.fn_log_event('batch', p_batch_id, 'INFO', 'Retention removed the label PDF of batch ' || v_code,
                                 jsonb_build_object('batch_code', v_code));
    return true;
  end if;
  return false;
end;
$$;
comment on function raw_ops.fn_forget_label_v1(uuid) is 'Forgets the label of a batch whose file was removed after 2 years.  Returns whether it had one.';
