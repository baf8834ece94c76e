-- What Stripe tells.  Its events come more than once and in any order.

create or replace function meals.note_stripe_event(
  p_event_id text, p_type text, p_outcome text default 'applied', p_reason text default null
)
  returns boolean
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  with noted as (
    insert into meals.stripe_events (event_id, type, outcome, reason)
    values (p_event_id, p_type, p_outcome, p_reason)
        on conflict (event_id) do nothing
    returning 1
  )
  select exists (select from noted)
$$;
comment on function meals.note_stripe_event(text, text, text, text) is
  'Whether this event is new.  Call it in the transaction that acts on it.';

create or replace function meals.register_customer(
  p_stripe_customer_id text, p_email text, p_name text, p_telegram_handle text
)
  returns uuid
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  insert into meals.customers as c (stripe_customer_id, email, name, telegram_handle)
  values (p_stripe_customer_id, p_email, p_name, p_telegram_handle)
      on conflict (stripe_customer_id) do update
         set email = excluded.email, name = excluded.name,
             telegram_handle = coalesce(excluded.telegram_handle, c.telegram_handle)
  returning c.id
$$;
comment on function meals.register_customer(text, text, text, text) is
  'Makes the customer, or brings one up to date who buys again.';

create or replace function meals.set_subscription(
  p_stripe_subscription_id text, p_status text, p_at timestamptz, p_customer_id uuid default null
)
  returns void
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  insert into meals.subscriptions as s (stripe_subscription_id, status, status_at, customer_id)
  values (p_stripe_subscription_id, p_status, p_at, p_customer_id)
      on conflict (stripe_subscription_id) do update
         set customer_id = coalesce(s.customer_id, excluded.customer_id),
             status      = case when excluded.status_at >= s.status_at then excluded.status else s.status end,
             status_at   = greatest(s.status_at, excluded.status_at)
$$;
comment on function meals.set_subscription(text, text, timestamptz, uuid) is
  'The status of a subscription at a moment; what is older than what is known changes only whose it is.';

create or replace function meals.customer_of_stripe(p_stripe_customer_id text)
  returns table (id uuid, email text, name text)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select c.id, c.email, c.name from meals.customers as c where c.stripe_customer_id = p_stripe_customer_id
$$;
comment on function meals.customer_of_stripe(text) is 'The customer with this Stripe id.';

create or replace function meals.skip_day(p_customer_id uuid, p_service_date date)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  -- A code that exists is not taken back: the meal is being cooked.
  if p_service_date not between meals.service_date() and meals.last_planned_day()
     or exists (select from meals.qr_tokens as q
                 where q.customer_id = p_customer_id and q.service_date = p_service_date) then
    return false;
  end if;
  insert into meals.skips (customer_id, service_date) values (p_customer_id, p_service_date)
      on conflict (customer_id, service_date) do nothing;
  return true;
end;
$$;
comment on function meals.skip_day(uuid, date) is
  'The customer does without on this day.  False when the day is over, its QR code is out already, or nobody plans so far ahead.';
