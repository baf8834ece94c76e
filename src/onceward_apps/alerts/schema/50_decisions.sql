-- Decisions: one card per alert, decided by a person, measured by the metric.

create or replace function alerts.options_for(p_kind text, p_metric text)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case p_kind
    when 'missing' then jsonb_build_array(
      jsonb_build_object('code', 'repair', 'title', 'Repair the source', 'effect', 'Values come again; what was missed is filled in.'),
      jsonb_build_object('code', 'retire', 'title', 'Retire the object', 'effect', 'It is not missed any more.'),
      jsonb_build_object('code', 'wait', 'title', 'Wait a day', 'effect', 'The rule looks again tomorrow.'))
    else jsonb_build_array(
      jsonb_build_object('code', 'act', 'title', 'Act on the cause', 'effect', p_metric || ' is expected to turn within a week.'),
      jsonb_build_object('code', 'budget', 'title', 'Shift budget', 'effect', 'Less is spent where it goes wrong, more where it goes well.'),
      jsonb_build_object('code', 'wait', 'title', 'Watch for a week', 'effect', 'Nothing changes; the outcome shows whether it passes.')) end
$$;

create or replace function alerts.make_cards(p_job_id uuid default null, p_limit integer default 10000)
  returns table (created bigint, remaining bigint)
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  with waiting as materialized (
    select a.*, c.kind, d.title as metric
      from alerts.alert_instances as a
      join alerts.alert_configs as c on c.id = a.alert_config_id
      join alerts.metric_definitions as d on d.tenant_id = a.tenant_id and d.metric_code = a.metric_code
     where a.tenant_id = (alerts.acting_tenant()).id
       and not exists (select from alerts.decision_cards as k where k.alert_instance_id = a.id)
  ), made as (
    insert into alerts.decision_cards (tenant_id, alert_instance_id, metric_code, period_start, title, options, due_on, job_id)
    select w.tenant_id, w.id, w.metric_code, w.alert_date, w.title || coalesce(': ' || w.external_object_id, ''),
           alerts.options_for(w.kind, w.metric),
           w.alert_date + case w.severity when 'critical' then 1 when 'warning' then 3 else 7 end, p_job_id
      from waiting as w
     order by w.triggered_at, w.id
     limit p_limit
        on conflict do nothing
    returning 1
  )
  select (select count(*) from made), greatest((select count(*) from waiting) - p_limit, 0)
$$;
comment on function alerts.make_cards(uuid, integer) is 'Gives every alert of the acting tenant that has none its decision card.';

create or replace function alerts.move_card(p_card_id uuid, p_status text, p_decision text default null, p_note text default null)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_card alerts.decision_cards;
  v_slug text;
begin
  select k.* into v_card from alerts.decision_cards as k where k.id = p_card_id for update;
  if not found then
    raise exception 'decision card % does not exist', p_card_id using errcode = 'AL002';
  end if;
  select t.slug into v_slug from alerts.tenants as t where t.id = v_card.tenant_id;
  perform onceward.check_tenant(v_slug, 'decision card');
  -- The button pressed twice, or by two who want the same.
  if v_card.status = p_status and v_card.decision is not distinct from p_decision then
    return v_card.status;
  end if;
  if p_status is null or (v_card.status, p_status) not in (('OPEN', 'IN_PROGRESS'), ('IN_PROGRESS', 'OPEN'), ('OPEN', 'DECIDED'), ('IN_PROGRESS', 'DECIDED')) then
    raise exception 'decision card cannot go from % to %', v_card.status, coalesce(left(p_status, 20), 'nothing')
      using errcode = 'AL003',
            detail  = 'A card goes from OPEN to IN_PROGRESS to DECIDED; auto-measure-outcomes makes it MEASURED.',
            hint    = 'Load the page again: somebody may have moved it.';
  end if;
  if p_status = 'DECIDED' and not exists (select from jsonb_array_elements(v_card.options) as o where o ->> 'code' = p_decision) then
    perform onceward.bad_argument('decision', p_decision, 'must be the code of one of the card''s options');
  end if;
  update alerts.decision_cards as k
     set status     = p_status,
         owner      = case p_status when 'OPEN' then null else coalesce(k.owner, onceward.actor()) end,
         decision   = case p_status when 'DECIDED' then p_decision end,
         note       = coalesce(nullif(left(trim(p_note), 2000), ''), k.note),
         decided_at = case p_status when 'DECIDED' then onceward.now() end,
         decided_by = case p_status when 'DECIDED' then onceward.actor() end,
         updated_at = onceward.now()
   where k.id = p_card_id;
  perform onceward.record_event('decision.' || lower(p_status), v_card.title, 'decision_card', p_card_id::text,
    jsonb_build_object('status', v_card.status), jsonb_build_object('status', p_status, 'decision', p_decision), p_tenant => v_slug);
  return p_status;
end;
$$;
comment on function alerts.move_card(uuid, text, text, text) is
  'Moves a decision card: take it (IN_PROGRESS), give it back (OPEN), decide (DECIDED, with the code of an option).  Other moves are refused (AL003).';

-- A week before against a week after.  A card is measured when its week is over on the tenant's day.
create or replace function alerts.measure_outcomes(p_date date, p_job_id uuid default null)
  returns table (measured bigint, improved bigint, unchanged bigint, worsened bigint, no_data bigint)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_tenant alerts.tenants := alerts.acting_tenant();
begin
  return query
  with due as materialized (
    select k.id, k.metric_code, k.decided_at, coalesce(a.external_object_id, '') as object, d.better
      from alerts.decision_cards as k
      join alerts.alert_instances as a on a.id = k.alert_instance_id
      join alerts.metric_definitions as d on d.tenant_id = k.tenant_id and d.metric_code = k.metric_code
     where k.tenant_id = v_tenant.id and k.status = 'DECIDED'
       and (k.decided_at at time zone v_tenant.time_zone)::date + 7 <= p_date
     order by k.id
     limit 10000
       for update of k
  ), weighed as (
    select u.id, u.metric_code, u.better, w.baseline, w.observed, 100 * (w.observed - w.baseline) / nullif(abs(w.baseline), 0) as change
      from due as u
     cross join lateral (
       select avg(v.value) filter (where v.observed_at < u.decided_at) as baseline,
              avg(v.value) filter (where v.observed_at >= u.decided_at) as observed
         from alerts.metric_values as v
        where v.tenant_id = v_tenant.id and v.metric_code = u.metric_code and v.external_object_id = u.object
          and v.observed_at >= u.decided_at - interval '168 hours' and v.observed_at < u.decided_at + interval '168 hours') as w
  ), made as (
    insert into alerts.outcomes (tenant_id, decision_card_id, metric_code, baseline, observed, change_percent, verdict, measured_on, job_id)
    select v_tenant.id, w.id, w.metric_code, w.baseline, w.observed, w.change,
           case when w.change is null then 'no_data'
                when abs(w.change) < 2 then 'unchanged'
                when (w.change > 0) = (w.better = 'up') then 'improved'
                else 'worsened' end,
           p_date, p_job_id
      from weighed as w
        on conflict (tenant_id, decision_card_id) do nothing
    returning decision_card_id, verdict
  ), moved as (
    update alerts.decision_cards as k set status = 'MEASURED', updated_at = onceward.now()
      from made as m where k.id = m.decision_card_id
  )
  select count(*), count(*) filter (where m.verdict = 'improved'), count(*) filter (where m.verdict = 'unchanged'),
         count(*) filter (where m.verdict = 'worsened'), count(*) filter (where m.verdict = 'no_data') from made as m;
end;
$$;
comment on function alerts.measure_outcomes(date, uuid) is
  'Measures decisions whose week is over: the metric''s mean before and after, and whether it moved the right way.  Once per card.';

-- ------------------------------------------------------------ telling people

-- Reserve what is to be sent: each alert of today or yesterday to each recipient, once.
create or replace function alerts.reserve_notifications(p_alert_id uuid default null, p_limit integer default 500)
  returns table (id uuid, alert_id uuid, recipient text, title text, message text, severity text, alert_date date)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant alerts.tenants := alerts.acting_tenant();
begin
  return query
  with made as (
    insert into alerts.notifications as n (tenant_id, alert_instance_id, channel, recipient)
    select a.tenant_id, a.id, 'email', r.address
      from alerts.alert_instances as a
     cross join unnest(v_tenant.notify) as r (address)
     where a.tenant_id = v_tenant.id and a.status <> 'resolved'
       and a.alert_date >= (onceward.now() at time zone v_tenant.time_zone)::date - 1
       and (p_alert_id is null or a.id = p_alert_id)
       and not exists (select from alerts.notifications as s
                        where s.tenant_id = a.tenant_id and s.alert_instance_id = a.id and s.channel = 'email' and s.recipient = r.address)
     order by a.triggered_at, a.id, r.address
     limit p_limit
        on conflict do nothing
    returning n.id, n.alert_instance_id, n.recipient
  )
  select m.id, a.id, m.recipient, a.title, a.message, a.severity, a.alert_date
    from made as m join alerts.alert_instances as a on a.id = m.alert_instance_id order by a.triggered_at, m.id;
end;
$$;
comment on function alerts.reserve_notifications(uuid, integer) is 'Writes down who is to be told of which alert and returns what is new; the caller puts it into the ledger in the same transaction.';

create or replace function alerts.note_deliveries(p_ids uuid[], p_deliveries uuid[])
  returns void
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  update alerts.notifications as n set delivery_id = g.delivery
    from unnest(p_ids, p_deliveries) as g (id, delivery)
   where n.id = g.id and n.tenant_id = alerts.tenant_id()
$$;

create or replace view alerts.notification_status with (security_invoker = true) as
select n.id, n.tenant_id, n.alert_instance_id, n.channel, n.recipient, n.delivery_id, d.state, d.tries, d.ended_at, n.created_at
  from alerts.notifications as n left join onceward.deliveries as d on d.id = n.delivery_id;
comment on view alerts.notification_status is 'Who is told of which alert, and what the ledger says became of it.';
