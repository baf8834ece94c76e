-- Schedules: each function that runs by the clock, for each tenant, in the tenant's time zone.

-- p_functions: [{"name": "detect-alerts", "spec": "*/5 * * * *"}, ...]
create or replace function alerts.plan_schedules(p_functions jsonb)
  returns table (tenant text, name text, outcome text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_wanted jsonb;
begin
  v_wanted := (
    select coalesce(jsonb_agg(jsonb_build_object(
             'name', f ->> 'name', 'tenant', t.slug, 'task', 'alerts.call', 'spec', f ->> 'spec', 'zone', t.time_zone,
             'lane', 'alerts-ticks', 'payload', jsonb_build_object('function', f ->> 'name'),
             'missed', 'latest', 'overlap', 'skip') order by t.slug, f ->> 'name'), '[]')
      from alerts.tenants as t cross join jsonb_array_elements(p_functions) as f);
  -- Under a name of its own: what the application declares at its start is another list.
  return query
    select w ->> 'tenant', d.name, d.outcome
      from rows from (jsonb_array_elements(v_wanted), onceward.declare_schedules('alerts: tenants', v_wanted)) as d (w, name, outcome)
     where d.outcome is distinct from 'unchanged';
end;
$$;
comment on function alerts.plan_schedules(jsonb) is
  'Makes the schedules of every tenant what code wants; those that a person has changed or paused stay as they are.  Returns what has changed.';
