-- Seals: hashes over runs of entries, chained.

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
  if p_every is null or p_every not between interval '0' and interval '1 year' then
    perform onceward.bad_argument('every', p_every::text, 'must be between 0 and 1 year');
  end if;
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

-- Entries that are not sealed yet, counted up to a bound, and the time of the first.  Held: because a transaction is open.
create or replace function onceward.unsealed(p_most integer, out entries bigint, out since timestamptz, out held bigint)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set jit = off
as $$
declare
  v_last onceward.seal_private;
begin
  select * into v_last from onceward.seal_private as s order by s.number desc limit 1;
  if onceward.is_restored(v_last) then
    -- Transactions are about to be numbered anew; until then, what came after the last seal is told by its own number.
    select count(*), min(e.at), 0 into entries, since, held
      from (select a.at from onceward.audit_private as a where a.seq > v_last.top_seq order by a.seq limit p_most) as e;
    return;
  end if;
  select count(*), min(e.at), count(*) filter (where e.xact >= pg_snapshot_xmin(pg_current_snapshot()))
    into entries, since, held
    from (select a.at, a.xact from onceward.audit_private as a
           where (a.xact, a.seq) > (v_last.upto_xact, v_last.upto_seq) and a.seq > v_last.above_seq
           order by a.xact, a.seq
           limit p_most) as e;
end;
$$;

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
