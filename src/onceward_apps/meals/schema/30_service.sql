-- Service days and QR codes.  A service day is a day in California, whatever the clock of the server or of UTC says.

create or replace function meals.zone()
  returns text
  language sql immutable
  return 'America/Los_Angeles';

create or replace function meals.service_date(p_at timestamptz default null)
  returns date
  language sql stable
  return (coalesce(p_at, onceward.now()) at time zone meals.zone())::date;
comment on function meals.service_date(timestamptz) is 'The day in California at this moment, or now.';

create or replace function meals.last_planned_day()
  returns date
  language sql stable
  return (meals.service_date() + interval '2 years')::date;
comment on function meals.last_planned_day() is 'The last day that is opened, closed or skipped: a later one is a typing error.';

-- The clocks change at two in the morning, so midnight exists once on every day.
create or replace function meals.service_day_ends(p_service_date date)
  returns timestamptz
  language sql stable
  return (p_service_date + 1)::timestamp at time zone meals.zone();
comment on function meals.service_day_ends(date) is 'The midnight in California at which this day is over.';

create or replace function meals.is_service_day(p_service_date date)
  returns boolean
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select c.is_open from meals.service_calendar as c where c.service_date = p_service_date),
    (select w.is_open from meals.service_weekdays as w where w.weekday = extract(isodow from p_service_date)),
    false)
$$;

-- Who eats on this day: a paid subscription, and not skipped.
create or replace function meals.served_customers(p_service_date date)
  returns table (id uuid)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select c.id
    from meals.customers as c
   where meals.is_service_day(p_service_date)
     and exists (select from meals.subscriptions as s where s.customer_id = c.id and s.status in ('active', 'trialing'))
     and not exists (select from meals.skips as k where k.customer_id = c.id and k.service_date = p_service_date)
$$;

create or replace function meals.due_customers(p_service_date date, p_after uuid default null, p_limit integer default 500)
  returns setof uuid
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select s.id
    from meals.served_customers(p_service_date) as s
   where not exists (select from meals.qr_tokens as q where q.customer_id = s.id and q.service_date = p_service_date)
     and s.id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')
   order by s.id
   limit p_limit
$$;
comment on function meals.due_customers(date, uuid, integer) is
  'Who eats on this day and has no QR token for it yet, in the order of the ids, after the given one.';

create or replace function meals.qr_count(p_service_date date)
  returns bigint
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select count(*) from meals.qr_tokens as q where q.service_date = p_service_date
$$;
comment on function meals.qr_count(date) is 'How many QR tokens this day has.';

-- The row is inserted here and the email by the caller, in the same transaction: neither exists without the other.
create or replace function meals.issue_qr_token(p_customer_id uuid, p_service_date date, p_jti uuid)
  returns table (
    outcome text, jti uuid, customer_id uuid, service_date date, issued_at timestamptz, expires_at timestamptz,
    used_at timestamptz, email text, name text
  )
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_outcome text;
begin
  if p_service_date < meals.service_date() then
    v_outcome := 'NOT_SERVED';
  elsif exists (select from meals.qr_tokens as q
                 where q.customer_id = p_customer_id and q.service_date = p_service_date) then
    v_outcome := 'QR_EXISTS';
  elsif not exists (select from meals.served_customers(p_service_date) as s where s.id = p_customer_id) then
    v_outcome := 'NOT_SERVED';
  else
    insert into meals.qr_tokens (jti, customer_id, service_date, expires_at)
    values (p_jti, p_customer_id, p_service_date, meals.service_day_ends(p_service_date))
        on conflict on constraint qr_tokens_customer_date_unique do nothing;
    v_outcome := case when found then 'ISSUED' else 'DUPLICATE' end;
  end if;
  return query
    select v_outcome, q.jti, q.customer_id, q.service_date, q.issued_at, q.expires_at, q.used_at, c.email, c.name
      from (values (p_customer_id)) as v (id)
      left join meals.customers as c on c.id = v.id
      left join meals.qr_tokens as q on q.customer_id = v.id and q.service_date = p_service_date;
end;
$$;
comment on function meals.issue_qr_token(uuid, date, uuid) is
  'ISSUED, and the caller adds the email in the same transaction; or QR_EXISTS (seen before trying), DUPLICATE (another one was faster), NOT_SERVED.';

create or replace function meals.qr_of_chat(p_chat_id bigint)
  returns table (
    outcome text, jti uuid, customer_id uuid, service_date date, issued_at timestamptz, expires_at timestamptz,
    used_at timestamptz, email text, name text
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select 'QR_EXISTS', q.jti, c.id, q.service_date, q.issued_at, q.expires_at, q.used_at, c.email, c.name
    from meals.telegram_links as l
    join meals.customers as c on c.id = l.customer_id
    left join meals.qr_tokens as q on q.customer_id = c.id and q.service_date = meals.service_date()
   where l.chat_id = p_chat_id
$$;
comment on function meals.qr_of_chat(bigint) is
  'Today''s QR token of the customer whom this chat belongs to; without a token, jti is null; no row for an unknown chat.';

create or replace function meals.qr_state(p_jti uuid)
  returns table (outcome text, name text, service_date date, used_at timestamptz, kiosk text)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select case when q.used_at is not null then 'ALREADY_USED'
              when q.expires_at <= onceward.now() then 'EXPIRED'
              when q.service_date > meals.service_date() then 'NOT_YET'
              else 'VALID' end,
         c.name, q.service_date, q.used_at, r.kiosk
    from meals.qr_tokens as q
    join meals.customers as c on c.id = q.customer_id
    left join meals.redemptions as r on r.jti = q.jti
   where q.jti = p_jti
$$;
comment on function meals.qr_state(uuid) is
  'VALID, ALREADY_USED (when and where), EXPIRED or NOT_YET; no row for an unknown token.  Changes nothing.';

create or replace function meals.redeem_qr(p_jti uuid, p_kiosk text, p_scan_id uuid default null)
  returns table (outcome text, name text, service_date date, used_at timestamptz, kiosk text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_token meals.qr_tokens;
begin
  update meals.qr_tokens as q
     set used_at = onceward.now()
   where q.jti = p_jti
     and q.used_at is null
     and q.expires_at > onceward.now()
     and q.service_date <= meals.service_date()
  returning q.* into v_token;
  if found then
    insert into meals.redemptions (jti, scan_id, customer_id, service_date, redeemed_at, kiosk)
    values (v_token.jti, p_scan_id, v_token.customer_id, v_token.service_date, v_token.used_at, p_kiosk);
  end if;
  return query
    -- The kiosk that lost the answer asks again about the same scan.
    select case when v_token.jti is not null or (r.scan_id = p_scan_id and r.kiosk = p_kiosk) then 'REDEEMED'
                else s.outcome end,
           s.name, s.service_date, s.used_at, s.kiosk
      from meals.qr_state(p_jti) as s
      left join meals.redemptions as r on r.jti = p_jti;
  if not found then
    return query select 'INVALID', null::text, null::date, null::timestamptz, null::text;
  end if;
end;
$$;
comment on function meals.redeem_qr(uuid, text, uuid) is
  'Uses a QR token once: REDEEMED, or ALREADY_USED (when and where), EXPIRED, NOT_YET or INVALID.  Repeating a call with the same scan id gives the same answer.';

-- What a person sees on a wall clock in California.
create or replace function meals.local_time(p_at timestamptz)
  returns text
  language sql stable
  return to_char(p_at at time zone meals.zone(), 'FMHH12:MI AM');
