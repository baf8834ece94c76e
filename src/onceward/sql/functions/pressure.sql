-- Back-pressure: bounds on what waits in a lane, and the answer that an enqueue gets.
-- Nothing is counted per job: a worker's promote measures about once a second where there are bounds, and no further than
-- the bound.  So an enqueue may see figures that are a second old.

create or replace function onceward.set_bound(
  p_lane      text,
  p_max_depth bigint default null,
  p_max_age   interval default null,
  p_max_bytes bigint default null,
  p_over      text default 'signal',
  p_tenant    text default '',
  p_defer_by  interval default '1 minute'
)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_fair boolean;
  v_was  onceward.bound_private;
  v_new  onceward.bound_private;
begin
  select l.fair into v_fair from onceward.lane_private as l where l.name = p_lane;
  if not found then
    perform onceward.no_such_lane(p_lane);
  end if;
  perform onceward.check_bound_tenant(p_tenant);
  if num_nonnulls(p_max_depth, p_max_age, p_max_bytes) = 0 then
    perform onceward.bad_argument('bound', null, 'must have max_depth, max_age or max_bytes', 'Remove a bound with onceward.drop_bound.');
  end if;
  if p_max_depth not between 0 and 10000000 then
    perform onceward.bad_argument('max_depth', p_max_depth::text, 'must be between 0 and 10000000');
  end if;
  if p_max_age not between interval '1 second' and interval '1 year' then
    perform onceward.bad_argument('max_age', p_max_age::text, 'must be between 1 second and 1 year');
  end if;
  if p_max_bytes < 0 then
    perform onceward.bad_argument('max_bytes', p_max_bytes::text, 'must not be negative');
  end if;
  if p_over is null or p_over not in ('signal', 'defer', 'reject') then
    perform onceward.bad_argument('over', p_over, 'must be signal, defer or reject');
  end if;
  if p_defer_by is null or p_defer_by not between interval '1 second' and interval '31 days' then
    perform onceward.bad_argument('defer_by', p_defer_by::text, 'must be between 1 second and 31 days');
  end if;
  if coalesce(p_tenant, '') !~ '^([*]|[^*[:cntrl:]]{0,200})$' then
    perform onceward.bad_argument('tenant', p_tenant, 'must be a tenant, * for each, or empty for the whole lane');
  end if;
  if coalesce(p_tenant, '') <> '' and not v_fair then
    perform onceward.bad_argument('tenant', p_tenant, format('cannot be bounded in lane "%s", where tenants do not stand apart', p_lane),
      'Make the lane fair.');
  end if;
  select * into v_was from onceward.bound_private as b where b.lane = p_lane and b.tenant = coalesce(p_tenant, '') for update;
  insert into onceward.bound_private as b (lane, tenant, max_depth, max_age, max_bytes, over, defer_by)
  values (p_lane, coalesce(p_tenant, ''), p_max_depth, p_max_age, p_max_bytes, p_over, p_defer_by)
      on conflict (lane, tenant) do update
     set max_depth = excluded.max_depth, max_age = excluded.max_age, max_bytes = excluded.max_bytes,
         over = excluded.over, defer_by = excluded.defer_by
  returning b.* into v_new;
  update onceward.lane_private as l set bounded = true where l.name = p_lane and not l.bounded;
  perform onceward.audit_bound(p_lane, coalesce(p_tenant, ''), v_was, v_new);
end;
$$;
comment on function onceward.set_bound(text, bigint, interval, bigint, text, text, interval) is
  'Bounds what may wait in a lane, of one tenant in it, or of each (*): how many ready jobs, how old the oldest, how many bytes of payload.  Above it, enqueue accepts and says so (signal), schedules for later (defer) or refuses (reject).';

create or replace function onceward.drop_bound(p_lane text, p_tenant text default '')
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_was onceward.bound_private;
begin
  perform onceward.check_bound_tenant(p_tenant);
  delete from onceward.bound_private as b where b.lane = p_lane and b.tenant = coalesce(p_tenant, '') returning b.* into v_was;
  if not found then
    return false;
  end if;
  delete from onceward.pressure_private as p
   where p.kind = 'lane' and p.name = p_lane
     and not exists (select from onceward.bound_private as b where b.lane = p_lane and (b.tenant = p.part or (b.tenant = '*' and p.part <> '')));
  update onceward.lane_private as l
     set bounded = false
   where l.name = p_lane and not exists (select from onceward.bound_private as b where b.lane = p_lane);
  perform onceward.audit_bound(p_lane, coalesce(p_tenant, ''), v_was, null);
  return true;
end;
$$;
comment on function onceward.drop_bound(text, text) is 'Removes a bound of a lane, or of a tenant in it.  Returns false when there was none.';

-- A lane is of everybody, and so is its bound; that of a tenant is not.
create or replace function onceward.check_bound_tenant(p_tenant text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  if coalesce(p_tenant, '') not in ('', '*') then
    perform onceward.check_tenant(p_tenant, 'bound');
  end if;
end;
$$;

create or replace function onceward.audit_bound(
  p_lane text, p_tenant text, p_before onceward.bound_private, p_after onceward.bound_private
)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select onceward.audit_setting('bound', p_lane, onceward.bound_settings(p_before), onceward.bound_settings(p_after),
                                case when p_tenant not in ('', '*') then p_tenant end,
                                case when p_tenant = '*' then '{"of": "each tenant"}'::jsonb end)
$$;

-- What an enqueue is answered: null when nothing is above its bound.
create or replace function onceward.pressure_on(p_lane text, p_tenant text, p_uses jsonb, p_task text, p_key text)
  returns table (answer text, until timestamptz, reason text)
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
begin
  -- The strictest first; what is measured no more does not count.
  select case b.over when 'signal' then 'accepted' when 'defer' then 'deferred' else 'rejected' end,
         case b.over when 'defer' then onceward.now() + b.defer_by end, p.reason
    into answer, until, reason
    from onceward.bound_private as b
    join onceward.pressure_private as p
      on p.kind = 'lane' and p.name = p_lane and p.part = case b.tenant when '*' then p_tenant else b.tenant end
   where b.lane = p_lane and b.tenant in ('', '*', p_tenant)
     and p.reason is not null and p.measured_at > onceward.now() - interval '1 minute'
   order by array_position(array['reject', 'defer', 'signal'], b.over)
   limit 1;
  if answer is distinct from 'rejected' and answer is distinct from 'deferred' and p_uses is not null then
    select 'deferred', greatest(onceward.now() + interval '1 second', p.oldest_at), p.reason
      into answer, until, reason
      from onceward.uses_in(p_uses) as u
      join onceward.limit_private as l on l.name = u.name and l.over = 'defer'
      join onceward.pressure_private as p on p.kind = 'limit' and p.name = u.name and p.part = u.key
     where p.reason is not null and p.measured_at > onceward.now() - interval '1 minute'
     order by p.oldest_at desc
     limit 1;
    -- What was said about the lane stays true.
    if not found then
      select case b.over when 'signal' then 'accepted' end, null, p.reason
        into answer, until, reason
        from onceward.bound_private as b
        join onceward.pressure_private as p
          on p.kind = 'lane' and p.name = p_lane and p.part = case b.tenant when '*' then p_tenant else b.tenant end
       where b.lane = p_lane and b.tenant in ('', '*', p_tenant)
         and p.reason is not null and p.measured_at > onceward.now() - interval '1 minute'
       limit 1;
    end if;
  end if;
  -- A job that exists already is not turned away.
  if answer = 'rejected' and p_key is not null
     and exists (select from onceward.key_private as k
                  where k.tenant = p_tenant and k.task = p_task and k.key = p_key
                    and (k.expires_at is null or k.expires_at > onceward.now())) then
    answer := null;
  end if;
  if answer is not null then
    return next;
  end if;
end;
$$;

-- Measure what is older than a second; called by promote.
create or replace function onceward.measure_pressure()
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_bound  onceward.bound_private;
  v_tenant text;
  v_limit  onceward.limit_private;
begin
  for v_bound in select * from onceward.bound_private as b order by b.lane, b.tenant loop
    if v_bound.tenant = '*' then
      for v_tenant in
        select distinct split_part(l, chr(31), 1) from unnest(onceward.lines_of(v_bound.lane, null, 500)) as l
        union
        select p.part from onceward.pressure_private as p where p.kind = 'lane' and p.name = v_bound.lane and p.part <> ''
        order by 1
      loop
        perform onceward.measure_lane(v_bound, coalesce(nullif(v_tenant, ''), 'default'));
      end loop;
    else
      perform onceward.measure_lane(v_bound, v_bound.tenant);
    end if;
  end loop;
  for v_limit in select * from onceward.limit_private as l where l.over = 'defer' order by l.name loop
    perform onceward.measure_limit(v_limit);
  end loop;
end;
$$;

-- p_part: a tenant, or '' for the whole lane.
create or replace function onceward.measure_lane(p_bound onceward.bound_private, p_part text)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_now    timestamptz := onceward.now();
  -- The lines of a tenant are neighbours.  Those of the default tenant are two: the main line, and those with limits.
  v_from   text := case when p_part = '' then '' else p_part end;
  v_to     text := case when p_part = '' then null else p_part || chr(32) end;
  v_main   boolean := p_part = 'default';
  v_most   bigint := coalesce(p_bound.max_depth, 100000) + 1;
  v_depth  bigint;
  v_bytes  bigint;
  v_oldest timestamptz;
  v_reason text;
begin
  if exists (select from onceward.pressure_private as p
              where p.kind = 'lane' and p.name = p_bound.lane and p.part = p_part and p.measured_at > v_now - interval '1 second'
                and p.measured_at <= v_now) then
    return;
  end if;
  select count(*) into v_depth
    from (select from onceward.job_private as j
           where j.lane = p_bound.lane and j.state = 'ready' and j.line >= v_from and (v_to is null or j.line < v_to)
           limit v_most) as c;
  if v_main then
    v_depth := v_depth + (select count(*) from (select from onceward.job_private as j
                            where j.lane = p_bound.lane and j.state = 'ready' and j.line = '' limit v_most) as c);
  end if;
  if p_bound.max_bytes is not null or p_bound.max_age is not null then
    select sum(c.bytes), min(c.run_at) into v_bytes, v_oldest
      from (select pg_column_size(j.payload) as bytes, j.run_at from onceward.job_private as j
             where j.lane = p_bound.lane and j.state = 'ready'
               and (j.line >= v_from and (v_to is null or j.line < v_to) or v_main and j.line = '')
             order by j.line, j.priority desc, j.ready_seq
             limit 100000) as c;
  end if;
  v_reason := case
    when v_depth > p_bound.max_depth then format('more than %s jobs are ready', p_bound.max_depth)
    when v_oldest < v_now - p_bound.max_age then format('the oldest ready job has waited longer than %s', p_bound.max_age)
    when v_bytes > p_bound.max_bytes then format('ready jobs have more than %s bytes of payload', p_bound.max_bytes) end;
  v_reason := v_reason || case when p_part = '' then format(' in lane "%s"', p_bound.lane)
                               else format(' of tenant "%s" in lane "%s"', p_part, p_bound.lane) end;
  insert into onceward.pressure_private as p (kind, name, part, depth, oldest_at, bytes, reason, measured_at)
  values ('lane', p_bound.lane, p_part, v_depth, v_oldest, v_bytes, v_reason, v_now)
      on conflict (kind, name, part) do update
     set depth = excluded.depth, oldest_at = excluded.oldest_at, bytes = excluded.bytes, reason = excluded.reason,
         measured_at = excluded.measured_at;
end;
$$;

-- How many jobs wait for a limit, key by key, and when what waits now will have passed (oldest_at).
create or replace function onceward.measure_limit(p_limit onceward.limit_private)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_now  timestamptz := onceward.now();
  -- Of slots alone nobody knows how long they are held.
  v_rate double precision := least(p_limit.rate, p_limit.weight_rate / greatest(1, p_limit.weight_burst / 10));
  v_most double precision := p_limit.threshold * coalesce(p_limit.requests, p_limit.slots, p_limit.weight);
begin
  if exists (select from onceward.pressure_private as p
              where p.kind = 'limit' and p.name = p_limit.name and p.measured_at > v_now - interval '1 second' and p.measured_at <= v_now) then
    return;
  end if;
  update onceward.pressure_private as p
     set depth = 0, oldest_at = null, reason = null, measured_at = v_now
   where p.kind = 'limit' and p.name = p_limit.name;
  insert into onceward.pressure_private as p (kind, name, part, depth, oldest_at, reason, measured_at)
  select 'limit', p_limit.name, w.key, w.depth, v_now + make_interval(secs => coalesce(w.depth / v_rate, 60)),
         case when w.depth > v_most
              then format('more than %s jobs wait for limit "%s", %s %% of what one period gives', floor(v_most), p_limit.name,
                          round((p_limit.threshold * 100)::numeric)) end, v_now
    from (select u.key, sum(onceward.depth_of_line(l.name, n.line, 100000)) as depth
            from onceward.lane_private as l
           cross join unnest(onceward.lines_of(l.name, null, 500)) as n (line)
           cross join lateral (select u.key from onceward.uses_in(onceward.uses_of_line(l.name, n.line)) as u
                                where u.name = p_limit.name) as u
           where n.line like '%' || chr(31) || '%'
           group by u.key) as w
   order by w.key
      on conflict (kind, name, part) do update
     set depth = excluded.depth, oldest_at = excluded.oldest_at, reason = excluded.reason, measured_at = excluded.measured_at;
end;
$$;

-- How many ready jobs stand in a line, counted no further than p_most.
create or replace function onceward.depth_of_line(p_lane text, p_line text, p_most bigint)
  returns bigint
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return (select count(*) from (select from onceward.job_private as j
                                 where j.lane = p_lane and j.line = p_line and j.state = 'ready' limit p_most) as c);
end;
$$;

-- Every bound, for the view `bounds`.  Each tenant sees its own, and those of the lanes.
create or replace function onceward.bound_levels()
  returns table (
    lane text, tenant text, max_depth bigint, max_age interval, max_bytes bigint, over text, defer_by interval,
    measured_tenant text, depth bigint, oldest_at timestamptz, bytes bigint, reason text, measured_at timestamptz
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select b.lane, b.tenant, b.max_depth, b.max_age, b.max_bytes, b.over, b.defer_by,
         p.part, p.depth, p.oldest_at, p.bytes, p.reason, p.measured_at
    from onceward.bound_private as b
    left join onceward.pressure_private as p
      on p.kind = 'lane' and p.name = b.lane
     and (p.part = b.tenant or (b.tenant = '*' and p.part <> '' and onceward.sees_tenant(p.part)))
   where b.tenant in ('', '*') or onceward.sees_tenant(b.tenant)
   order by b.lane, b.tenant, p.part
$$;
comment on function onceward.bound_levels() is 'Bounds that the reader may see, with what was measured last; the view bounds shows them.';
