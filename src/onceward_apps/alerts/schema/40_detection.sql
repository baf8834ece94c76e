-- Detection: all rules of a tenant in one statement.
-- Values are read once for each metric, period and span of time that rules ask for, by the end of the metric's index;
-- the number of rules and the length of the history cost nothing there.

create or replace function alerts.detect(p_as_of timestamptz, p_date date, p_job_id uuid default null)
  returns table (rules integer, evaluated bigint, firing bigint, created bigint)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_tenant alerts.tenants := alerts.acting_tenant();
  v_rules  alerts.alert_configs[] := array(select c from alerts.alert_configs as c where c.tenant_id = v_tenant.id and c.enabled);
begin
  return query
  with judged as materialized (
    select j.* from alerts.judge(v_tenant.id, v_rules, p_as_of) as j
  ), made as (
    insert into alerts.alert_instances
      (tenant_id, alert_config_id, external_object_id, alert_date, metric_code, title, message, severity, metric_value,
       reference_value, triggered_at, job_id)
    select v_tenant.id, r.id, nullif(j.external_object_id, ''), p_date, r.metric_code, r.title,
           alerts.alert_message(r.kind, r.comparison, d.title, d.unit, nullif(j.external_object_id, ''), j.observed, j.value, r.threshold, r.period, r.periods),
           r.severity, j.observed, j.reference, p_as_of, p_job_id
      from judged as j
      join unnest(v_rules) as r on r.id = j.alert_config_id
      join alerts.metric_definitions as d on d.tenant_id = v_tenant.id and d.metric_code = r.metric_code
     where j.fires
     order by r.id, j.external_object_id
        on conflict (tenant_id, alert_config_id, external_object_id, alert_date) do nothing
    returning 1
  )
  select cardinality(v_rules), (select count(*) from judged), (select count(*) from judged as j where j.fires), (select count(*) from made);
end;
$$;
comment on function alerts.detect(timestamptz, date, uuid) is
  'Evaluates every rule of the acting tenant as of a moment and records what is new: one alert per rule, object and day.  Returns how many rules, comparisons, conditions and new alerts.';

-- The values of one metric: of the last period and of the one before, as last, avg, sum, min, max; and the slope over the span.
create or replace function alerts.measure(p_tenant_id uuid, p_metric_code text, p_as_of timestamptz, p_seconds numeric, p_span numeric)
  returns table (external_object_id text, now_as double precision[], before_as double precision[], slope double precision, mean double precision)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set enable_seqscan = off
as $$
  select v.external_object_id,
         array[(array_agg(v.value order by v.observed_at desc) filter (where v.observed_at >= b.now_from))[1],
               avg(v.value) filter (where v.observed_at >= b.now_from), sum(v.value) filter (where v.observed_at >= b.now_from),
               min(v.value) filter (where v.observed_at >= b.now_from), max(v.value) filter (where v.observed_at >= b.now_from)],
         case when p_span = 2 * p_seconds then
           array[(array_agg(v.value order by v.observed_at desc) filter (where v.observed_at < b.now_from))[1],
                 avg(v.value) filter (where v.observed_at < b.now_from), sum(v.value) filter (where v.observed_at < b.now_from),
                 min(v.value) filter (where v.observed_at < b.now_from), max(v.value) filter (where v.observed_at < b.now_from)] end,
         -- Two points always lie on a line.
         case when count(*) > 2 and p_span > p_seconds then regr_slope(v.value, extract(epoch from v.observed_at - b.now_from)::double precision) end,
         avg(v.value)
    from (select p_as_of - make_interval(secs => p_seconds::double precision) as now_from,
                 p_as_of - make_interval(secs => p_span::double precision) as span_from) as b
    join alerts.metric_values as v
      on v.tenant_id = p_tenant_id and v.metric_code = p_metric_code and v.observed_at >= b.span_from and v.observed_at < p_as_of
   group by v.external_object_id, b.now_from
$$;

-- What rules say as of a moment, for each object; they need not be in the table: a preview asks for one that is not saved yet.
create or replace function alerts.judge(p_tenant_id uuid, p_rules alerts.alert_configs[], p_as_of timestamptz)
  returns table (alert_config_id uuid, external_object_id text, observed double precision, reference double precision,
                 value double precision, fires boolean)
  language sql stable
  set search_path = pg_catalog, pg_temp
  set jit = off
  -- A table that was just filled has no statistics; the index is right whatever they say.
  set enable_seqscan = off
as $$
  with rule as materialized (
    select c.*, extract(epoch from c.period) as seconds,
           extract(epoch from c.period) * case c.kind when 'change' then 2 when 'trend' then c.periods else 1 end as span,
           -- Where its aggregate stands among the measured ones.
           array_position(array['last', 'avg', 'sum', 'min', 'max'], c.aggregate) as place,
           case when c.comparison = 'above' or c.kind = 'threshold' then c.threshold else - c.threshold end as bound
      from unnest(p_rules) as c
  ), asked as materialized (
    select distinct r.metric_code, r.seconds, r.span from rule as r where r.kind <> 'missing'
  ), measured as materialized (
    select a.metric_code, a.seconds, a.span, m.*
      from asked as a
     cross join lateral alerts.measure(p_tenant_id, a.metric_code, p_as_of, a.seconds, a.span) as m
  ), compared as (
    select r.id, m.external_object_id, r.comparison, r.bound, m.now_as[r.place] as observed,
           case r.kind when 'change' then m.before_as[r.place] else r.threshold end as reference,
           case r.kind when 'threshold' then m.now_as[r.place]
                       when 'change' then 100 * (m.now_as[r.place] - m.before_as[r.place]) / nullif(abs(m.before_as[r.place]), 0)
                       else 100 * m.slope * r.seconds / nullif(abs(m.mean), 0) end as value
      from rule as r
      join measured as m on m.metric_code = r.metric_code and m.seconds = r.seconds and m.span = r.span
                        and (r.external_object_id is null or r.external_object_id = m.external_object_id)
     where r.kind <> 'missing'
  )
  select c.id, c.external_object_id, c.observed, c.reference, c.value,
         coalesce(case c.comparison when 'above' then c.value > c.bound else c.value < c.bound end, false)
    from compared as c
  union all
  -- An object that had values and has had none for a period.
  select r.id, o.external_object_id, null, null, null, true
    from rule as r
    join alerts.metric_objects as o
      on o.tenant_id = p_tenant_id and o.metric_code = r.metric_code
     and o.first_observed_at < p_as_of - make_interval(secs => r.seconds)
     and (r.external_object_id is null or r.external_object_id = o.external_object_id)
   where r.kind = 'missing'
     and (o.last_observed_at < p_as_of - make_interval(secs => r.seconds)
          -- Seen from a day in the past, later values do not count.
          or (o.last_observed_at >= p_as_of
              and not exists (select from alerts.metric_values as v
                               where v.tenant_id = p_tenant_id and v.metric_code = r.metric_code
                                 and v.observed_at >= p_as_of - make_interval(secs => r.seconds) and v.observed_at < p_as_of
                                 and v.external_object_id = o.external_object_id)))
$$;

create or replace function alerts.shown(p_value double precision, p_unit text)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case when p_unit ~ '^[$€£]$' then p_unit || n.text else n.text || case p_unit when '' then '' when '%' then ' %' else ' ' || p_unit end end
    from (select trim(to_char(p_value, case when abs(p_value) >= 1000 then 'FM999,999,999,999,990' when p_value = round(p_value) then 'FM990'
                                            else 'FM990.09' end)) as text) as n
$$;

create or replace function alerts.alert_message(
  p_kind text, p_comparison text, p_metric text, p_unit text, p_object text, p_observed double precision, p_value double precision,
  p_threshold double precision, p_period interval, p_periods integer
)
  returns text
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select p_metric || coalesce(', ' || p_object, '') || ': ' || case p_kind
    when 'threshold' then format('%s, %s %s.', alerts.shown(p_observed, p_unit), p_comparison, alerts.shown(p_threshold, p_unit))
    when 'change' then format('%s, %s by %s against the period before (limit %s).', alerts.shown(p_observed, p_unit),
      case when p_value > 0 then 'up' else 'down' end, alerts.shown(abs(p_value), '%'), alerts.shown(p_threshold, '%'))
    when 'trend' then format('%s by %s a period, over %s periods (limit %s).',
      case when p_value > 0 then 'up' else 'down' end, alerts.shown(abs(p_value), '%'), p_periods, alerts.shown(p_threshold, '%'))
    else format('no value for %s.', case when p_period >= interval '1 day' then extract(epoch from p_period)::integer / 86400 || ' d'
                                                  else extract(epoch from p_period)::integer / 3600 || ' h' end) end
$$;

-- Asked before a run is made for it, by callers who may read no alert.
create or replace function alerts.has_alert(p_alert_id uuid)
  returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select exists (select from alerts.alert_instances as a where a.id = p_alert_id and a.tenant_id = alerts.tenant_id())
$$;
comment on function alerts.has_alert(uuid) is 'Whether an alert is one of the acting tenant''s.';

-- ------------------------------------------------------------ what people do with an alert

create or replace function alerts.settle_alert(p_alert_id uuid, p_status text)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_alert alerts.alert_instances;
  v_slug  text;
begin
  if p_status is null or p_status not in ('acknowledged', 'resolved') then
    perform onceward.bad_argument('status', p_status, 'must be acknowledged or resolved');
  end if;
  select a.* into v_alert from alerts.alert_instances as a where a.id = p_alert_id for update;
  if not found then
    raise exception 'alert % does not exist', p_alert_id using errcode = 'AL002';
  end if;
  select t.slug into v_slug from alerts.tenants as t where t.id = v_alert.tenant_id;
  perform onceward.check_tenant(v_slug, 'alert');
  -- Pressed twice, or by two: the first counts.
  if v_alert.status = p_status or v_alert.status = 'resolved' then
    return;
  end if;
  update alerts.alert_instances as a
     set status = p_status,
         acknowledged_at = coalesce(a.acknowledged_at, onceward.now()),
         acknowledged_by = coalesce(a.acknowledged_by, onceward.actor()),
         resolved_at = case when p_status = 'resolved' then onceward.now() end,
         resolved_by = case when p_status = 'resolved' then onceward.actor() end
   where a.id = p_alert_id;
  perform onceward.record_event('alert.' || p_status, v_alert.title, 'alert_instance', p_alert_id::text,
    jsonb_build_object('status', v_alert.status), jsonb_build_object('status', p_status), p_tenant => v_slug);
end;
$$;
comment on function alerts.settle_alert(uuid, text) is 'Marks an alert as acknowledged or resolved, in the name of who acts.  Doing so again changes nothing.';
