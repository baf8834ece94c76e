-- Retention: whole days, and only what is sealed and whose seals are known elsewhere.

create or replace function onceward.record_checkpoint(p_number bigint, p_head bytea, p_where text, p_key text default null)
  returns bigint
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_sees_log();
  perform from onceward.seal_private as s where s.number = p_number and s.head = p_head;
  if not found then
    perform onceward.bad_argument('number', p_number::text, 'must be that of a seal with this head');
  end if;
  return onceward.audit('audit.checkpoint', p_entity_type => 'seal', p_entity_id => p_number::text,
    p_message => p_where, p_meta => jsonb_strip_nulls(jsonb_build_object('seal', p_number, 'key', left(p_key, 200))));
end;
$$;
comment on function onceward.record_checkpoint(bigint, bytea, text, text) is
  'Says that the head of a seal is kept outside the database: where, and signed by which key.  Days up to it may be dropped from then on.  Needs the tenant *.';

-- Why the days before a date have to stay; no row when they may go.
create or replace function onceward.why_audit_stays(p_before date, p_held text[])
  returns table (why text, hint text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set timezone = 'UTC'
as $$
declare
  v_last onceward.seal_private;
  v_held text;
begin
  if exists (select from onceward.audit_default as e where e.at < p_before) then
    return query select 'Entries of earlier days are in the default partition, because their days had none.',
                        'Choose an earlier day, or leave them where they are.';
    return;
  end if;
  select * into v_last from onceward.seal_private as s order by s.number desc limit 1;
  if onceward.is_restored(v_last)
     or exists (select from onceward.audit_private as e
                 where e.at < p_before and (e.xact, e.seq) > (v_last.upto_xact, v_last.upto_seq) and e.seq > v_last.above_seq) then
    return query select 'Some of it is not sealed.', 'Seal it with "onceward audit seal".';
    return;
  end if;
  if (select max(s.number) from onceward.seal_private as s where s.day < p_before)
     > coalesce((select max((e.meta ->> 'seal')::bigint) from onceward.audit_private as e
                  where e.kind = 'audit.checkpoint' and e.source = 'engine'), 0) then
    return query select 'No checkpoint that covers it was exported.', 'Export one with "onceward audit checkpoint --output FILE".';
    return;
  end if;
  if p_held <> '{}' then
    select e.tenant into v_held from onceward.audit_private as e where e.at < p_before and e.tenant = any (p_held) limit 1;
    if found then
      return query select format('It has entries of tenant "%s", which is under a legal hold.', v_held),
                          'It goes when the hold is released.';
    end if;
  end if;
end;
$$;

-- Days of the log before a date, oldest first.
create or replace function onceward.audit_days(p_before date)
  returns table (name text, day date)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select c.relname::text, to_date(right(c.relname, 8), 'YYYYMMDD')
    from pg_class as c
    join pg_inherits as i on i.inhrelid = c.oid
   where i.inhparent = 'onceward.audit_private'::regclass and c.relname ~ '^audit_\d{8}$'
     and to_date(right(c.relname, 8), 'YYYYMMDD') < p_before
   order by 2
$$;

create or replace function onceward.drop_audit(p_before date)
  returns table (days integer, entries bigint)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set timezone = 'UTC'
  set lock_timeout = '2s'
as $$
begin
  if p_before is null or p_before > onceward.now()::date then
    perform onceward.bad_argument('before', p_before::text, 'must not be later than today (UTC)');
  end if;
  perform onceward.check_sees_log();
  return query select d.days, d.entries from onceward.drop_audit_days(p_before, onceward.held_tenants()) as d;
end;
$$;
comment on function onceward.drop_audit(date) is
  'Drops the days of the audit log before a date: only whole days, only what is sealed and covered by an exported checkpoint, and nothing of a tenant that is held (else OW036).  Seals stay, and the log says what was dropped.  Needs the tenant *.';

-- Their seals stay, and the log says that they were dropped.
create or replace function onceward.drop_audit_days(p_before date, p_held text[], out days integer, out entries bigint)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set timezone = 'UTC'
as $$
declare
  v_stays record;
  v_day   record;
begin
  entries := (select count(*) from onceward.audit_private as e where e.at < p_before);
  -- From here on, nobody writes until this has ended; what is looked at stays as it is.  What came after the count is not
  -- sealed.  (Not LOCK TABLE, which needs rights that not even the owner has here.)
  alter table onceward.audit_private force row level security;
  select * into v_stays from onceward.why_audit_stays(p_before, p_held) as s;
  if found then
    raise exception 'cannot drop the audit log before %', p_before
      using errcode = 'OW036', detail = v_stays.why, hint = v_stays.hint;
  end if;
  days := 0;
  for v_day in select * from onceward.audit_days(p_before) loop
    execute format('drop table onceward.%I', v_day.name);
    execute format('drop table if exists onceward.%I', 'seal_leaf_' || right(v_day.name, 8));
    days := days + 1;
  end loop;
  if days > 0 then
    perform onceward.audit('audit.dropped', p_entity_type => 'audit', p_meta => jsonb_build_object(
      'before', p_before, 'days', days, 'entries', entries, 'seals', (select max(s.number) from onceward.seal_private as s where s.day < p_before)));
  end if;
end;
$$;

-- The log as a kind of retention: from the oldest day on, ten at most, as far as days may go; the note says why the next one
-- stays.
create or replace function onceward.retain_audit(p_before timestamptz, p_held text[], p_dry_run boolean)
  returns table (row_count bigint, partitions text[], more boolean, note text)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set timezone = 'UTC'
  -- Everybody writes into the log: nobody is to queue behind whoever waits for a reader of it.
  set lock_timeout = '100ms'
as $$
declare
  v_day   record;
  v_until date;
begin
  row_count := 0;
  partitions := '{}';
  more := false;
  for v_day in select * from onceward.audit_days(p_before::date) loop
    if cardinality(partitions) >= 10 then
      more := true;
      exit;
    end if;
    select format('%s stays: %s%s', v_day.day, lower(left(s.why, 1)), rtrim(substr(s.why, 2), '.')) into note
      from onceward.why_audit_stays(v_day.day + 1, p_held) as s;
    exit when found;
    v_until := v_day.day + 1;
    partitions := partitions || v_day.name;
  end loop;
  if v_until is not null and p_dry_run then
    row_count := (select count(*) from onceward.audit_private as e where e.at < v_until);
  elsif v_until is not null then
    begin
      row_count := (select d.entries from onceward.drop_audit_days(v_until, p_held) as d);
    exception
      when lock_not_available then
        partitions := '{}';
        more := false;
        note := 'the audit log is locked by somebody; it is tried again soon';
    end;
  end if;
  return next;
end;
$$;
