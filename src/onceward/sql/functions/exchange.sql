-- Finish a set and claim the next, in one round trip.  Safe to repeat: a job that this epoch has already
-- finished counts as finished.  Returns claimed jobs, and a row for each finish that came too late
-- (outcome `lost`), and one row `expired` when the worker's own lease is over and it may claim nothing.
create or replace function onceward.exchange(
  p_worker_id uuid,
  p_job_ids   uuid[] default '{}',
  p_epochs    bigint[] default '{}',
  p_results   jsonb[] default null,
  p_lanes     text[] default '{}',
  p_limits    integer[] default null,
  p_max       integer default 0,
  p_floors    jsonb default null,
  p_sleep     boolean default false
)
  returns table (
    outcome text, job_id uuid, epoch bigint, task text, payload jsonb, lane text, priority smallint,
    ready_seq bigint, attempt integer, max_attempts integer, tenant text, timeout interval,
    headers jsonb, key text
  )
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A caller's open transaction may hold the job for long; a worker has other things to do.
  set lock_timeout = '2s'
as $$
declare
  v_count integer := 0;
begin
  if cardinality(p_job_ids) > 0 then
    return query
      select 'lost'::text, l.job_id, l.epoch, null::text, null::jsonb, null::text, null::smallint, null::bigint,
             null::integer, null::integer, null::text, null::interval, null::jsonb, null::text
        from onceward.finish_done(p_job_ids, p_epochs, p_results) as l;
  end if;

  if p_max > 0 then
    if not onceward.worker_is_live(p_worker_id) then
      return query
        select 'expired'::text, null::uuid, null::bigint, null::text, null::jsonb, null::text, null::smallint,
               null::bigint, null::integer, null::integer, null::text, null::interval,
               null::jsonb, null::text;
      return;
    end if;
    return query
      select 'claimed'::text, j.id, j.epoch, j.task, j.payload, j.lane, j.priority, j.ready_seq, j.attempt,
             j.max_attempts, j.tenant, j.timeout, j.headers, j.key
        from onceward.claim_lanes(p_worker_id, p_lanes, p_limits, p_max, p_floors) as j;
    get diagnostics v_count = row_count;
  end if;

  -- Written when a worker falls asleep and renewed twice a minute, not at every empty poll.  Only a hint: whoever has
  -- the row locked may be waiting for a job that was finished above.
  if p_sleep and v_count = 0 then
    update onceward.worker_private as w
       set asleep_until = onceward.now() + interval '1 minute'
     where w.id = (select f.id from onceward.worker_private as f
                    where f.id = p_worker_id
                      and (f.asleep_until is null or f.asleep_until < onceward.now() + interval '30 seconds')
                      for update skip locked);
  elsif not p_sleep and v_count > 0 and v_count >= p_max then
    update onceward.worker_private as w
       set asleep_until = null
     where w.id = (select f.id from onceward.worker_private as f
                    where f.id = p_worker_id and f.asleep_until is not null
                      for update skip locked);
  end if;
end;
$$;
comment on function onceward.exchange(uuid, uuid[], bigint[], jsonb[], text[], integer[], integer, jsonb, boolean) is
  'Finishes a set of jobs as done and claims the next, in one round trip.  Finishes that came too late are returned with outcome lost.';
