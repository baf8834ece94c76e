-- Bytes and trees: what is hashed is written down in docs/concepts/audit.md, so that anybody can verify the log without
-- this code.

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
