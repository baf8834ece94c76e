-- Retention: how long each kind of data is kept.  Whole days of archive, attempts and steps are dropped as partitions;
-- elsewhere rows are deleted, so many at a time.  Nothing of a live job, and nothing of a tenant under a hold, is removed.

-- The kinds, and which of their rows may go: $1 is the time before which, $2 the tenants that are held.
-- `rows_of` names the table; with `day_of`, it is partitioned by the day of that column.
create or replace function onceward.retention_kinds()
  returns table (kind text, rows_of text, day_of text, may_go text, in_order_of text, keep interval, least_keep interval, description text)
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  values
    ('archive', 'archive', 'id', 't.finished_at < $1 and t.tenant <> all ($2)', 't.id', interval '90 days', interval '1 day',
     'ended jobs, since their end'),
    ('attempts', 'attempt', 'job_id',
     't.ended_at < $1 and t.tenant <> all ($2) and not onceward.job_is_kept(t.job_id, $1)', 't.job_id',
     interval '90 days', interval '1 day', 'attempts, since the end of their job'),
    ('steps', 'step', 'job_id',
     'coalesce(t.finished_at, t.started_at) < $1 and t.tenant <> all ($2) and not onceward.job_is_kept(t.job_id, $1)', 't.job_id',
     interval '90 days', interval '1 day', 'steps, since the end of their job'),
    ('deliveries', 'delivery', null,
     't.ended_at < $1 and t.state <> ''uncertain'' and t.tenant <> all ($2) '
     'and not exists (select from onceward.job_private as j where j.id = t.id)', 't.ended_at',
     interval '90 days', interval '1 day', 'the ledger of outside effects, since their end; uncertain ones stay'),
    ('contents', 'delivery_content', null,
     't.id < onceward.id_at($1) and t.tenant <> all ($2) '
     'and not exists (select from onceward.job_private as j where j.id = t.id) '
     'and not exists (select from onceward.delivery_private as d where d.id = t.id and d.state = ''uncertain'')', 't.id',
     interval '30 days', interval '1 hour', 'addresses and contents of deliveries that have ended'),
    ('payload_edits', 'payload_edit', null,
     't.edited_at < $1 and t.tenant <> all ($2) and not exists (select from onceward.job_private as j where j.id = t.job_id)',
     't.edited_at', interval '90 days', interval '1 hour', 'payloads as they were before an operator changed them'),
    -- By whole days, and not by rows: see retain_audit.
    ('audit', 'audit', 'at', null, null, null, interval '30 days',
     'the audit log, by whole days: what is sealed and covered by an exported checkpoint'),
    ('ticks', 'tick', null, 't.ticked_at < $1 and t.tenant <> all ($2)', 't.ticked_at', interval '30 days', interval '1 day',
     'what became of each slot of a schedule'),
    ('runs', 'run', null,
     't.since < $1 and coalesce(t.finished_at, t.expires_at) < $1 and t.tenant <> all ($2)', 't.since',
     interval '30 days', interval '30 days', 'run keys, since their end'),
    ('keys', 'key', null, 't.expires_at <= $1 and t.tenant <> all ($2)', 't.expires_at', interval '0', interval '0',
     'idempotency keys, since their window is over; those that are taken for ever stay'),
    ('events', 'event', null, 't.expires_at <= $1 and t.tenant <> all ($2)', 't.expires_at', interval '0', interval '0',
     'events, since they expired'),
    ('workers', 'worker', null,
     't.retired_at < $1 and not exists (select from onceward.job_private as j where j.state = ''running'' and j.worker_id = t.id)',
     't.id', interval '7 days', interval '1 hour', 'workers, since their end'),
    ('monitor_runs', 'monitor_run', null, 't.started_at < $1 and t.ended_at is not null', 't.started_at',
     interval '7 days', interval '1 hour', 'runs of monitors'),
    ('alerts', 'alert', null, 't.closed_at < $1 and coalesce(t.tenant, '''') <> all ($2)', 't.closed_at',
     interval '1 year', interval '1 hour', 'alerts, since they were closed'),
    ('silences', 'silence', null, 't.until < $1 and coalesce(t.tenant, '''') <> all ($2)', 't.until',
     interval '90 days', interval '1 hour', 'silences, since their end'),
    ('assignments', 'assignment', null, 't.assigned_at < $1 and coalesce(t.tenant, '''') <> all ($2)', 't.assigned_at',
     interval '1 year', interval '1 day', 'who looks after a kind of failure, since it was said'),
    ('comments', 'comment', null, 't.said_at < $1 and coalesce(t.tenant, '''') <> all ($2)', 't.said_at',
     interval '1 year', interval '1 day', 'what people say about dead letters'),
    ('limit_levels', 'limit_level', null, 't.at < $1', 't.at', interval '2 days', interval '1 hour',
     'what was left of limits, minute by minute'),
    ('removals', 'removal', null, 't.removed_at < $1', 't.removed_at', interval '1 year', interval '1 day',
     'what retention has removed')
$$;

create or replace function onceward.declare_retention()
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  insert into onceward.retention_private as r (kind, description, keep, default_keep, least_keep, next_at)
  select k.kind, k.description, k.keep, k.keep, k.least_keep, onceward.now() + interval '10 minutes'
    from onceward.retention_kinds() as k
      on conflict (kind) do update
     set description = excluded.description, default_keep = excluded.default_keep, least_keep = excluded.least_keep,
         keep = case when r.set_at is null then excluded.keep else r.keep end;
  delete from onceward.retention_private as r
   where r.kind not in (select k.kind from onceward.retention_kinds() as k);
$$;

create or replace function onceward.check_retention_kind(p_kind text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if not exists (select from onceward.retention_private as r where r.kind = p_kind) then
    perform onceward.bad_argument('kind', p_kind,
      'must be one of ' || (select string_agg(r.kind, ', ' order by r.kind) from onceward.retention_private as r));
  end if;
end;
$$;

create or replace function onceward.set_retention(p_kind text, p_keep interval)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_least interval;
  v_was   interval;
begin
  perform onceward.check_retention_kind(p_kind);
  select r.least_keep, r.keep into v_least, v_was from onceward.retention_private as r where r.kind = p_kind for update;
  if p_keep < v_least or p_keep > interval '100 years' then
    perform onceward.bad_argument('keep', p_keep::text, format('must be between %s and 100 years, or null for ever', v_least));
  end if;
  update onceward.retention_private as r
     set keep = p_keep, set_at = onceward.now(), set_by = onceward.actor(), next_at = onceward.now()
   where r.kind = p_kind;
  perform onceward.audit_setting('retention', p_kind, jsonb_build_object('keep', v_was), jsonb_build_object('keep', p_keep));
end;
$$;
comment on function onceward.set_retention(text, interval) is
  'Sets how long a kind of data is kept; null keeps it for ever.  Upgrades leave it alone.';

-- The job lives, or ended after this time.
create or replace function onceward.job_is_kept(p_job_id uuid, p_before timestamptz)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select exists (select from onceward.job_private as j where j.id = p_job_id)
      or exists (select from onceward.archive_private as a where a.id = p_job_id and a.finished_at >= p_before)
$$;

-- Tenants that are held.  Locked against new holds until this transaction ends: when hold_tenant returns, nothing more goes.
create or replace function onceward.held_tenants()
  returns text[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
  set jit = off
  -- Somebody's open transaction may have made one.
  set lock_timeout = '2s'
as $$
begin
  lock table onceward.legal_hold_private in share mode;
  return array(select h.tenant from onceward.legal_hold_private as h where h.released_at is null order by h.tenant);
end;
$$;

-- Rows of one table, at most so many; p_range keeps to one partition of it.
create or replace function onceward.remove_rows(
  p_table text, p_may_go text, p_order text, p_before timestamptz, p_held text[], p_limit integer, p_dry_run boolean,
  p_range text default 'true'
)
  returns bigint
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_count bigint;
begin
  if p_dry_run then
    execute format('select count(*) from (select from onceward.%I as t where %s and %s order by %s limit $3) as c',
                   p_table, p_range, p_may_go, p_order)
       into v_count using p_before, p_held, p_limit;
  else
    execute format('with old as materialized (select t.tableoid, t.ctid from onceward.%I as t where %s and %s order by %s limit $3 '
                   'for update skip locked) '
                   'delete from onceward.%I as t using old where %s and t.tableoid = old.tableoid and t.ctid = old.ctid',
                   p_table, p_range, p_may_go, p_order, p_table, p_range)
      using p_before, p_held, p_limit;
    get diagnostics v_count = row_count;
  end if;
  return v_count;
end;
$$;

-- One kind.  The caller has locked its row in retention_private, so that two at once do it once.
create or replace function onceward.retain_kind(p_kind text, p_dry_run boolean, p_limit integer)
  returns table (kind text, before timestamptz, row_count bigint, partitions text[], more boolean, note text)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_rule record;
  v_keep interval := (select r.keep from onceward.retention_private as r where r.kind = p_kind);
  v_held text[];
  v_part record;
begin
  kind := p_kind;
  row_count := 0;
  partitions := '{}';
  more := false;
  if v_keep is null then
    note := 'kept for ever';
    return next;
    return;
  end if;
  select * into v_rule from onceward.retention_kinds() as k where k.kind = p_kind;
  v_held := onceward.held_tenants();
  before := onceward.now() - v_keep;
  if p_kind = 'audit' then
    select * into row_count, partitions, more, note from onceward.retain_audit(before, v_held, p_dry_run);
  elsif v_rule.day_of is null then
    row_count := onceward.remove_rows(v_rule.rows_of || '_private', v_rule.may_go, v_rule.in_order_of, before, v_held, p_limit, p_dry_run);
  else
    select * into v_part
      from onceward.retain_days(p_kind, v_rule.rows_of, v_rule.day_of, v_rule.may_go, before, v_held, p_limit, p_dry_run) as d;
    row_count := v_part.row_count + onceward.remove_rows(
      v_rule.rows_of || '_default', format('t.%I < onceward.id_at($1) and %s', v_rule.day_of, v_rule.may_go), v_rule.in_order_of,
      before, v_held, p_limit, p_dry_run);
    partitions := v_part.partitions;
    more := v_part.more;
    note := v_part.note;
  end if;
  more := more or (row_count >= p_limit and p_kind <> 'audit');
  if not p_dry_run then
    update onceward.retention_private as r
       set last_run_at = onceward.now(), last_removed = retain_kind.row_count, last_note = retain_kind.note
     where r.kind = p_kind;
    if row_count > 0 or partitions <> '{}' then
      insert into onceward.removal_private (id, kind, removed_at, row_count, partitions, before)
      values (onceward.new_id(), p_kind, onceward.now(), retain_kind.row_count, retain_kind.partitions, retain_kind.before);
      -- What goes of the log, the log itself says.
      if p_kind <> 'audit' then
        perform onceward.audit('retention.removed', p_entity_type => 'retention', p_entity_id => p_kind, p_meta => jsonb_build_object(
          'rows', retain_kind.row_count, 'days', cardinality(retain_kind.partitions), 'before', retain_kind.before));
      end if;
    end if;
  end if;
  return next;
end;
$$;

create or replace function onceward.retain(p_kind text default null, p_dry_run boolean default false, p_limit integer default 10000)
  returns table (kind text, before timestamptz, row_count bigint, partitions text[], more boolean, note text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_kind text;
begin
  perform onceward.check_limit(p_limit);
  if p_kind is not null then
    perform onceward.check_retention_kind(p_kind);
  end if;
  for v_kind in
    select r.kind from onceward.retention_private as r where p_kind is null or r.kind = p_kind order by r.kind
  loop
    if not p_dry_run then
      perform from onceward.retention_private as r where r.kind = v_kind for update;
    end if;
    return query select * from onceward.retain_kind(v_kind, coalesce(p_dry_run, false), p_limit);
  end loop;
end;
$$;
comment on function onceward.retain(text, boolean, integer) is
  'Removes what is older than its retention, of one kind or of all, at most p_limit rows and ten days of each, and says what; more: there is more to remove, call again.  p_dry_run: says what it would remove, and removes nothing.  Workers do this every hour.  On a busy system, one kind per transaction.';

create or replace function onceward.retain_due(p_limit integer default 10000)
  returns table (kind text, before timestamptz, row_count bigint, partitions text[], more boolean, note text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_kind text;
begin
  perform onceward.check_limit(p_limit);
  select r.kind into v_kind from onceward.retention_private as r
   where r.next_at <= onceward.now()
   order by r.next_at limit 1
     for update skip locked;
  if not found then
    return;
  end if;
  select * into kind, before, row_count, partitions, more, note from onceward.retain_kind(v_kind, false, p_limit);
  update onceward.retention_private as r
     -- What somebody has locked is tried again soon; what is left at once.
     set next_at = onceward.now() + case when retain_due.note ~ 'locked' then interval '5 minutes'
                                         when retain_due.more then interval '0' else interval '1 hour' end
   where r.kind = v_kind;
  return next;
end;
$$;
comment on function onceward.retain_due(integer) is
  'Does one kind of retention whose hour has come, and says what was removed; no row when none is due.  Called by workers.';
