-- Job ids: UUID version 7, ordered by time of creation.
-- The time inside an id is the machine's, also while a test has moved onceward.now(): ids only need to rise.
do $$
begin
  if current_setting('server_version_num')::int >= 180000 then
    execute 'create or replace function onceward.new_id() returns uuid language sql volatile '
            'as ''select pg_catalog.uuidv7()''';
  else
    -- 48 bits of milliseconds, version, 12 bits of the fraction of a millisecond, 62 random bits.
    execute $f$
      create or replace function onceward.new_id() returns uuid language sql volatile
      set search_path = pg_catalog, pg_temp
      as $b$
        select encode(
          substring(int8send(t.us / 1000) from 3 for 6)
          || substring(int8send(((t.us % 1000) * 4096 / 1000) | 28672) from 7 for 2)
          || substring(uuid_send(gen_random_uuid()) from 9 for 8), 'hex')::uuid
          from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us) as t
      $b$
    $f$;
  end if;
end;
$$;
comment on function onceward.new_id() is 'A new job id (UUID version 7).';

-- The smallest id of a moment: the bounds of partitions and of searches by time.
create or replace function onceward.id_at(p_at timestamptz)
  returns uuid
  language sql immutable strict
  set search_path = pg_catalog, pg_temp
as $$
  select (lpad(to_hex(greatest(floor(extract(epoch from p_at) * 1000)::bigint, 0)), 12, '0')
          || '00000000000000000000')::uuid
$$;
comment on function onceward.id_at(timestamptz) is 'The smallest id that a job created at this moment can have.';
