-- Reading the log as a whole: for whoever verifies it, exports its head or proves an entry.

-- Whoever reads the whole log must see all of it: with a part of it, every seal would seem broken.
create or replace function onceward.check_sees_log()
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if not onceward.sees_all_tenants()
     and not (onceward.current_tenant() is null and pg_has_role(onceward.caller(), 'onceward_owner', 'usage')) then
    raise exception 'the audit log is verified as a whole'
      using errcode = 'OW011',
            detail  = format('This session acts for tenant %s.', coalesce(quote_literal(onceward.shown(onceward.current_tenant())), '(none)')),
            hint    = 'Set "onceward.tenant" to *, which needs the role onceward_auditor.';
  end if;
end;
$$;

-- Entries between two places of the order, as what is hashed.  Null stands for no bound.
create or replace function onceward.audit_page(
  p_above_seq  bigint,
  p_below_seq  bigint,
  p_after_xact xid8,
  p_after_seq  bigint,
  p_upto_xact  xid8,
  p_upto_seq   bigint,
  p_limit      integer default 1000
)
  returns table (xact text, seq bigint, day text, fields text[])
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set timezone = 'UTC'
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
begin
  perform onceward.check_limit(p_limit);
  perform onceward.check_sees_log();
  return query
    select e.xact::text, e.seq, to_char(e.at, 'YYYY-MM-DD'), onceward.entry_fields(e)
      from onceward.audit_private as e
     where (e.xact, e.seq) > (coalesce(p_after_xact, '0'), coalesce(p_after_seq, '-9223372036854775808'))
       and (e.xact, e.seq) <= (coalesce(p_upto_xact, '18446744073709551615'), coalesce(p_upto_seq, '9223372036854775807'))
       and (p_above_seq is null or e.seq > p_above_seq)
       and (p_below_seq is null or e.seq <= p_below_seq)
     order by e.xact, e.seq
     limit p_limit;
end;
$$;
comment on function onceward.audit_page(bigint, bigint, xid8, bigint, xid8, bigint, integer) is
  'Entries of the audit log in the order in which they are sealed, each as the texts that are hashed, for whoever verifies.  Needs the tenant *.';

create or replace function onceward.seal_page(p_after bigint, p_limit integer default 1000)
  returns table (number bigint, fields text[], head bytea, peaks bytea[])
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  perform onceward.check_limit(p_limit);
  return query
    select s.number, onceward.seal_fields(s), s.head, s.peaks
      from onceward.seal_private as s
     where s.number > coalesce(p_after, 0)
     order by s.number
     limit p_limit;
end;
$$;
comment on function onceward.seal_page(bigint, integer) is
  'Seals after a number, each as the texts that are hashed, with its head and the tree over all heads so far.';

create or replace function onceward.audit_status()
  returns table (
    seals bigint, sealed bigint, unsealed bigint, unsealed_since timestamptz, held integer, entries bigint, head bytea, root bytea, log bytea,
    sealed_at timestamptz, restored boolean
  )
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_last onceward.seal_private;
begin
  perform onceward.check_sees_log();
  select * into v_last from onceward.seal_private as s order by s.number desc limit 1;
  seals := v_last.number;
  sealed := v_last.total;
  head := v_last.head;
  root := onceward.merkle_fold(v_last.peaks);
  log := (select s.head from onceward.seal_private as s where s.number = 0);
  sealed_at := case when v_last.number > 0 then v_last.at end;
  restored := onceward.is_restored(v_last);
  select count(*), min(e.at), count(*) filter (where e.xact >= pg_snapshot_xmin(pg_current_snapshot()))
    into unsealed, unsealed_since, held
    from onceward.audit_private as e
   where ((e.xact, e.seq) > (v_last.upto_xact, v_last.upto_seq) and e.seq > v_last.above_seq)
      or (restored and e.seq > v_last.top_seq);
  entries := (select count(*) from onceward.audit_private);
  return next;
end;
$$;
comment on function onceward.audit_status() is
  'How far the audit log is sealed: seals, entries, what is not sealed yet (held: because a transaction is open) and since when, the head of the chain and the root of the tree over all heads.  Needs the tenant *.';

-- The seal of an entry, and its place in it.
create or replace function onceward.seal_of(p_seq bigint)
  returns table (number bigint, place integer, seqs bigint[], leaves bytea, fields text[])
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
  set timezone = 'UTC'
as $$
declare
  v_entry onceward.audit_private;
begin
  perform onceward.check_sees_log();
  select * into v_entry from onceward.audit_private as e where e.seq = p_seq limit 1;
  if not found then
    perform onceward.no_such_entry(p_seq);
  end if;
  fields := onceward.entry_fields(v_entry);
  select s.number, array_position(l.seqs, p_seq) - 1, l.seqs, l.leaves into number, place, seqs, leaves
    from onceward.seal_private as s
    join onceward.seal_leaf_private as l on l.number = s.number and l.day = s.day
   where (s.upto_xact, s.upto_seq) >= (v_entry.xact, v_entry.seq) and (s.after_xact, s.after_seq) < (v_entry.xact, v_entry.seq)
     and s.above_seq < p_seq and s.day = v_entry.at::date and p_seq = any (l.seqs)
   order by s.number
   limit 1;
  return next;
end;
$$;
comment on function onceward.seal_of(bigint) is
  'The seal of an entry, its place in it and what is hashed; number is null while the entry is not sealed.  Needs the tenant *.';

create or replace function onceward.no_such_entry(p_seq bigint)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  raise exception 'audit entry % does not exist', p_seq
    using errcode = 'OW037', hint = 'Look for it with "onceward audit list".';
end;
$$;
