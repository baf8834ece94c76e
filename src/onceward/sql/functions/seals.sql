-- Seals: hashes over runs of entries, chained.  What is hashed is written down in docs/concepts/audit.md, so that
-- anybody can verify the log without this code.

-- Texts as bytes that can be cut apart in one way only: each with its length before it; null is the length -1.
create or replace function onceward.framed(p_fields text[])
  returns bytea
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select string_agg(coalesce(int4send(length(convert_to(u.field, 'UTF8'))) || convert_to(u.field, 'UTF8'), '\xffffffff'),
                    '' order by u.i)
    from unnest(p_fields) with ordinality as u (field, i)
$$;

create or replace function onceward.entry_fields(p_entry onceward.audit_private)
  returns text[]
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select array['onceward.audit.1', p_entry.seq::text, p_entry.xact::text,
               to_char(p_entry.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               p_entry.kind, p_entry.source, p_entry.actor, p_entry.role, p_entry.tenant, p_entry.job_id::text,
               p_entry.jobs::text, p_entry.entity_type, p_entry.entity_id, p_entry.before::text, p_entry.after::text,
               p_entry.message, p_entry.meta::text]
$$;

create or replace function onceward.seal_fields(p_seal onceward.seal_private)
  returns text[]
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select array['onceward.seal.1', p_seal.number::text, encode(p_seal.previous, 'hex'), to_char(p_seal.day, 'YYYY-MM-DD'),
               p_seal.above_seq::text, p_seal.after_xact::text, p_seal.after_seq::text, p_seal.upto_xact::text,
               p_seal.upto_seq::text, p_seal.top_seq::text, p_seal.entries::text, p_seal.total::text,
               encode(p_seal.root, 'hex'), to_char(p_seal.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')]
$$;

-- RFC 6962: a leaf is hashed with 0x00 before it, a node with 0x01, so that neither can pass for the other.
create or replace function onceward.merkle_leaf(p_bytes bytea)
  returns bytea
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$ select sha256('\x00'::bytea || p_bytes) $$;

create or replace function onceward.merkle_node(p_left bytea, p_right bytea)
  returns bytea
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$ select sha256('\x01'::bytea || p_left || p_right) $$;

-- The root over hashes of leaves.  Level by level; a node without a sibling goes up as it is, which gives the same tree
-- as splitting at the largest power of two.
create or replace function onceward.merkle_root(p_leaves bytea[])
  returns bytea
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_level bytea[] := p_leaves;
begin
  if coalesce(cardinality(p_leaves), 0) = 0 then
    return sha256('');
  end if;
  while cardinality(v_level) > 1 loop
    v_level := array(
      select case when n.sibling is null then n.node else sha256('\x01'::bytea || n.node || n.sibling) end
        from (select u.node, u.i, lead(u.node) over (order by u.i) as sibling
                from unnest(v_level) with ordinality as u (node, i)) as n
       where n.i % 2 = 1
       order by n.i);
  end loop;
  return v_level[1];
end;
$$;

-- The complete subtrees after one more leaf: as many join as the number of leaves so far ends in ones.
create or replace function onceward.merkle_append(p_peaks bytea[], p_size bigint, p_leaf bytea)
  returns bytea[]
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_peaks bytea[] := p_peaks;
  v_node  bytea := p_leaf;
  v_size  bigint := p_size;
begin
  while v_size % 2 = 1 loop
    v_node := onceward.merkle_node(v_peaks[cardinality(v_peaks)], v_node);
    v_peaks := trim_array(v_peaks, 1);
    v_size := v_size / 2;
  end loop;
  return v_peaks || v_node;
end;
$$;

create or replace function onceward.merkle_fold(p_peaks bytea[])
  returns bytea
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_root bytea := p_peaks[cardinality(p_peaks)];
begin
  for v_i in reverse cardinality(p_peaks) - 1 .. 1 loop
    v_root := onceward.merkle_node(p_peaks[v_i], v_root);
  end loop;
  return coalesce(v_root, sha256(''));
end;
$$;

-- Seal what is complete.  An entry whose transaction is below every open one has no neighbour that could still appear.
-- In the order (xact, seq), at most p_limit entries, one seal per day: days are dropped whole.
create or replace function onceward.seal(p_limit integer default 10000, p_every interval default '0')
  returns table (seals integer, entries integer, more boolean)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A day is the same for everybody.
  set timezone = 'UTC'
  -- By the index of the order, whatever the statistics of a new partition say.
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
declare
  v_last onceward.seal_private;
  v_new  onceward.seal_private;
  v_xmin xid8;
  v_old  bigint;
  v_part record;
begin
  perform onceward.check_limit(p_limit);
  seals := 0;
  entries := 0;
  more := false;
  -- One at a time, and with a view of what the one before has done.
  if current_setting('transaction_isolation') <> 'read committed'
     or not pg_try_advisory_xact_lock(hashtext('onceward.seal')) then
    return next;
    return;
  end if;
  select * into v_last from onceward.seal_private as s order by s.number desc limit 1;
  if v_last.number > 0 and v_last.at > onceward.now() - p_every then
    return next;
    return;
  end if;
  v_xmin := pg_snapshot_xmin(pg_current_snapshot());
  if onceward.is_restored(v_last) then
    -- What came with the restore is complete, and ends with the last entry of a transaction that this cluster has not
    -- reached.  After it, transactions are numbered anew.
    v_old := (select max(e.seq) from onceward.audit_private as e
               where e.xact >= pg_snapshot_xmax(pg_current_snapshot()) and e.seq > v_last.above_seq);
    if exists (select from onceward.audit_private as e
                where (e.xact, e.seq) > (v_last.upto_xact, v_last.upto_seq) and e.seq > v_last.above_seq and e.seq <= v_old) then
      v_xmin := '18446744073709551615';
    else
      v_old := null;
      v_last.above_seq := v_last.top_seq;
      v_last.upto_xact := '0';
      v_last.upto_seq := 0;
    end if;
  end if;

  v_new := v_last;
  for v_part in
    with chunk as materialized (
      select e.xact, e.seq, e.at::date as day, onceward.merkle_leaf(onceward.framed(onceward.entry_fields(e))) as leaf
        from onceward.audit_private as e
       where (e.xact, e.seq) > (v_last.upto_xact, v_last.upto_seq) and e.xact < v_xmin and e.seq > v_last.above_seq
         and (v_old is null or e.seq <= v_old)
       order by e.xact, e.seq
       limit p_limit
    )
    select c.day, count(*) as entries, max(c.seq) as top_seq, array_agg(c.seq order by c.xact, c.seq) as seqs,
           array_agg(c.leaf order by c.xact, c.seq) as leaves, edge.xact as upto_xact, edge.seq as upto_seq
      from chunk as c
     cross join (select l.xact, l.seq from chunk as l order by l.xact desc, l.seq desc limit 1) as edge
     group by c.day, edge.xact, edge.seq
     order by c.day
  loop
    v_new.number := v_new.number + 1;
    v_new.day := v_part.day;
    v_new.after_xact := v_last.upto_xact;
    v_new.after_seq := v_last.upto_seq;
    v_new.upto_xact := v_part.upto_xact;
    v_new.upto_seq := v_part.upto_seq;
    v_new.top_seq := greatest(v_new.top_seq, v_part.top_seq);
    v_new.entries := v_part.entries;
    v_new.total := v_new.total + v_part.entries;
    v_new.root := onceward.merkle_root(v_part.leaves);
    v_new.previous := v_new.head;
    v_new.at := onceward.now();
    v_new.head := sha256(onceward.framed(onceward.seal_fields(v_new)));
    v_new.peaks := onceward.merkle_append(v_new.peaks, v_new.number - 1, onceward.merkle_leaf(v_new.head));
    insert into onceward.seal_private select v_new.*;
    insert into onceward.seal_leaf_private (number, day, seqs, leaves)
    values (v_new.number, v_new.day, v_part.seqs, (select string_agg(l, '' order by i) from unnest(v_part.leaves) with ordinality as u (l, i)));
    seals := seals + 1;
    entries := entries + v_part.entries;
  end loop;
  more := entries >= p_limit;
  return next;
end;
$$;
comment on function onceward.seal(integer, interval) is
  'Seals entries of the audit log that are complete, at most p_limit, unless the last seal is younger than p_every.  Called by workers; harmless to repeat.  Returns how many seals and entries, and whether there is more to do at once.';

-- Whether transactions were sealed, or wait for the first seal, that this cluster has not reached: the database came from
-- another one.
create or replace function onceward.is_restored(p_last onceward.seal_private)
  returns boolean
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select p_last.upto_xact >= pg_snapshot_xmax(pg_current_snapshot())
      or (p_last.number = 0
          and exists (select from onceward.audit_private as e where e.xact >= pg_snapshot_xmax(pg_current_snapshot())))
$$;

-- Whoever reads the whole log must see all of it: with a part of it, every seal would seem broken.
create or replace function onceward.check_sees_log()
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
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
as $$
begin
  raise exception 'audit entry % does not exist', p_seq
    using errcode = 'OW037', hint = 'Look for it with "onceward audit list".';
end;
$$;

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
