-- Whole days: partitions of which everything may go are dropped.  The few rows that have to stay (of live jobs, of jobs that
-- ended late, of tenants that are held) move to the default partition; where there are many, the day stays and the others are
-- deleted.

-- Partitions that end before this time, oldest first.
create or replace function onceward.old_days(p_parent text, p_before timestamptz)
  returns table (name text, from_id uuid, to_id uuid)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set timezone = 'UTC'
as $$
  select d.name, onceward.id_at(d.day::timestamptz), onceward.id_at((d.day + 1)::timestamptz)
    from (select c.relname::text as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day
            from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
           where i.inhparent = format('onceward.%I', p_parent || '_private')::regclass
             and c.relname ~ ('^' || p_parent || '_\d{8}$')) as d
   where (d.day + 1)::timestamptz <= p_before
   order by d.day
$$;

create or replace function onceward.retain_days(
  p_kind text, p_parent text, p_key text, p_may_go text, p_before timestamptz, p_held text[], p_limit integer, p_dry_run boolean
)
  returns table (row_count bigint, partitions text[], more boolean, note text)
  language plpgsql
  set search_path = pg_catalog, pg_temp
  -- A reader of the archive is not worth a standstill: everybody would queue behind the lock that waits for it.
  set lock_timeout = '100ms'
as $$
declare
  v_most   constant bigint := 1000;
  v_digest text := md5(p_held::text);
  v_memory jsonb := (select r.kept from onceward.retention_private as r where r.kind = p_kind);
  v_day    record;
  v_rows   bigint;
  v_stay   bigint;
  v_seen   integer := 0;
  v_gone   bigint := 0;
  v_moved  bigint := 0;
  v_range  text;
begin
  row_count := 0;
  partitions := '{}';
  more := false;
  for v_day in select * from onceward.old_days(p_parent, p_before)
  loop
    -- Looked at before, and only what has to stay was left.
    continue when v_memory -> v_day.name ->> 'holds' = v_digest
              and (v_memory -> v_day.name ->> 'at')::timestamptz > onceward.now() - interval '1 day';
    if v_seen >= 10 then
      more := true;
      exit;
    end if;
    v_seen := v_seen + 1;
    begin
      if not p_dry_run then
        -- Nobody ends a job of that day while we look; those of other days go on.
        execute format('lock table onceward.%I in share mode', v_day.name);
      end if;
      -- Through the parent, whose policies let us see every row.
      v_range := format('t.%I >= %L and t.%I < %L', p_key, v_day.from_id, p_key, v_day.to_id);
      execute format('select count(*), count(*) filter (where not (%s)) from onceward.%I as t where %s',
                     p_may_go, p_parent || '_private', v_range)
         into v_rows, v_stay using p_before, p_held;
      if v_stay <= v_most then
        partitions := partitions || v_day.name;
        v_gone := v_gone + v_rows - v_stay;
        v_moved := v_moved + v_stay;
      else
        row_count := row_count + onceward.remove_rows(
          p_parent || '_private', p_may_go, 't.' || quote_ident(p_key), p_before, p_held, p_limit, p_dry_run, v_range);
        if v_rows - v_stay <= p_limit then
          v_memory := v_memory || jsonb_build_object(v_day.name, jsonb_build_object('holds', v_digest, 'at', onceward.now()));
        else
          more := true;
        end if;
        note := format('%s rows of %s have to stay', v_stay, v_day.name);
      end if;
    exception
      when lock_not_available then
        note := format('%s is locked by somebody; it is tried again soon', v_day.name);
        exit;
    end;
  end loop;
  if partitions <> '{}' and not p_dry_run then
    begin
      perform onceward.drop_days(p_parent, partitions, p_may_go, p_before, p_held, v_moved);
    exception
      when lock_not_available then
        note := format('%s is locked by somebody; it is tried again soon', p_parent);
        partitions := '{}';
        v_gone := 0;
    end;
  end if;
  row_count := row_count + v_gone;
  if not p_dry_run then
    update onceward.retention_private as r set kept = v_memory - partitions where r.kind = p_kind;
  end if;
  return next;
end;
$$;

-- Detach, keep what has to stay, drop.  Everything was counted before: the parent is locked from here to the end of the
-- transaction, which takes milliseconds.
create or replace function onceward.drop_days(
  p_parent text, p_days text[], p_may_go text, p_before timestamptz, p_held text[], p_stay bigint
)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_day   text;
  v_moved bigint;
  v_stay  bigint := p_stay;
begin
  -- Readers of the partitions hold a lock on the parent, too.
  execute format('lock table onceward.%I in access exclusive mode', p_parent || '_private');
  foreach v_day in array p_days loop
    execute format('alter table onceward.%I detach partition onceward.%I', p_parent || '_private', v_day);
    execute format('drop policy if exists owner_all on onceward.%I', v_day);
    execute format('create policy owner_all on onceward.%I to onceward_owner using (true)', v_day);
    execute format('insert into onceward.%I select t.* from onceward.%I as t where not (%s)', p_parent || '_private', v_day, p_may_go)
      using p_before, p_held;
    get diagnostics v_moved = row_count;
    v_stay := v_stay - v_moved;
    execute format('drop table onceward.%I', v_day);
  end loop;
  if v_stay <> 0 then
    raise exception 'rows that have to stay would be lost: % of %', v_stay, p_stay;
  end if;
end;
$$;
