-- Whose rows: the tenant of the transaction, as the engine knows it.  Unset means no rows; never an error, never everybody's.

create or replace function alerts.tenant_id()
  returns uuid
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select t.id from alerts.tenants as t where t.slug = onceward.current_tenant()
$$;
comment on function alerts.tenant_id() is 'The tenant for whom this transaction acts, or null.';

create or replace function alerts.acting_tenant()
  returns alerts.tenants
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant alerts.tenants;
begin
  select * into v_tenant from alerts.tenants as t where t.slug = onceward.current_tenant();
  if v_tenant.id is null then
    raise exception 'tenant % does not exist', coalesce(quote_literal(left(onceward.current_tenant(), 100)), '(none)')
      using errcode = 'AL001',
            detail  = 'Everything here is done for one tenant: that of the setting "onceward.tenant".',
            hint    = 'Use a token that is bound to a tenant, or add the tenant with alerts.add_tenant.';
  end if;
  return v_tenant;
end;
$$;
comment on function alerts.acting_tenant() is 'The tenant for whom this transaction acts.  Refused (AL001) when there is none.';

create or replace function alerts.add_tenant(p_slug text, p_name text, p_time_zone text, p_notify text[] default '{}')
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_id uuid;
begin
  perform onceward.check_zone(p_time_zone);
  insert into alerts.tenants as t (slug, name, time_zone, notify)
  values (p_slug, p_name, p_time_zone, p_notify)
      on conflict (slug) do update set name = excluded.name, time_zone = excluded.time_zone, notify = excluded.notify
  returning t.id into v_id;
  return v_id;
end;
$$;
comment on function alerts.add_tenant(text, text, text, text[]) is 'Adds a tenant, or changes its name, time zone and who is told of alerts.  Returns its id.';

-- An entity in one form only: the same letters may be written composed or decomposed, at every depth.
create or replace function alerts.composed(p_value jsonb)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case jsonb_typeof(p_value)
    when 'string' then to_jsonb(normalize(p_value #>> '{}', NFC))
    when 'object' then coalesce((select jsonb_object_agg(normalize(e.key, NFC), alerts.composed(e.value) order by e.key collate "C")
                                   from jsonb_each(p_value) as e), '{}')
    when 'array' then coalesce((select jsonb_agg(alerts.composed(e.value) order by e.n)
                                  from jsonb_array_elements(p_value) with ordinality as e (value, n)), '[]')
    else p_value end
$$;

-- The windows of run keys: a day or an hour in the tenant's zone, or so many minutes.
-- Shorter windows lie within one day of the tenant, and are part of what is hashed: function:tenant:day:hash.
create or replace function alerts.window_at(
  p_function text,
  p_window   text,
  p_entity   jsonb default null,
  p_at       timestamptz default null
)
  returns table (lock_key text, starts_at timestamptz, ends_at timestamptz, grain_date date)
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant alerts.tenants := alerts.acting_tenant();
  v_at     timestamptz := coalesce(p_at, onceward.now());
  v_local  timestamp := v_at at time zone v_tenant.time_zone;
  v_entity jsonb := alerts.composed(p_entity);
begin
  grain_date := v_local::date;
  if p_window = 'day' then
    starts_at := grain_date::timestamp at time zone v_tenant.time_zone;
    ends_at := (grain_date + 1)::timestamp at time zone v_tenant.time_zone;
  elsif p_window = 'hour' then
    -- From the moment itself: the hour that is repeated in autumn is two.
    starts_at := v_at - (v_local - date_trunc('hour', v_local));
    ends_at := starts_at + interval '1 hour';
  elsif p_window ~ '^[1-9][0-9]?m$' and 60 % rtrim(p_window, 'm')::integer = 0 then
    starts_at := date_bin(rtrim(p_window, 'm')::integer * interval '1 minute', v_at, timestamptz 'epoch');
    ends_at := starts_at + rtrim(p_window, 'm')::integer * interval '1 minute';
    v_entity := coalesce(v_entity, '{}') || jsonb_build_object('window', to_char(starts_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"'));
  else
    perform onceward.bad_argument('window', p_window, 'must be day, hour, or minutes that divide an hour, like 5m');
  end if;
  lock_key := onceward.run_key(p_function, v_tenant.slug, case p_window when 'hour' then 'hour' else 'day' end, v_entity, v_at, v_tenant.time_zone);
  return next;
end;
$$;
comment on function alerts.window_at(text, text, jsonb, timestamptz) is
  'The window of a function at a moment, for the acting tenant: its lock key, its bounds, and the tenant''s day.';

-- The objects of metrics, whoever writes values.
create or replace function alerts.note_metric_objects()
  returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into alerts.metric_objects as o (tenant_id, metric_code, external_object_id, first_observed_at, last_observed_at)
  select w.tenant_id, w.metric_code, w.external_object_id, min(w.observed_at), max(w.observed_at)
    from written as w
   group by w.tenant_id, w.metric_code, w.external_object_id
   order by w.tenant_id, w.metric_code, w.external_object_id
      on conflict (tenant_id, metric_code, external_object_id) do update
     set first_observed_at = least(o.first_observed_at, excluded.first_observed_at),
         last_observed_at = greatest(o.last_observed_at, excluded.last_observed_at)
   where o.first_observed_at > excluded.first_observed_at or o.last_observed_at < excluded.last_observed_at;
  return null;
end;
$$;
create or replace trigger metric_objects_follow after insert on alerts.metric_values
  referencing new table as written for each statement execute function alerts.note_metric_objects();
