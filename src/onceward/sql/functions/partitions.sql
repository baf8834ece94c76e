-- Archive, attempts and steps are partitioned by day of the job's id, the audit log by its own day.  Partitions are attached ahead of time; rows of a day
-- that has none go to the default partition and stay there.
create or replace function onceward.ensure_partitions(p_days_ahead integer default 14)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
  -- A day is the same for everybody: with bounds at the midnight of each caller's zone, partitions would overlap.
  set timezone = 'UTC'
as $$
declare
  v_parent text;
  v_day    date;
  v_name   text;
  v_made   integer := 0;
  v_key    text;
  v_taken  boolean;
  v_from   text;
  v_to     text;
begin
  if p_days_ahead is null or p_days_ahead not between 0 and 366 then
    perform onceward.bad_argument('days_ahead', p_days_ahead::text, 'must be between 0 and 366');
  end if;
  -- One at a time; whoever comes second finds nothing to do.
  perform pg_advisory_xact_lock(hashtext('onceward.ensure_partitions'));
  foreach v_parent in array array['archive', 'attempt', 'step', 'audit', 'seal_leaf'] loop
    v_key := case v_parent when 'archive' then 'id' when 'audit' then 'at' when 'seal_leaf' then 'day' else 'job_id' end;
    for v_day in select generate_series(current_date - 1, current_date + p_days_ahead, interval '1 day')::date loop
      v_name := format('%s_%s', v_parent, to_char(v_day, 'YYYYMMDD'));
      continue when to_regclass(format('onceward.%I', v_name)) is not null;
      v_from := case when v_parent in ('audit', 'seal_leaf') then v_day::text else onceward.id_at(v_day::timestamptz)::text end;
      v_to := case when v_parent in ('audit', 'seal_leaf') then (v_day + 1)::text else onceward.id_at((v_day + 1)::timestamptz)::text end;
      execute format('select exists (select from onceward.%I where %I >= %L and %I < %L)', v_parent || '_default', v_key, v_from, v_key, v_to)
         into v_taken;
      continue when v_taken;
      -- Attached, not created in place: attaching does not stop readers and writers of the parent.
      execute format('create table onceward.%I (like onceward.%I including all)', v_name, v_parent || '_private');
      execute format('alter table onceward.%I enable row level security, force row level security', v_name);
      -- What an upgrade would make it, which would lock it against everybody.
      perform onceward.keep_owner_policies(v_name);
      execute format('alter table onceward.%I attach partition onceward.%I for values from (%L) to (%L)',
                     v_parent || '_private', v_name, v_from, v_to);
      v_made := v_made + 1;
    end loop;
  end loop;
  return v_made;
end;
$$;
comment on function onceward.ensure_partitions(integer) is
  'Attaches the daily partitions of archive, attempts, steps and the audit log for the days ahead.  Called by workers; harmless to repeat.';

-- Rows that nobody needs any more.
create or replace function onceward.tidy(p_limit integer default 1000)
  returns integer
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_count integer := 0;
  v_part  integer;
  v_rule  record;
  v_jobs  uuid[];
  v_after uuid[];
begin
  perform onceward.check_limit(p_limit);
  -- What has a time of its own; everything else goes by the hour, with onceward.retain_due.
  for v_rule in
    select k.*, onceward.now() - r.keep as before
      from onceward.retention_kinds() as k join onceward.retention_private as r on r.kind = k.kind
     where k.kind in ('keys', 'events') and r.keep is not null
  loop
    v_count := v_count + onceward.remove_rows(
      v_rule.rows_of || '_private', v_rule.may_go, v_rule.in_order_of, v_rule.before, onceward.held_tenants(), p_limit, false)::integer;
  end loop;

  with free as materialized (
     select f.tenant, f.concurrency_key from onceward.concurrency_private as f
      where not exists (select from onceward.job_private as j
                         where j.concurrency_hash = hashtextextended(f.tenant || E'\x1f' || f.concurrency_key, 0)
                           and j.tenant = f.tenant and j.concurrency_key = f.concurrency_key
                           and j.awaits is null and j.state in ('blocked', 'ready', 'running'))
      order by f.tenant, f.concurrency_key
      limit p_limit
        for update skip locked
  )
  delete from onceward.concurrency_private as c
   using free
   where c.tenant = free.tenant and c.concurrency_key = free.concurrency_key;
  get diagnostics v_part = row_count;
  v_count := v_count + v_part;

  -- Edges of jobs that were cancelled or requeued while they waited.  Looked at again once they are locked: one of those
  -- jobs may have begun to wait anew.
  with idle as materialized (
    select d.job_id, d.after_id from onceward.dependency_private as d
     where not exists (select from onceward.job_private as j where j.id = d.job_id and j.awaits in ('jobs', 'join'))
     order by d.job_id, d.after_id limit p_limit for update skip locked
  )
  select array_agg(i.job_id), array_agg(i.after_id) into v_jobs, v_after from idle as i;
  delete from onceward.dependency_private as d
   using unnest(v_jobs, v_after) as i (job_id, after_id)
   where d.job_id = i.job_id and d.after_id = i.after_id
     and not exists (select from onceward.job_private as j where j.id = d.job_id and j.awaits in ('jobs', 'join'));
  get diagnostics v_part = row_count;
  v_count := v_count + v_part;

  with old as materialized (
    select h.limit_name, h.key, h.holder from onceward.hold_private as h
     where h.expires_at < onceward.now()
     order by h.expires_at limit p_limit for update skip locked
  )
  delete from onceward.hold_private as h
   using old
   where h.limit_name = old.limit_name and h.key = old.key and h.holder = old.holder;
  get diagnostics v_part = row_count;
  perform onceward.sample_limits();
  return v_count + v_part;
end;
$$;
comment on function onceward.tidy(integer) is
  'Notes the levels of limits, once a minute.  Removes keys and events past their time, concurrency keys and dependencies without jobs, and holds of limits past their lease.  Returns how many rows.';
