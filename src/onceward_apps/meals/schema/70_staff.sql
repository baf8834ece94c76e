-- What staff see of customers and days, and what they change.

-- One line for each customer.  Of several subscriptions, the one that feeds them counts.
create or replace view meals.customer_list as
select c.id, c.name, c.email, c.telegram_handle, l.linked_at, c.created_at,
       coalesce(s.status, 'none') as status,
       case when q.used_at is not null then 'redeemed'
            when q.jti is not null then 'issued'
            when k.customer_id is not null then 'skipped'
            when not meals.is_service_day(meals.service_date()) then 'closed'
            when s.status in ('active', 'trialing') then 'missing'
            else 'not served' end as today,
       q.used_at, r.kiosk
  from meals.customers as c
  left join meals.telegram_links as l on l.customer_id = c.id
  left join lateral (
    select b.status from meals.subscriptions as b
     where b.customer_id = c.id
     order by b.status in ('active', 'trialing') desc, b.status_at desc
     limit 1) as s on true
  left join meals.qr_tokens as q on q.customer_id = c.id and q.service_date = meals.service_date()
  left join meals.redemptions as r on r.jti = q.jti
  left join meals.skips as k on k.customer_id = c.id and k.service_date = meals.service_date();
comment on view meals.customer_list is 'Customers, the subscription that counts, and how their meal of today stands.';

create or replace view meals.subscription_list as
select s.customer_id, s.stripe_subscription_id, s.status, s.status_at, s.created_at from meals.subscriptions as s;
comment on view meals.subscription_list is 'Subscriptions as Stripe last told.';

-- Links that were sent, without anything that opens them.
create or replace view meals.link_list as
select t.customer_id, 'correction' as kind, t.created_at, t.expires_at, t.used_at from meals.handle_update_tokens as t
union all
select t.customer_id, 'telegram', t.created_at, t.expires_at, t.used_at from meals.telegram_deep_link_tokens as t;
comment on view meals.link_list is 'Correction links and deep links of customers: when they were made, used, and expire.';

create or replace function meals.customer_calendar(p_customer_id uuid, p_from date, p_days integer)
  returns table (
    service_date date, is_open boolean, reason text, skipped boolean, issued_at timestamptz, used_at timestamptz, kiosk text
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select d.day, meals.is_service_day(d.day), coalesce(c.reason, ''), k.customer_id is not null, q.issued_at, q.used_at, r.kiosk
    from (select p_from + n as day from generate_series(0, least(p_days, 366) - 1) as n) as d
    left join meals.service_calendar as c on c.service_date = d.day
    left join meals.skips as k on k.customer_id = p_customer_id and k.service_date = d.day
    left join meals.qr_tokens as q on q.customer_id = p_customer_id and q.service_date = d.day
    left join meals.redemptions as r on r.jti = q.jti
   order by d.day
$$;
comment on function meals.customer_calendar(uuid, date, integer) is
  'One row for each day: open or closed, skipped, code issued, meal redeemed when and where.';

create or replace function meals.service_days(p_from date, p_days integer)
  returns table (
    service_date date, is_open boolean, is_exception boolean, reason text, skips bigint, issued bigint, redeemed bigint
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select d.day, meals.is_service_day(d.day), c.service_date is not null, coalesce(c.reason, ''),
         (select count(*) from meals.skips as k where k.service_date = d.day),
         coalesce(q.issued, 0), coalesce(q.redeemed, 0)
    from (select p_from + n as day from generate_series(0, least(p_days, 366) - 1) as n) as d
    left join meals.service_calendar as c on c.service_date = d.day
    left join lateral (
      select count(*) as issued, count(t.used_at) as redeemed from meals.qr_tokens as t where t.service_date = d.day) as q on true
   order by d.day
$$;
comment on function meals.service_days(date, integer) is
  'One row for each day: open or closed and why, how many skip it, how many codes were issued and redeemed.';

create or replace function meals.redemptions_of(p_service_date date)
  returns table (hour integer, redemptions bigint)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select extract(hour from r.redeemed_at at time zone meals.zone())::integer, count(*)
    from meals.redemptions as r
   where r.service_date = p_service_date
   group by 1
   order by 1
$$;
comment on function meals.redemptions_of(date) is 'Meals of a day by the hour in California.';

create or replace function meals.weekdays()
  returns table (weekday integer, is_open boolean)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select w.weekday, w.is_open from meals.service_weekdays as w order by w.weekday
$$;
comment on function meals.weekdays() is 'Which days of the week are open, from Monday (1) on.';

-- ------------------------------------------------------------ what staff change

create or replace function meals.customer(p_customer_id uuid)
  returns table (id uuid, email text, name text)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select c.id, c.email, c.name from meals.customers as c where c.id = p_customer_id
$$;
comment on function meals.customer(uuid) is 'One customer.';

create or replace function meals.qr_of_customer(p_customer_id uuid)
  returns table (
    outcome text, jti uuid, customer_id uuid, service_date date, issued_at timestamptz, expires_at timestamptz,
    used_at timestamptz, email text, name text
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select 'QR_EXISTS', q.jti, c.id, q.service_date, q.issued_at, q.expires_at, q.used_at, c.email, c.name
    from meals.customers as c
    left join meals.qr_tokens as q on q.customer_id = c.id and q.service_date = meals.service_date()
   where c.id = p_customer_id
$$;
comment on function meals.qr_of_customer(uuid) is
  'Today''s QR token of a customer; without a token, jti is null; no row for an unknown customer.';

create or replace function meals.email_count(p_customer_id uuid, p_template_type text, p_since timestamptz)
  returns bigint
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select count(*) from meals.emails as e
   where e.customer_id = p_customer_id and e.template_type = p_template_type and e.created_at >= p_since
$$;
comment on function meals.email_count(uuid, text, timestamptz) is 'How many emails of a kind a customer got since then.';

create or replace function meals.unskip_day(p_customer_id uuid, p_service_date date)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from meals.skips as k
   where k.customer_id = p_customer_id and k.service_date = p_service_date and p_service_date >= meals.service_date();
  return found;
end;
$$;
comment on function meals.unskip_day(uuid, date) is 'The customer eats on this day after all.  False when it was not skipped, or is over.';

create or replace function meals.set_service_day(p_service_date date, p_is_open boolean, p_reason text default '')
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- What has been cooked, or not, stays as it was.
  if p_service_date not between meals.service_date() and meals.last_planned_day() then
    return false;
  end if;
  insert into meals.service_calendar as c (service_date, is_open, reason)
  values (p_service_date, p_is_open, p_reason)
      on conflict (service_date) do update set is_open = excluded.is_open, reason = excluded.reason;
  return true;
end;
$$;
comment on function meals.set_service_day(date, boolean, text) is
  'An exception from the rule of the week.  False when the day is over, or nobody plans so far ahead.';

create or replace function meals.clear_service_day(p_service_date date)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  delete from meals.service_calendar as c
   where c.service_date = p_service_date and p_service_date >= meals.service_date();
  return found;
end;
$$;
comment on function meals.clear_service_day(date) is 'The rule of the week holds again.  False when there was no exception, or the day is over.';

create or replace function meals.set_service_weekday(p_weekday integer, p_is_open boolean)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  update meals.service_weekdays as w
     set is_open = p_is_open
   where w.weekday = p_weekday and w.is_open <> p_is_open;
  return found;
end;
$$;
comment on function meals.set_service_weekday(integer, boolean) is
  'Whether a day of the week is open, from today on.  False when it was so already.';
