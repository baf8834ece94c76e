-- Tick: schedules whose moment has come enqueue their jobs.  Run by every worker; any number of them fire each slot once,
-- because the row of the schedule is locked, and the job, the tick and the next moment are written in one transaction.
create or replace function onceward.tick(p_limit integer default 100)
  returns table (fired integer, missed bigint, skipped integer, next_at timestamptz, next_in interval)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_session  text := current_setting('onceward.tenant', true);
  v_schedule onceward.schedule_private;
  v_done     record;
  v_taken    integer := 0;
begin
  perform onceward.check_limit(p_limit);
  fired := 0;
  missed := 0;
  skipped := 0;
  for v_schedule in
    select * from onceward.schedule_private as s
     where s.paused_at is null and s.next_at <= onceward.now()
     order by s.next_at
     limit p_limit
       for update skip locked
  loop
    select * into v_done from onceward.tick_schedule(v_schedule);
    v_taken := v_taken + 1;
    fired := fired + v_done.fired;
    missed := missed + v_done.missed;
    skipped := skipped + v_done.skipped;
    -- The rest is due at once for the next call: no transaction takes long.
    exit when fired >= 250;
  end loop;
  if v_taken > 0 then
    perform set_config('onceward.tenant', coalesce(v_session, ''), true);
  end if;
  -- Those that are due and locked belong to somebody else.
  next_at := (select min(s.next_at) from onceward.schedule_private as s
               where s.paused_at is null and (s.next_at > onceward.now() or v_taken >= p_limit or fired >= 250));
  next_in := case when next_at <= onceward.now() then interval '0' else next_at - onceward.now() end;
  return next;
end;
$$;
comment on function onceward.tick(integer) is
  'Enqueues the jobs of schedules whose moment has come, each slot once, whoever calls.  Returns how many slots fired, were missed and were skipped, and when the next one is due.';

-- Everything that is due of one schedule, which the caller has locked.
create or replace function onceward.tick_schedule(p_schedule onceward.schedule_private)
  returns table (fired integer, missed bigint, skipped integer)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_now    timestamptz := onceward.now();
  v_due    bigint := 1 + onceward.count_ticks(p_schedule.plan, p_schedule.next_at, v_now);
  v_wanted bigint := case when p_schedule.missed = 'all' then least(v_due, p_schedule.catch_up) else 1 end;
  v_tick   record;
  v_last   timestamptz := p_schedule.next_at;
  v_row    onceward.tick_private;
begin
  fired := 0;
  skipped := 0;
  missed := v_due - v_wanted;
  for v_tick in
    select p_schedule.next_slot as slot, p_schedule.next_at as fire_at where missed = 0
    union all
    select t.slot, t.fire_at
      from onceward.plan_ticks(p_schedule.plan, p_schedule.next_at, v_now,
                               least(v_wanted, 250)::integer - (missed = 0)::integer, greatest(missed - 1, 0)) as t
     where least(v_wanted, 250) > (missed = 0)::integer
  loop
    v_last := v_tick.fire_at;
    if p_schedule.missed = 'none' and v_now - v_tick.fire_at > p_schedule.grace then
      missed := missed + 1;
      continue;
    end if;
    v_row := onceward.fire_slot(p_schedule, v_tick.slot, v_tick.fire_at);
    if v_row.outcome = 'fired' then
      fired := fired + 1;
    else
      skipped := skipped + 1;
    end if;
  end loop;
  perform onceward.note_tick(v_row);
  if missed > 0 then
    -- One row stands for all of them.
    insert into onceward.tick_private as t
      (schedule_id, slot, tenant, schedule, fire_at, outcome, slots, reason, ticked_at)
    values
      (p_schedule.id, p_schedule.next_slot, p_schedule.tenant, p_schedule.name, p_schedule.next_at, 'missed', missed,
       format('due %s before the tick; policy %s', date_trunc('second', v_now - p_schedule.next_at), p_schedule.missed), v_now)
        on conflict do nothing;
  end if;
  update onceward.schedule_private as s
     set next_slot = t.slot, next_at = t.fire_at, last_ticked_at = v_now
    from onceward.plan_ticks(p_schedule.plan, v_last, null, 1) as t
   where s.id = p_schedule.id;
  if not found then
    -- No moment within 50 years: it was refused when it was made, unless the zone's rules have changed.
    update onceward.schedule_private as s
       set paused_at = v_now, paused_by = 'onceward', pause_reason = 'it does not fire any more'
     where s.id = p_schedule.id;
    perform onceward.audit_schedule(p_schedule, 'schedule.paused', '{"paused": false}', '{"paused": true}', 'it does not fire any more');
  end if;
  return next;
end;
$$;

-- One slot: its job and its record, which is returned; a slot that has one already gives nothing.
create or replace function onceward.fire_slot(
  p_schedule onceward.schedule_private,
  p_slot     text,
  p_fire_at  timestamptz,
  p_by_hand  boolean default false
)
  returns onceward.tick_private
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_run_at  timestamptz := p_fire_at + p_schedule.jitter * onceward.share(p_schedule.id || p_slot) * (not p_by_hand)::integer;
  v_outcome text := 'fired';
  v_reason  text := case when p_by_hand then 'run by ' || onceward.actor() end;
  v_job     uuid;
  v_refused text;
  v_row     onceward.tick_private;
begin
  if exists (select from onceward.tick_private as t where t.schedule_id = p_schedule.id and t.slot = p_slot) then
    return null;
  end if;
  if p_schedule.overlap = 'skip' and not p_by_hand then
    v_job := onceward.live_job(p_schedule.id);
    if v_job is not null then
      v_outcome := 'skipped';
      v_reason := format('job %s has not ended', v_job);
      v_job := null;
    end if;
  end if;
  if v_outcome = 'fired' then
    begin
      -- For the schedule's tenant, whoever ticks; the callers set it back.
      perform set_config('onceward.tenant', '', true);
      select e.job_id, case when e.answer = 'rejected' then e.reason end into v_job, v_refused
        from onceward.enqueue(
          p_task => p_schedule.task, p_payload => p_schedule.payload, p_lane => p_schedule.lane,
          p_priority => p_schedule.priority, p_run_at => v_run_at,
          p_expires_at => greatest(v_run_at, onceward.now()) + p_schedule.expires_in,
          p_timeout => p_schedule.timeout, p_key => format('schedule/%s/%s', p_schedule.id, p_slot),
          p_concurrency_key => case when p_schedule.overlap = 'queue' then 'schedule:' || p_schedule.name end,
          p_max_attempts => p_schedule.max_attempts, p_retry => p_schedule.retry, p_tenant => p_schedule.tenant,
          p_headers => jsonb_build_object('schedule', p_schedule.name, 'slot', p_slot), p_uses => p_schedule.uses) as e;
      if v_job is null then
        v_outcome := 'failed';
        v_reason := v_refused;
      end if;
    exception
      when others then
        -- What the engine refuses now it refuses again, and must not stop the other schedules.  Anything else may pass.
        if sqlstate !~ '^OW' then
          raise;
        end if;
        v_outcome := 'failed';
        v_reason := sqlerrm;
    end;
  end if;
  insert into onceward.tick_private as t (schedule_id, slot, tenant, schedule, fire_at, outcome, job_id, reason, ticked_at)
  values (p_schedule.id, p_slot, p_schedule.tenant, p_schedule.name, p_fire_at, v_outcome, v_job, v_reason, onceward.now())
  returning t.* into v_row;
  return v_row;
end;
$$;

-- The last tick, where people look for it first.
create or replace function onceward.note_tick(p_tick onceward.tick_private)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  update onceward.schedule_private as s
     set last_slot = p_tick.slot, last_fire_at = p_tick.fire_at, last_ticked_at = p_tick.ticked_at,
         last_outcome = p_tick.outcome, last_job_id = coalesce(p_tick.job_id, s.last_job_id)
   where s.id = p_tick.schedule_id
$$;

-- A job of this schedule that has neither ended nor given up.  The last hundred are looked at.
create or replace function onceward.live_job(p_schedule_id uuid)
  returns uuid
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select j.id
    from (select t.job_id from onceward.tick_private as t
           where t.schedule_id = p_schedule_id
           order by t.ticked_at desc limit 100) as recent
    join onceward.job_private as j on j.id = recent.job_id
   where j.state <> 'dead_letter'
   limit 1
$$;

-- A number from 0 to 1 that is always the same for the same text.
create or replace function onceward.share(p_text text)
  returns double precision
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select ('x' || encode(substring(sha256(convert_to(p_text, 'UTF8')) from 1 for 4), 'hex'))::bit(32)::bigint / 4294967296.0
$$;
