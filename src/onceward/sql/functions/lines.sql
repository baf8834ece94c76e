-- Lines: inside a lane, jobs that are interchangeable as to fairness and limits stand in one line.
--   ''                                  the main line: no limits, and no tenant of its own
--   acme                                jobs of a tenant, in a fair lane
--   acme<US>openai<US>vision<RS>key     jobs of a tenant that use limits; without the tenant in a lane that is not fair
-- A claim goes round the lines.  A line whose limits have no room is passed over as a whole.

create or replace function onceward.line_of(p_fair boolean, p_tenant text, p_uses jsonb)
  returns text
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_what text;
begin
  if p_uses is null then
    return case when p_fair and p_tenant <> 'default' then p_tenant else '' end;
  end if;
  select string_agg(chr(31) || concat_ws(chr(30), u ->> 'limit', nullif(u ->> 'key', '')), '' order by i)
    into v_what
    from jsonb_array_elements(p_uses) with ordinality as e (u, i);
  -- It is part of an index, whose entries are bounded.
  if length(v_what) > 300 then
    v_what := chr(31) || md5(v_what);
  end if;
  return case when p_fair then p_tenant else '' end || v_what;
end;
$$;

-- A lane without lines must not pay for them: this is asked about once a second, and by idle workers.
create or replace function onceward.has_lines(p_lane text)
  returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return (select true from onceward.job_private as j
           where j.lane = p_lane and j.state = 'ready' and j.line > ''
           order by j.line limit 1) is not null;
end;
$$;

-- The lines of a lane that have ready jobs, the one after p_after first, once round, at most p_most.  Each is found by one
-- look into the index, however many jobs stand in it.  p_known: floors of lines, {"line": {"priority": ready_seq}}, for which
-- the look goes behind the entries of jobs that are gone.
create or replace function onceward.lines_of(p_lane text, p_after text, p_most integer, p_known jsonb default null)
  returns text[]
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set enable_sort = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
declare
  v_last  text := coalesce(p_after, '');
  v_line  text := v_last;
  v_lines text[] := case when p_after is null then array[''] else '{}' end;
  v_known text[] collate "C" := array(select k from jsonb_object_keys(p_known) as k order by k collate "C");
  v_next  text;
begin
  for v_round in 1 .. 2 loop
    while cardinality(v_lines) < p_most loop
      -- As far as the next line that is known; then that one, behind its floors.
      v_next := (select k from unnest(v_known) as k where k collate "C" > v_line limit 1);
      if v_next is null then
        select j.line into v_line from onceward.job_private as j
         where j.lane = p_lane and j.state = 'ready' and j.line > v_line
         order by j.line
         limit 1;
        exit when not found or (v_round = 2 and v_line collate "C" > v_last);
        v_lines := array_append(v_lines, v_line);
      else
        select j.line into v_line from onceward.job_private as j
         where j.lane = p_lane and j.state = 'ready' and j.line > v_line and j.line < v_next
         order by j.line
         limit 1;
        if not found then
          v_line := v_next;
        end if;
        exit when v_round = 2 and v_line collate "C" > v_last;
        if v_line <> v_next or onceward.has_ready(p_lane, v_next, p_known -> v_next) then
          v_lines := array_append(v_lines, v_line);
        end if;
      end if;
    end loop;
    exit when p_after is null;
    if v_round = 1 and cardinality(v_lines) < p_most then
      v_lines := array_append(v_lines, '');
    end if;
    v_line := '';
  end loop;
  return v_lines;
end;
$$;

-- Whether a line has ready jobs above its floors, {"priority": ready_seq}.
create or replace function onceward.has_ready(p_lane text, p_line text, p_floors jsonb)
  returns boolean
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
  set enable_bitmapscan = off
  set plan_cache_mode = force_generic_plan
  set jit = off
as $$
begin
  return exists (select from jsonb_each_text(p_floors) as f
                  where exists (select from onceward.job_private as j
                                 where j.lane = p_lane and j.line = p_line and j.state = 'ready'
                                   and j.priority = f.key::smallint and j.ready_seq > f.value::bigint));
end;
$$;

-- How many jobs each of these lines may give when p_max are wanted: tenants by their shares, the lines of a tenant alike.
create or replace function onceward.quotas(p_lane text, p_lines text[], p_max integer)
  returns integer[]
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  with waiting as materialized (
    select l.line, l.i, coalesce(nullif(split_part(l.line, chr(31), 1), ''), 'default') as tenant
      from unnest(p_lines) with ordinality as l (line, i)
  ), tenants as materialized (
    select w.tenant, count(*) as lines,
           coalesce((select s.share from onceward.share_private as s where s.lane = p_lane and s.tenant = w.tenant), 1) as share
      from waiting as w
     group by w.tenant
  )
  select array_agg(ceil(p_max * t.share::double precision / (select sum(share) from tenants) / t.lines)::integer order by w.i)
    from waiting as w
    join tenants as t on t.tenant = w.tenant
$$;

-- Claim from the lines of a lane, in turn.  What one line does not use the others get.
-- p_lines: {"after": line, "floors": {"line": {"priority": ready_seq}}}.  p_start: how many can begin at once; of lines with
-- limits, no more are taken.  The last row is no job: its outcome is `line`, its line that of the last turn, and its payload
-- says when to look again (next_in, seconds), whether that is because somebody else was taking from a limit just then (busy), and
-- how soon a job with limits has to begin (start_in).
create or replace function onceward.claim_shares(
  p_worker_id uuid,
  p_lane      text,
  p_max       integer,
  p_start     integer,
  p_floors    jsonb,
  p_lines     jsonb,
  p_overdue   timestamptz
)
  returns setof onceward.claimed
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  -- Only where the worker does not want to look from the beginning.
  v_known  jsonb := case when p_floors is not null then p_lines -> 'floors' end;
  v_lines  text[] := onceward.lines_of(p_lane, p_lines ->> 'after', 64, v_known);
  v_last   text := p_lines ->> 'after';
  v_left   integer := p_max;
  v_start  integer := p_start;
  v_more   text[];
  v_quotas integer[];
  v_floors jsonb;
  v_uses   jsonb;
  v_quota  integer;
  v_got    integer;
  v_room   record;
  v_wait   interval;
  v_within interval;
  v_busy   boolean;
begin
  -- The main line has its turn whether somebody stands there or not.  Without anybody, the others need not be asked twice.
  if p_floors is not null and cardinality(v_lines) > 1 and not onceward.has_ready(p_lane, '', p_floors) then
    v_lines := array_remove(v_lines, '');
  end if;
  for v_round in 1 .. 3 loop
    -- One line alone, and whoever comes in the last round, takes what there is.
    v_quotas := case when v_round < 3 and cardinality(v_lines) > 1 then onceward.quotas(p_lane, v_lines, v_left) end;
    v_more := '{}';
    for i in 1 .. cardinality(v_lines) loop
      exit when v_left <= 0;
      v_quota := least(v_left, coalesce(v_quotas[i], v_left));
      if v_round = 1 then
        v_last := v_lines[i];
      end if;
      if v_lines[i] like '%' || chr(31) || '%' then
        v_quota := least(v_quota, v_start);
        continue when v_quota <= 0;
        v_uses := onceward.uses_of_line(p_lane, v_lines[i], v_known -> v_lines[i]);
        v_room := onceward.room_in(v_uses, v_quota);
        if v_room.most < 1 then
          v_got := 0;
          if v_room.busy then
            -- There may be room: soon.
            v_busy := true;
            v_wait := least(v_wait, interval '0.005 seconds');
          end if;
        elsif v_room.named then
          return query select * from onceward.claim_named(p_worker_id, p_lane, v_lines[i], v_room.most, v_uses, v_room.limits, v_room.weights);
          get diagnostics v_got = row_count;
        else
          return query select * from onceward.claim_lane(p_worker_id, p_lane, v_lines[i], v_room.most, v_known -> v_lines[i], null);
          get diagnostics v_got = row_count;
          if v_got > 0 then
            perform onceward.take(l, u.key, v_got, 0, null, null)
               from unnest(v_room.limits) as l join onceward.uses_in(v_uses) as u on u.name = l.name;
          end if;
        end if;
        v_start := v_start - v_got;
        if v_got between 1 and v_quota - 1 then
          -- The next one may want another weight.
          v_uses := coalesce(onceward.uses_of_line(p_lane, v_lines[i], v_known -> v_lines[i]), v_uses);
        end if;
        select r.wait, r.allowance, r.reason into v_room from onceward.room_for(v_uses) as r;
        v_within := least(v_within, v_room.allowance);
        if v_got < v_quota then
          v_wait := least(v_wait, v_room.wait);
        end if;
      else
        v_floors := case when v_lines[i] = '' then p_floors else v_known -> v_lines[i] end;
        return query select * from onceward.claim_lane(p_worker_id, p_lane, v_lines[i], v_quota, v_floors, p_overdue);
        get diagnostics v_got = row_count;
      end if;
      v_left := v_left - v_got;
      if v_got >= v_quota then
        v_more := array_append(v_more, v_lines[i]);
      end if;
    end loop;
    exit when v_left <= 0 or v_more = '{}';
    v_lines := v_more;
  end loop;
  return query
    select * from jsonb_populate_record(null::onceward.claimed, jsonb_build_object(
      'outcome', 'line', 'lane', p_lane, 'line', coalesce(v_last, ''),
      'payload', jsonb_strip_nulls(jsonb_build_object('next_in', extract(epoch from v_wait), 'busy', v_busy, 'start_in', extract(epoch from v_within)))));
end;
$$;

-- Claim from a lane that wants every transition in the audit log, with an entry there for each tenant.  p_turns: from its lines,
-- as claim_shares does; else from the main line, which is all that there is.
create or replace function onceward.claim_audited(
  p_turns     boolean,
  p_worker_id uuid,
  p_lane      text,
  p_max       integer,
  p_start     integer,
  p_floors    jsonb,
  p_lines     jsonb,
  p_overdue   timestamptz
)
  returns setof onceward.claimed
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  with claimed as materialized (
    select * from onceward.claim_shares(p_worker_id, p_lane, p_max, p_start, p_floors, p_lines, p_overdue) where p_turns
    union all
    select * from onceward.claim_lane(p_worker_id, p_lane, '', p_max, p_floors, p_overdue) where not p_turns
  ), noted as (
    insert into onceward.audit_private (at, kind, source, actor, role, tenant, jobs, before, after, meta)
    select onceward.now(), 'job.claimed', 'engine', onceward.actor(), onceward.caller(), c.tenant, array_agg(c.job_id),
           '{"state": "ready"}', '{"state": "running"}', jsonb_build_object('lane', p_lane, 'worker', p_worker_id)
      from claimed as c
     where c.outcome = 'claimed'
     group by c.tenant
  )
  select * from claimed
$$;

create or replace function onceward.set_share(p_lane text, p_tenant text, p_share integer)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_was integer;
begin
  if not exists (select from onceward.lane_private as l where l.name = p_lane) then
    perform onceward.no_such_lane(p_lane);
  end if;
  if p_tenant is null or p_tenant !~ '^[^*[:cntrl:]]{1,200}$' then
    perform onceward.bad_argument('tenant', p_tenant, 'must be 1 to 200 characters, without * and control characters');
  end if;
  if p_share is null or p_share not between 1 and 1000 then
    perform onceward.bad_argument('share', p_share::text, 'must be between 1 and 1000');
  end if;
  perform onceward.check_tenant(p_tenant, 'share');
  select s.share into v_was from onceward.share_private as s where s.lane = p_lane and s.tenant = p_tenant for update;
  insert into onceward.share_private as s (lane, tenant, share) values (p_lane, p_tenant, p_share)
      on conflict (lane, tenant) do update set share = excluded.share where s.share <> excluded.share;
  if found then
    perform onceward.audit('share.changed', p_tenant => p_tenant, p_entity_type => 'lane', p_entity_id => p_lane,
      p_before => jsonb_build_object('share', coalesce(v_was, 1)), p_after => jsonb_build_object('share', p_share));
  end if;
end;
$$;
comment on function onceward.set_share(text, text, integer) is
  'Says how many turns a tenant gets in a lane where others get one (1 to 1000).';
