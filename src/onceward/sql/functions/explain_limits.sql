-- Explain, limits: a line waits as a whole while its first job finds no room.

-- The limits that have no room for the first job of a line; the longest wait first.  Bucket by bucket, as a claim sees it.
create or replace function onceward.stops_of_line(p_lane text, p_line text)
  returns table (limit_name text, key text, why text, next_at timestamptz, detail jsonb)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  -- A caller's column `line` brings its collation along, under which uses_of_line would pass the index of claims by.
  v_lane text collate "default" := p_lane;
  v_line text collate "default" := p_line;
  v_use  record;
  v_room record;
begin
  if p_line not like '%' || chr(31) || '%' then
    return;
  end if;
  for v_use in
    select l, b, u.name, u.key, u.weight
      from onceward.uses_in(onceward.uses_of_line(v_lane, v_line)) as u
      join onceward.limit_private as l on l.name = u.name
      left join onceward.bucket_private as b on b.limit_name = u.name and b.key = u.key
  loop
    v_room := onceward.room_of(v_use.l, v_use.b, v_use.weight);
    continue when v_room.most > 0;
    limit_name := v_use.name;
    key := v_use.key;
    why := v_room.reason;
    next_at := onceward.now() + v_room.wait;
    if v_use.weight > (v_use.l).weight_burst then
      -- The limit was lowered after the job was enqueued.
      why := format('never gives %s at once', v_use.weight);
      next_at := null;
    end if;
    detail := jsonb_strip_nulls(jsonb_build_object(
      'limit', v_use.name, 'key', nullif(v_use.key, ''), 'why', why, 'next_room_at', next_at,
      'requests_left', round(coalesce(onceward.refilled((v_use.b).level, (v_use.l).burst, (v_use.l).rate, (v_use.b).refilled_at,
                                                        onceward.now()), (v_use.l).burst)::numeric, 3),
      'burst', (v_use.l).burst, 'weight', nullif(v_use.weight, 0), 'weight_left', round(v_room.weight::numeric, 3),
      'weight_burst', (v_use.l).weight_burst, 'slots', (v_use.l).slots,
      'paused_until', case when (v_use.b).paused_until > onceward.now() then (v_use.b).paused_until end,
      'pause_reason', (v_use.b).pause_reason));
    return next;
  end loop;
end;
$$;

-- One limit that has no room, as a part of a sentence.
create or replace function onceward.told_stop(p_limit text, p_key text, p_why text, p_detail jsonb)
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select format('limit "%s"%s, %s', p_limit, case when p_key <> '' then format(' (key "%s")', onceward.shown(p_key)) else '' end, case
    when p_detail ? 'paused_until' then format('paused until %s%s', onceward.told((p_detail ->> 'paused_until')::timestamptz),
                                               coalesce(': ' || onceward.told_text(p_detail ->> 'pause_reason'), ''))
    when p_why like 'never gives %' then 'which ' || p_why
    when p_why = 'no requests left' then format('of which %s of %s requests are left', p_detail ->> 'requests_left', p_detail ->> 'burst')
    when p_why = 'no weight left' then format('of which %s of the %s that it needs are left', p_detail ->> 'weight_left', p_detail ->> 'weight')
    when p_why = 'all slots are held' then format('whose %s are held', onceward.counted((p_detail ->> 'slots')::numeric, 'slot'))
    when p_why = 'probing after a pause' then 'where one job tries after a pause whether it is open again'
    else coalesce(p_why, 'which has no room') end)
$$;

create or replace function onceward.why_waits_for_limit(p_job onceward.job_private)
  returns table (reason text, sentence text, detail jsonb, until timestamptz, next_step text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_all   jsonb;
  v_first record;
begin
  if p_job.state <> 'ready' or p_job.uses is null then
    return;
  end if;
  select string_agg(onceward.told_stop(s.limit_name, s.key, s.why, s.detail), '; and for ' order by s.next_at desc nulls first) as told,
         jsonb_agg(s.detail order by s.next_at desc nulls first) as stops,
         case when bool_and(s.next_at is not null) then max(s.next_at) end as next_at,
         bool_or(s.detail ? 'paused_until') as is_paused, bool_or(s.why like 'never gives %') as is_never
    into v_first
    from onceward.stops_of_line(p_job.lane, p_job.line) as s;
  if v_first.stops is null then
    return;
  end if;
  v_all := v_first.stops;
  reason := 'waits_for_limit';
  sentence := format('Waits for %s%s.', v_first.told,
    case when v_first.is_paused or v_first.next_at is null then '' else '; there is room at ' || onceward.told(v_first.next_at) end);
  detail := jsonb_build_object('limits', v_all);
  until := v_first.next_at;
  next_step := case
    when v_first.is_never then format('Raise its weight_burst with "onceward limit set %s", or cancel the job.', v_all -> 0 ->> 'limit')
    when v_first.is_paused then (select format('If it need not wait: "onceward limit resume %s%s".', s ->> 'limit',
                                               coalesce(' --key ' || onceward.told_word(s ->> 'key'), ''))
                                   from jsonb_array_elements(v_all) as s where s ? 'paused_until' limit 1)
    else format('If the provider allows more: "onceward limit set %s".', v_all -> 0 ->> 'limit') end;
  return next;
end;
$$;

-- How many other lines of the lane have ready jobs, up to a bound, and of how many tenants besides the job's own they are.
create or replace function onceward.lines_beside(p_job onceward.job_private, p_most integer, out lines integer, out tenants integer)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select count(*), count(distinct o.tenant) filter (where o.tenant <> onceward.tenant_of_line(p_job.line))
    from (select l.line, onceward.tenant_of_line(l.line) as tenant
            from unnest(onceward.lines_of(p_job.lane, null, p_most + 1)) as l (line)
           where l.line <> p_job.line and onceward.depth_of_line(p_job.lane, l.line, 1) > 0
           limit p_most) as o
$$;

create or replace function onceward.tenant_of_line(p_line text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$ select coalesce(nullif(split_part(p_line, chr(31), 1), ''), 'default') $$;
