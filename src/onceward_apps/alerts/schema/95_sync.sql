-- Synchronisations and customer profiles: what the functions of the package `sync` do in the database.
-- All but accept_columns act with the rights of the worker, for the tenant of the transaction: row-level security holds here too.
-- After 90_grants.sql, which takes every right on functions away first.

set local role onceward_owner;

create or replace function alerts.add_sync_source(
  p_function text,
  p_name     text,
  p_kind     text,
  p_target   text,
  p_settings jsonb
)
  returns uuid
  language sql
  set search_path = pg_catalog, pg_temp
as $$
  insert into alerts.sync_sources as s (tenant_id, function_name, name, kind, target, settings)
  select t.id, p_function, p_name, p_kind, p_target, p_settings from alerts.acting_tenant() as t
      on conflict (tenant_id, function_name, name) do update
     set kind = excluded.kind, target = excluded.target, settings = excluded.settings
  returning s.id
$$;
comment on function alerts.add_sync_source(text, text, text, text, jsonb) is
  'Adds a source for the acting tenant, or changes its kind, target and settings; its cursor stays.  Returns its id.';

create or replace function alerts.sync_sources_of(p_function text)
  returns table (id uuid, name text, kind text, target text, settings jsonb, cursor jsonb, columns jsonb)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select s.id, s.name, s.kind, s.target, s.settings, c.cursor, coalesce(c.columns, '{}')
    from alerts.sync_sources as s
    left join alerts.sync_cursors as c on c.source_id = s.id
   where s.tenant_id = alerts.tenant_id() and s.function_name = p_function and s.enabled
   order by s.name
$$;
comment on function alerts.sync_sources_of(text) is 'The enabled sources of a function for the acting tenant, with their cursors.';

-- One page.  The cursor goes first: it is the lock, and whoever began from another one hears that somebody has read on.
create or replace function alerts.write_page(
  p_source_id uuid,
  p_expected  jsonb,
  p_cursor    jsonb,
  p_columns   jsonb,
  p_rows      jsonb,
  p_job_id    uuid
)
  returns table (moved boolean, written bigint, deleted bigint)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_source alerts.sync_sources;
begin
  select * into v_source from alerts.sync_sources as s where s.id = p_source_id and s.tenant_id = alerts.tenant_id();
  if not found then
    raise exception 'source % does not exist', p_source_id
      using errcode = 'AL002', hint = 'See alerts.sync_sources.';
  end if;
  insert into alerts.sync_cursors as c (source_id, tenant_id, cursor, columns, synced_at, job_id)
  select v_source.id, v_source.tenant_id, p_cursor, p_columns, onceward.now(), p_job_id
   where p_expected is null or exists (select from alerts.sync_cursors as x where x.source_id = v_source.id)
      on conflict (source_id) do update
     set cursor = excluded.cursor, columns = excluded.columns, synced_at = excluded.synced_at, job_id = excluded.job_id
   where c.cursor is not distinct from p_expected;
  if not found then
    return query select true, 0::bigint, 0::bigint;
    return;
  end if;
  moved := false;
  if v_source.target = 'orders' then
    select w.written, w.deleted into written, deleted from alerts.write_orders(v_source.tenant_id, v_source.id, p_rows) as w;
  else
    select w.written, w.deleted into written, deleted from alerts.write_metric_values(v_source.tenant_id, p_rows) as w;
  end if;
  update alerts.sync_cursors as c set rows_synced = c.rows_synced + written + deleted
   where c.source_id = v_source.id and written + deleted > 0;
  return next;
end;
$$;
comment on function alerts.write_page(uuid, jsonb, jsonb, jsonb, jsonb, uuid) is
  'Writes the rows of a page and the cursor after it, unless somebody has read on from the expected one (moved).  Rows that are there already count as nothing.';

-- Of several versions of an order the latest counts, in a page and against what is there.
create or replace function alerts.write_orders(p_tenant_id uuid, p_source_id uuid, p_rows jsonb)
  returns table (written bigint, deleted bigint)
  language sql
  set search_path = pg_catalog, pg_temp
as $$
  with given as materialized (
    select distinct on (r.order_id) r.*
      from rows from (jsonb_to_recordset(p_rows) as (
             order_id text, customer_id text, email text, name text, ordered_at timestamptz, updated_at timestamptz,
             amount numeric, currency text, status text, extra jsonb, gone boolean)) with ordinality
        as r (order_id, customer_id, email, name, ordered_at, updated_at, amount, currency, status, extra, gone, n)
     order by r.order_id, r.updated_at desc, r.n desc
  ), removed as (
    delete from alerts.orders as o using given as g
     where g.gone and o.tenant_id = p_tenant_id and o.order_id = g.order_id and o.updated_at <= g.updated_at
    returning 1
  ), upserted as (
    insert into alerts.orders as o
      (tenant_id, order_id, source_id, customer_id, email, name, ordered_at, updated_at, amount, currency, status, extra)
    select p_tenant_id, g.order_id, p_source_id, g.customer_id, g.email, g.name, g.ordered_at, g.updated_at, g.amount, g.currency,
           g.status, coalesce(g.extra, '{}')
      from given as g where g.gone is not true order by g.order_id
        on conflict (tenant_id, order_id) do update
       set source_id = excluded.source_id, customer_id = excluded.customer_id, email = excluded.email, name = excluded.name,
           ordered_at = excluded.ordered_at, updated_at = excluded.updated_at, amount = excluded.amount,
           currency = excluded.currency, status = excluded.status, extra = excluded.extra
     where excluded.updated_at >= o.updated_at
       and (o.source_id, o.customer_id, o.email, o.name, o.ordered_at, o.updated_at, o.amount, o.currency, o.status, o.extra)
           is distinct from (excluded.source_id, excluded.customer_id, excluded.email, excluded.name, excluded.ordered_at,
                             excluded.updated_at, excluded.amount, excluded.currency, excluded.status, excluded.extra)
    returning 1
  )
  select (select count(*) from upserted), (select count(*) from removed)
$$;

-- A metric that nobody has defined gets its code for a title; a person may say more.
create or replace function alerts.write_metric_values(p_tenant_id uuid, p_rows jsonb)
  returns table (written bigint, deleted bigint)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into alerts.metric_definitions (tenant_id, metric_code, title)
  select distinct p_tenant_id, r.metric_code, r.metric_code
    from jsonb_to_recordset(p_rows) as r (metric_code text, gone boolean) where r.gone is not true
   order by r.metric_code
      on conflict (tenant_id, metric_code) do nothing;
  return query
  with given as materialized (
    select distinct on (r.metric_code, r.observed_at, r.external_object_id) r.*
      from rows from (jsonb_to_recordset(p_rows) as (
             metric_code text, observed_at timestamptz, external_object_id text, value double precision, gone boolean)) with ordinality
        as r (metric_code, observed_at, external_object_id, value, gone, n)
     order by r.metric_code, r.observed_at, r.external_object_id, r.n desc
  ), removed as (
    delete from alerts.metric_values as v using given as g
     where g.gone and v.tenant_id = p_tenant_id and v.metric_code = g.metric_code and v.observed_at = g.observed_at
       and v.external_object_id = g.external_object_id
    returning 1
  ), upserted as (
    insert into alerts.metric_values as v (tenant_id, metric_code, observed_at, external_object_id, value)
    select p_tenant_id, g.metric_code, g.observed_at, g.external_object_id, g.value
      from given as g where g.gone is not true
        on conflict (tenant_id, metric_code, observed_at, external_object_id) do update
       set value = excluded.value
     where v.value <> excluded.value
    returning 1
  )
  select (select count(*) from upserted), (select count(*) from removed);
end;
$$;

create or replace function alerts.accept_columns(p_source_id uuid)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_tenant(t.slug, 'source')
     from alerts.sync_sources as s join alerts.tenants as t on t.id = s.tenant_id where s.id = p_source_id;
  if not found then
    raise exception 'source % does not exist', p_source_id
      using errcode = 'AL002', hint = 'See alerts.sync_sources.';
  end if;
  update alerts.sync_cursors as c set columns = '{}' where c.source_id = p_source_id;
end;
$$;
comment on function alerts.accept_columns(uuid) is
  'Forgets which columns a source had, so that the next run takes those that it finds.';

create or replace function alerts.enable_source(p_source_id uuid, p_enabled boolean)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
begin
  update alerts.sync_sources as s set enabled = p_enabled where s.id = p_source_id;
  if not found then
    raise exception 'source % does not exist', p_source_id
      using errcode = 'AL002', hint = 'See alerts.sync_sources.';
  end if;
end;
$$;
comment on function alerts.enable_source(uuid, boolean) is 'Whether a source is read.  One that is paused goes on where it was.';

-- ------------------------------------------------------------ customer profiles

-- One statement over all orders before a moment, the beginning of the day.  Built again, it says the same; a day of the past
-- changes no profile that was built for a later one.  Of segments, the first that fits.
create or replace function alerts.build_profiles(p_day date, p_before timestamptz)
  returns table (profiles bigint, changed bigint, removed bigint, segments jsonb)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant alerts.tenants := alerts.acting_tenant();
begin
  return query
  with counted as materialized (
    select o.order_id, o.customer_id, o.email, o.name, o.ordered_at, o.amount, o.currency
      from alerts.orders as o
     where o.tenant_id = v_tenant.id and o.ordered_at < p_before and o.status not in ('cancelled', 'refunded', 'voided')
  ), main as (
    -- Revenue in one currency, that of most orders: amounts of different ones do not add up.
    select mode() within group (order by c.currency) as currency from counted as c
  ), by_currency as (
    select s.customer_id, jsonb_object_agg(s.currency, s.amount) as amounts
      from (select c.customer_id, c.currency, sum(c.amount) as amount from counted as c group by c.customer_id, c.currency) as s
     group by s.customer_id
  ), summed as (
    select c.customer_id, count(*)::integer as orders,
           coalesce(sum(c.amount) filter (where c.currency = m.currency), 0) as revenue,
           min(c.ordered_at) as first_order_at, max(c.ordered_at) as last_order_at,
           (array_agg(c.email order by c.ordered_at desc, c.order_id desc) filter (where c.email is not null))[1] as email,
           (array_agg(c.name order by c.ordered_at desc, c.order_id desc) filter (where c.name is not null))[1] as name,
           p_day - (max(c.ordered_at) at time zone v_tenant.time_zone)::date as days_ago
      from counted as c cross join main as m
     group by c.customer_id
  ), ranked as (
    select s.*, percent_rank() over (order by s.revenue) as standing from summed as s
  ), built as materialized (
    select r.customer_id, r.email, r.name, r.orders, r.revenue, r.first_order_at, r.last_order_at,
           case when r.days_ago > 180 then 'lapsed'
                when r.days_ago > 90 then 'at_risk'
                when r.standing >= 0.95 and r.orders > 1 then 'vip'
                when r.orders >= 5 then 'loyal'
                when r.orders > 1 then 'active'
                else 'new' end as segment,
           jsonb_build_object('revenue', b.amounts, 'average_order', round(r.revenue / r.orders, 2)) as attributes
      from ranked as r join by_currency as b using (customer_id)
  ), upserted as (
    insert into alerts.customer_profiles as p
      (tenant_id, customer_id, email, name, orders, revenue, first_order_at, last_order_at, segment, built_on, attributes)
    select v_tenant.id, b.customer_id, b.email, b.name, b.orders, b.revenue, b.first_order_at, b.last_order_at, b.segment, p_day, b.attributes
      from built as b order by b.customer_id
        on conflict (tenant_id, customer_id) do update
       set email = excluded.email, name = excluded.name, orders = excluded.orders, revenue = excluded.revenue,
           first_order_at = excluded.first_order_at, last_order_at = excluded.last_order_at, segment = excluded.segment,
           built_on = excluded.built_on, attributes = excluded.attributes
     where p.built_on <= excluded.built_on
       and (p.email, p.name, p.orders, p.revenue, p.first_order_at, p.last_order_at, p.segment, p.built_on, p.attributes)
           is distinct from (excluded.email, excluded.name, excluded.orders, excluded.revenue, excluded.first_order_at,
                             excluded.last_order_at, excluded.segment, excluded.built_on, excluded.attributes)
    returning 1
  ), gone as (
    delete from alerts.customer_profiles as p
     where p.tenant_id = v_tenant.id and p.built_on <= p_day
       and not exists (select from built as b where b.customer_id = p.customer_id)
    returning 1
  )
  select (select count(*) from built), (select count(*) from upserted), (select count(*) from gone),
         (select coalesce(jsonb_object_agg(s.segment, s.n), '{}') from (select b.segment, count(*) as n from built as b group by b.segment) as s);
end;
$$;
comment on function alerts.build_profiles(date, timestamptz) is
  'Builds the customer profiles of the acting tenant for a day, from all orders before its beginning.  Returns how many there are, changed and went, and how many are in each segment.';

-- ------------------------------------------------------------ grants

revoke all on function
  alerts.add_sync_source, alerts.sync_sources_of, alerts.write_page, alerts.write_orders, alerts.write_metric_values,
  alerts.accept_columns, alerts.enable_source, alerts.build_profiles
  from public;
grant execute on function alerts.sync_sources_of, alerts.write_page, alerts.write_orders, alerts.write_metric_values, alerts.build_profiles
   to onceward_worker;
grant execute on function alerts.add_sync_source, alerts.accept_columns, alerts.enable_source to onceward_operator;
reset role;
