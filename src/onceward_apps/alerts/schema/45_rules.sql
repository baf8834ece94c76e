-- Rules as people write them: saved, switched off and on, and tried on the past before they are saved.
-- A rule is never deleted: the alerts that it has raised belong to it.

-- The rule that a JSON object describes, with every default; refused in words that a form can show.
create or replace function alerts.rule_of(p_rule jsonb)
  returns alerts.alert_configs
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_rule   alerts.alert_configs;
  v_strange text;
begin
  if p_rule is null or jsonb_typeof(p_rule) <> 'object' then
    perform onceward.bad_argument('rule', p_rule::text, 'must be a JSON object');
  end if;
  select k into v_strange from jsonb_object_keys(p_rule) as k
   where k <> all (array['tenant_id', 'metric_code', 'external_object_id', 'title', 'kind', 'aggregate', 'comparison', 'threshold',
                         'period', 'periods', 'severity', 'enabled'])
   limit 1;
  if found then
    perform onceward.bad_argument('rule', v_strange, 'has a key that rules do not have');
  end if;
  begin
    v_rule := jsonb_populate_record(null::alerts.alert_configs, jsonb_build_object(
      'aggregate', 'last', 'comparison', 'above', 'period', '1 day', 'periods', 1, 'severity', 'warning', 'enabled', true) || p_rule);
  exception when data_exception then
    perform onceward.bad_argument('rule', p_rule::text, 'must have values of the right kind', 'Give the threshold as a number and the period as an interval.');
  end;
  v_rule.title := trim(v_rule.title);
  v_rule.external_object_id := nullif(v_rule.external_object_id, '');
  if v_rule.title is null or length(v_rule.title) not between 1 and 200 then
    perform onceward.bad_argument('title', v_rule.title, 'must have 1 to 200 characters');
  elsif v_rule.kind is null or v_rule.kind not in ('threshold', 'change', 'missing', 'trend') then
    perform onceward.bad_argument('kind', v_rule.kind, 'must be threshold, change, missing or trend');
  elsif v_rule.aggregate is null or v_rule.aggregate not in ('last', 'avg', 'sum', 'min', 'max') then
    perform onceward.bad_argument('aggregate', v_rule.aggregate, 'must be last, avg, sum, min or max');
  elsif v_rule.comparison is null or v_rule.comparison not in ('above', 'below') then
    perform onceward.bad_argument('comparison', v_rule.comparison, 'must be above or below');
  elsif (v_rule.kind = 'missing') <> (v_rule.threshold is null)
     or v_rule.threshold in ('Infinity', '-Infinity', 'NaN') or (v_rule.kind in ('change', 'trend') and v_rule.threshold < 0) then
    perform onceward.bad_argument('threshold', v_rule.threshold::text,
      'must be a number; of a change or a trend, a percentage from 0 up; and of missing data, nothing');
  elsif v_rule.period is null or v_rule.period < interval '1 minute' or v_rule.period > interval '93 days' then
    perform onceward.bad_argument('period', v_rule.period::text, 'must be 1 minute to 93 days');
  elsif v_rule.periods is null or v_rule.periods not between 1 and 366 or (v_rule.kind = 'trend') <> (v_rule.periods > 1) then
    perform onceward.bad_argument('periods', v_rule.periods::text, 'must be 2 to 366 for a trend, and 1 for everything else');
  elsif v_rule.severity is null or v_rule.severity not in ('info', 'warning', 'critical') then
    perform onceward.bad_argument('severity', v_rule.severity, 'must be info, warning or critical');
  elsif not exists (select from alerts.metric_definitions as d where d.tenant_id = v_rule.tenant_id and d.metric_code = v_rule.metric_code) then
    raise exception 'metric "%" does not exist', onceward.shown(v_rule.metric_code) using errcode = 'AL002';
  end if;
  perform onceward.check_tenant((select t.slug from alerts.tenants as t where t.id = v_rule.tenant_id), 'metric');
  return v_rule;
end;
$$;

-- What the audit log keeps of a rule.
create or replace function alerts.rule_facts(p_rule alerts.alert_configs)
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select to_jsonb(p_rule) - array['id', 'tenant_id', 'created_at', 'updated_at', 'updated_by']
$$;

-- What makes a rule fire; what its kind has no use for is left out.
create or replace function alerts.rule_condition(p_rule alerts.alert_configs)
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_array(p_rule.tenant_id, p_rule.metric_code, p_rule.external_object_id, p_rule.kind,
    case when p_rule.kind in ('threshold', 'change') then p_rule.aggregate end,
    case when p_rule.kind <> 'missing' then p_rule.comparison end,
    p_rule.threshold, extract(epoch from p_rule.period), p_rule.periods)
$$;

-- Two equal rules would raise every alert twice.
create or replace function alerts.refuse_equal_rule(p_rule alerts.alert_configs)
  returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_equal alerts.alert_configs;
begin
  -- Of two who make the same at the same moment, the second sees the first's.
  perform from alerts.metric_definitions as d
    where d.tenant_id = p_rule.tenant_id and d.metric_code = p_rule.metric_code for no key update;
  select c.* into v_equal from alerts.alert_configs as c
   where c.tenant_id = p_rule.tenant_id and c.metric_code = p_rule.metric_code and c.id is distinct from p_rule.id
     and alerts.rule_condition(c) = alerts.rule_condition(p_rule)
   order by c.created_at, c.id limit 1;
  if found then
    raise exception 'rule "%" has the same condition', v_equal.title
      using errcode = 'AL003', detail = format('It is rule %s.', v_equal.id),
            hint = case when v_equal.enabled then 'Change that one instead.' else 'It is off: switch it on instead.' end;
  end if;
end;
$$;

create or replace function alerts.save_rule(p_rule jsonb, p_rule_id uuid default null, p_seen timestamptz default null)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_rule alerts.alert_configs := alerts.rule_of(p_rule);
  v_old  alerts.alert_configs;
  v_slug text := (select t.slug from alerts.tenants as t where t.id = v_rule.tenant_id);
begin
  v_rule.updated_at := onceward.now();
  v_rule.updated_by := onceward.actor();
  if p_rule_id is null then
    perform alerts.refuse_equal_rule(v_rule);
    v_rule.id := gen_random_uuid();
    v_rule.created_at := onceward.now();
    insert into alerts.alert_configs select v_rule.*;
    perform onceward.record_event('rule.created', v_rule.title, 'alert_config', v_rule.id::text, null, alerts.rule_facts(v_rule), p_tenant => v_slug);
    return v_rule.id;
  end if;

  select c.* into v_old from alerts.alert_configs as c where c.id = p_rule_id for update;
  if not found then
    raise exception 'rule % does not exist', p_rule_id using errcode = 'AL002';
  end if;
  perform onceward.check_tenant((select t.slug from alerts.tenants as t where t.id = v_old.tenant_id), 'rule');
  if (v_old.tenant_id, v_old.metric_code, v_old.kind) is distinct from (v_rule.tenant_id, v_rule.metric_code, v_rule.kind) then
    raise exception 'rule cannot change its metric or its kind'
      using errcode = 'AL003', detail = 'The alerts that it has raised speak of both.', hint = 'Make a new rule, and switch this one off.';
  end if;
  if p_seen is distinct from v_old.updated_at and p_seen is not null then
    raise exception 'rule was changed by %', coalesce(v_old.updated_by, 'somebody else')
      using errcode = 'AL003', detail = 'Nothing was written.', hint = 'Load it again and look at what has changed.';
  end if;
  -- Switched by alerts.enable_rule alone.
  v_rule.enabled := v_old.enabled;
  if alerts.rule_facts(v_old) = alerts.rule_facts(v_rule) then
    return p_rule_id;
  end if;
  v_rule.id := p_rule_id;
  if alerts.rule_condition(v_old) <> alerts.rule_condition(v_rule) then
    perform alerts.refuse_equal_rule(v_rule);
  end if;
  update alerts.alert_configs as c
     set external_object_id = v_rule.external_object_id,
         title              = v_rule.title,
         aggregate          = v_rule.aggregate,
         comparison         = v_rule.comparison,
         threshold          = v_rule.threshold,
         period             = v_rule.period,
         periods            = v_rule.periods,
         severity           = v_rule.severity,
         updated_at         = v_rule.updated_at,
         updated_by         = v_rule.updated_by
   where c.id = p_rule_id;
  perform onceward.record_event('rule.changed', v_rule.title, 'alert_config', p_rule_id::text,
    alerts.rule_facts(v_old), alerts.rule_facts(v_rule), p_tenant => v_slug);
  return p_rule_id;
end;
$$;
comment on function alerts.save_rule(jsonb, uuid, timestamptz) is
  'Makes a rule, or changes one; keys are the columns of alert_configs.  Metric and kind stay as they were made.  With the updated_at that the caller has seen, a change that somebody else has made in between is refused, and so is a rule with the condition of another (AL003).';

create or replace function alerts.enable_rule(p_rule_id uuid, p_enabled boolean)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_rule alerts.alert_configs;
  v_slug text;
begin
  select c.* into v_rule from alerts.alert_configs as c where c.id = p_rule_id for update;
  if not found then
    raise exception 'rule % does not exist', p_rule_id using errcode = 'AL002';
  end if;
  select t.slug into v_slug from alerts.tenants as t where t.id = v_rule.tenant_id;
  perform onceward.check_tenant(v_slug, 'rule');
  if p_enabled is null then
    perform onceward.bad_argument('enabled', null, 'must be true or false');
  elsif v_rule.enabled = p_enabled then
    return;
  end if;
  update alerts.alert_configs as c
     set enabled = p_enabled, updated_at = onceward.now(), updated_by = onceward.actor()
   where c.id = p_rule_id;
  perform onceward.record_event(case when p_enabled then 'rule.enabled' else 'rule.disabled' end, v_rule.title, 'alert_config', p_rule_id::text,
    jsonb_build_object('enabled', v_rule.enabled), jsonb_build_object('enabled', p_enabled), p_tenant => v_slug);
end;
$$;
comment on function alerts.enable_rule(uuid, boolean) is 'Switches a rule off or on.  Its alerts stay.  Doing so again changes nothing.';

-- The moments are so far apart that each value is read about thirty times, however long the rule looks back.
create or replace function alerts.preview_rule(p_rule jsonb, p_days integer default 30)
  returns table (alert_date date, external_object_id text, found_at timestamptz, metric_value double precision, message text)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_rule alerts.alert_configs := alerts.rule_of(p_rule);
  v_zone text := (select t.time_zone from alerts.tenants as t where t.id = v_rule.tenant_id);
  v_step interval := least(interval '24 hours', greatest(interval '1 hour',
    make_interval(secs => extract(epoch from v_rule.period)::double precision * case v_rule.kind when 'change' then 2 when 'trend' then v_rule.periods else 1 end / 24)));
begin
  if p_days is null or p_days not between 1 and 93 then
    perform onceward.bad_argument('days', p_days::text, 'must be 1 to 93');
  end if;
  v_rule.id := gen_random_uuid();
  return query
  select distinct on (g.day, j.external_object_id)
         g.day, nullif(j.external_object_id, ''), g.moment, j.observed,
         alerts.alert_message(v_rule.kind, v_rule.comparison, d.title, d.unit, nullif(j.external_object_id, ''), j.observed, j.value,
                              v_rule.threshold, v_rule.period, v_rule.periods)
    from (select m.moment, (m.moment at time zone v_zone)::date as day
            from generate_series(onceward.now(), onceward.now() - make_interval(hours => p_days * 24), - v_step) as m (moment)) as g
   cross join lateral alerts.judge(v_rule.tenant_id, array[v_rule], g.moment) as j
    join alerts.metric_definitions as d on d.tenant_id = v_rule.tenant_id and d.metric_code = v_rule.metric_code
   where j.fires
   order by g.day, j.external_object_id, g.moment
   limit 10000;
end;
$$;
comment on function alerts.preview_rule(jsonb, integer) is
  'What a rule would have found in the last days, had it been there: one row per object and day of the tenant, at the first moment looked at.  It looks each hour; seldomer when the rule looks back for longer than a day.  Nothing is written.';
