-- Job ids: UUID version 7, ordered by time of creation.
-- The time inside an id is the machine's, also while a test has moved onceward.now(): ids only need to rise.
-- Ids are names, not secrets, so 62 bits from the fast generator do; the built-in uuidv7() of PostgreSQL 18 asks the
-- operating system for strong randomness, which took most of the time of a bulk enqueue.
create or replace function onceward.new_id()
  returns uuid
  language sql volatile
  -- 48 bits of milliseconds and 12 of their fraction, with the version between; the variant; 62 random bits.
  -- One expression, so that the planner puts it in line.
  return (overlay(lpad(to_hex((date_part('epoch', clock_timestamp()) * 1000000)::bigint * 512 / 125), 15, '0')
                  placing '7' from 13 for 0)
          || to_hex(32768 + (random() * 16383)::integer)
          || lpad(to_hex((random() * 281474976710655)::bigint), 12, '0'))::uuid;
comment on function onceward.new_id() is 'A new job id (UUID version 7).';

-- Many at once: the first is new, the others count on from it.
create or replace function onceward.new_ids(p_count integer)
  returns uuid[]
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_first bytea := uuid_send(onceward.new_id());
  v_head  bytea := substring(v_first from 1 for 8);
  -- One random bit is cleared, so that counting cannot reach the variant bits.
  v_tail  bigint := ('x' || encode(substring(v_first from 9 for 8), 'hex'))::bit(64)::bigint & ~(1::bigint << 61);
begin
  return array(select encode(v_head || int8send(v_tail + i), 'hex')::uuid from generate_series(1, p_count) as i);
end;
$$;

-- The smallest id of a moment: the bounds of partitions and of searches by time.
create or replace function onceward.id_at(p_at timestamptz)
  returns uuid
  language sql immutable strict
  set search_path = pg_catalog, pg_temp
as $$
  -- Within what 48 bits of milliseconds can say; infinity is one of the ends.
  select (lpad(to_hex(floor(least(greatest(extract(epoch from p_at) * 1000, 0), 281474976710655))::bigint), 12, '0')
          || '00000000000000000000')::uuid
$$;
comment on function onceward.id_at(timestamptz) is 'The smallest id that a job created at this moment can have.';
