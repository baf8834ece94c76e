-- Explain: why is this job not running?
-- Each reason is a function of its own, why_…, with one row when it applies and none otherwise.  `reasons` asks them in order:
-- the first row is the answer, and those after it are what the job would meet next.  A new reason is a function and a line there.
-- Every look is bounded: a question about one job must not read a lane of ten million.

create or replace function onceward.explain(p_job_id uuid)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_job   onceward.job_private;
  v_ended onceward.archive_private;
begin
  if p_job_id is null then
    perform onceward.bad_argument('job_id', null, 'must name a job');
  end if;
  select * into v_job from onceward.job_private as j where j.id = p_job_id;
  if found and onceward.sees_tenant(v_job.tenant) then
    return query select r.* from onceward.reasons(v_job) as r;
    return;
  end if;
  select * into v_ended from onceward.archive_private as a where a.id = p_job_id;
  if found and onceward.sees_tenant(v_ended.tenant) then
    return query select r.* from onceward.why_ended(v_ended) as r;
    return;
  end if;
  -- A job of another tenant is answered like one that was never there.
  return query select r.* from onceward.why_unknown(p_job_id) as r;
end;
$$;
comment on function onceward.explain(uuid) is
  'Why a job is not running, or what became of it: a reason, a sentence, details, until when, and what to do.  The first row is the answer; the others are what it would meet next.';

create or replace function onceward.reasons(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if p_job.state = 'dead_letter' then
    return query select r.* from onceward.why_dead_letter(p_job) as r;
    return;
  end if;
  if p_job.state = 'running' then
    return query select r.* from onceward.why_lease_over(p_job) as r;
    return query select r.* from onceward.why_cancelling(p_job) as r;
    return query select r.* from onceward.why_running(p_job) as r;
    return;
  end if;

  -- What the job itself waits for.
  return query select r.* from onceward.why_expired(p_job) as r;
  return query select r.* from onceward.why_waits_for_event(p_job) as r;
  return query select r.* from onceward.why_waits_for_jobs(p_job) as r;
  return query select r.* from onceward.why_waits_for_time(p_job) as r;
  return query select r.* from onceward.why_waits_for_key(p_job) as r;
  -- What its lane waits for.
  return query select r.* from onceward.why_lane_paused(p_job) as r;
  return query select r.* from onceward.why_no_worker(p_job) as r;
  return query select r.* from onceward.why_no_worker_for_task(p_job) as r;
  return query select r.* from onceward.why_lane_full(p_job) as r;
  return query select r.* from onceward.why_waits_for_limit(p_job) as r;
  -- Everything is there, and others come first.
  return query select r.* from onceward.why_turn(p_job) as r;
  return query select r.* from onceward.why_new_version(p_job) as r;
end;
$$;
