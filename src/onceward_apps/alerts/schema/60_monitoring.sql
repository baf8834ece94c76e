-- Monitoring, section 9: three checks of the engine's monitors, whose bounds an operator can change.

create or replace function alerts.check_failed_jobs(p_thresholds jsonb)
  returns table (key text, summary text, value numeric, tenant text)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select 'failed', format('%s runs of functions failed within 24 hours', count(*)), count(*), t.slug
    from alerts.job_runs as j join alerts.tenants as t on t.id = j.tenant_id
   where j.status = 'failed' and j.created_at > onceward.now() - interval '24 hours'
   group by t.slug
  having count(*) > (p_thresholds ->> 'most')::numeric
$$;

create or replace function alerts.check_long_running(p_thresholds jsonb)
  returns table (key text, summary text, value numeric, tenant text)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select j.id::text, format('%s has been running since %s', j.function_name, to_char(j.started_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')),
         round(extract(epoch from onceward.now() - j.started_at)), t.slug
    from alerts.job_runs as j join alerts.tenants as t on t.id = j.tenant_id
   where j.status = 'running' and j.started_at < onceward.now() - make_interval(secs => (p_thresholds ->> 'longest')::double precision)
   order by j.started_at
   limit 100
$$;

create or replace function alerts.check_retry_rate(p_thresholds jsonb)
  returns table (key text, summary text, value numeric, tenant text)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select 'retry rate', format('%s %% of the runs of functions had to be retried within 24 hours', r.percent), r.percent, r.slug
    from (select t.slug, round(100.0 * count(*) filter (where j.retry_count > 0) / count(*), 1) as percent
            from alerts.job_runs as j join alerts.tenants as t on t.id = j.tenant_id
           where j.created_at > onceward.now() - interval '24 hours'
           group by t.slug) as r
   where r.percent > (p_thresholds ->> 'percent')::numeric
$$;

do $$
begin
  perform onceward.add_monitor('alerts_failed_jobs', 'alerts.check_failed_jobs(jsonb)', '1 minute',
    '[{"name": "most", "value": 5, "description": "failed runs of a tenant within 24 hours"}]', 'critical',
    p_description => 'Runs of functions that failed within 24 hours.');
  perform onceward.add_monitor('alerts_long_running', 'alerts.check_long_running(jsonb)', '1 minute',
    '[{"name": "longest", "unit": "seconds", "value": 1800, "description": "a run has been running so long"}]', 'warning',
    p_description => 'Runs of functions that go on for too long.');
  perform onceward.add_monitor('alerts_retry_rate', 'alerts.check_retry_rate(jsonb)', '5 minutes',
    '[{"name": "percent", "value": 10, "description": "percent of the runs of a tenant within 24 hours were retried"}]', 'warning',
    p_description => 'Share of runs of functions that had to be retried.');
end;
$$;
