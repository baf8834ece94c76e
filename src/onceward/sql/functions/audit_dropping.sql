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

create or replace function onceward.cannot_drop_audit(p_before date, p_why text, p_hint text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'cannot drop the audit log before %', p_before
    using errcode = 'OW036', detail = p_why, hint = p_hint;
end;
$$;

-- Drop whole days, oldest first.  Their seals stay, and the log says that they were dropped.
create or replace function onceward.drop_audit(p_before date)
  returns table (days integer, entries bigint)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set timezone = 'UTC'
  set lock_timeout = '2s'
as $$
declare
  v_last onceward.seal_private;
  v_day  record;
begin
  if p_before is null or p_before > onceward.now()::date then
    perform onceward.bad_argument('before', p_before::text, 'must not be later than today (UTC)');
  end if;
  perform onceward.check_sees_log();
  -- From here on, nobody writes until this has ended; what is looked at stays as it is.
  -- (Not LOCK TABLE, which needs rights that not even the owner has here.)
  alter table onceward.audit_private force row level security;
  if exists (select from onceward.audit_default as e where e.at < p_before) then
    perform onceward.cannot_drop_audit(p_before, 'Entries of earlier days are in the default partition, because their days had none.',
      'Choose an earlier day, or leave them where they are.');
  end if;
  select * into v_last from onceward.seal_private as s order by s.number desc limit 1;
  if onceward.is_restored(v_last)
     or exists (select from onceward.audit_private as e
                 where e.at < p_before and (e.xact, e.seq) > (v_last.upto_xact, v_last.upto_seq) and e.seq > v_last.above_seq) then
    perform onceward.cannot_drop_audit(p_before, 'Some of it is not sealed.', 'Seal it with "onceward audit seal".');
  end if;
  if (select max(s.number) from onceward.seal_private as s where s.day < p_before)
     > coalesce((select max((e.meta ->> 'seal')::bigint) from onceward.audit_private as e
                  where e.kind = 'audit.checkpoint' and e.source = 'engine'), 0) then
    perform onceward.cannot_drop_audit(p_before, 'No checkpoint that covers it was exported.',
      'Export one with "onceward audit checkpoint --output FILE".');
  end if;

  days := 0;
  entries := (select count(*) from onceward.audit_private as e where e.at < p_before);
  for v_day in
    select c.relname as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day
      from pg_class as c
      join pg_inherits as i on i.inhrelid = c.oid
     where i.inhparent = 'onceward.audit_private'::regclass and c.relname ~ '^audit_\d{8}$'
       and to_date(right(c.relname, 8), 'YYYYMMDD') < p_before
     order by 2
  loop
    execute format('drop table onceward.%I', v_day.name);
    execute format('drop table if exists onceward.%I', 'seal_leaf_' || right(v_day.name, 8));
    days := days + 1;
  end loop;
  if days > 0 then
    perform onceward.audit('audit.dropped', p_entity_type => 'audit', p_meta => jsonb_build_object(
      'before', p_before, 'days', days, 'entries', entries, 'seals', (select max(s.number) from onceward.seal_private as s where s.day < p_before)));
  end if;
  return next;
end;
$$;
comment on function onceward.drop_audit(date) is
  'Drops the days of the audit log before a date: only whole days, only what is sealed and covered by an exported checkpoint (else OW036).  Seals stay, and the log says what was dropped.  Needs the tenant *.';
