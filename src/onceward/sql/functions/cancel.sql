-- Cancel: at once when the job is not running, else by asking the worker, which hears of it with its next heartbeat.
create or replace function onceward.cancel(
  p_job_id uuid,
  p_reason text default null,
  p_epoch  bigint default null
)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_job onceward.job_private;
begin
  select * into v_job from onceward.job_private as j where j.id = p_job_id for update;
  if not found then
    return onceward.cancel_of_finished(p_job_id, p_epoch);
  end if;
  -- Workers serve every tenant, and name the epoch of a job they hold.
  if p_epoch is null or not pg_has_role(onceward.caller(), 'onceward_worker', 'usage') then
    perform onceward.check_tenant(v_job.tenant);
  end if;
  if p_epoch is not null and (v_job.state <> 'running' or v_job.epoch <> p_epoch) then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  if v_job.state = 'dead_letter' then
    perform onceward.wrong_state('cancel', p_job_id, v_job.state, 'Requeue or resolve a dead letter.');
  end if;

  if v_job.state = 'running' and p_epoch is null then
    update onceward.job_private as j
       set cancel_at = coalesce(j.cancel_at, onceward.now()), cancel_reason = coalesce(j.cancel_reason, left(p_reason, 2000))
     where j.id = p_job_id;
    if v_job.cancel_at is null then
      perform onceward.audit_job(v_job, 'job.cancel_requested', 'running', p_reason);
    end if;
    return 'cancelling';
  end if;
  perform onceward.end_cancelled(v_job, coalesce(p_reason, v_job.cancel_reason));
  if p_epoch is not null then
    perform onceward.give_place(v_job);
  elsif v_job.state = 'ready' and v_job.concurrency_key is not null then
    -- In the caller's transaction: the lock that admission needs could stop the fleet.
    perform onceward.ask_admission(v_job.tenant, v_job.concurrency_key);
  end if;
  return 'cancelled';
end;
$$;
comment on function onceward.cancel(uuid, text, bigint) is
  'Cancels a job: at once (returns cancelled) when it is not running, else its worker is asked to stop (returns cancelling).  With an epoch, the worker that holds the job ends it as cancelled.';

create or replace function onceward.end_cancelled(p_job onceward.job_private, p_reason text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_job.state = 'running' then
    perform onceward.record_attempt(p_job, 'cancelled', jsonb_build_object('message', left(p_reason, 2000)), null);
  end if;
  perform onceward.archive_one(p_job.id, 'cancelled', p_reason);
end;
$$;

create or replace function onceward.cancel_of_finished(p_job_id uuid, p_epoch bigint)
  returns text
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_state  text;
  v_tenant text;
  v_epoch  bigint;
begin
  select a.state, a.tenant, a.epoch into v_state, v_tenant, v_epoch
    from onceward.archive_private as a where a.id = p_job_id;
  if not found then
    perform onceward.no_such_job(p_job_id);
  end if;
  if p_epoch is null or not pg_has_role(onceward.caller(), 'onceward_worker', 'usage') then
    perform onceward.check_tenant(v_tenant);
  end if;
  if p_epoch is not null then
    if v_state = 'cancelled' and v_epoch = p_epoch
       and exists (select from onceward.attempt_private as t
                    where t.job_id = p_job_id and t.epoch = p_epoch and t.outcome = 'cancelled') then
      return 'cancelled';
    end if;
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  if v_state <> 'cancelled' then
    perform onceward.wrong_state('cancel', p_job_id, v_state, 'A finished job cannot be cancelled.');
  end if;
  return v_state;
end;
$$;

create or replace function onceward.no_such_job(p_job_id uuid)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'job % does not exist', p_job_id
    using errcode = 'OW006',
          hint    = 'Look for it with "onceward job list".';
end;
$$;

create or replace function onceward.wrong_state(p_action text, p_job_id uuid, p_state text, p_hint text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'cannot % job %', p_action, p_job_id
    using errcode = 'OW007', detail = format('Job %s is in state "%s".', p_job_id, p_state), hint = p_hint;
end;
$$;
