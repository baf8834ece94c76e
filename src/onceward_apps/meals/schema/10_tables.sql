-- Meals: customers who pay by Stripe, correct their Telegram handle, get one QR code per service day and redeem it once.
-- Everything here belongs to onceward_owner; the application calls functions and reads views (see 90_grants.sql).

do $$
declare
  v_role text;
begin
  foreach v_role in array array['meals_app', 'meals_staff'] loop
    begin
      if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
        execute format('create role %I nologin', v_role);
      end if;
    exception
      -- Roles are shared by the databases of a cluster: the first installer wins.
      when duplicate_object or unique_violation then null;
      when insufficient_privilege then
        raise exception 'cannot create role "%"', v_role
          using errcode = 'insufficient_privilege',
                hint    = 'Let an administrator run: create role meals_app nologin; create role meals_staff nologin.';
    end;
  end loop;

  -- Supabase: its backend role runs the application.
  if exists (select from pg_catalog.pg_roles where rolname = 'service_role') then
    begin
      grant meals_app, meals_staff to service_role;
    exception
      when insufficient_privilege then
        raise notice 'could not grant meals_app and meals_staff to service_role: an administrator has to';
    end;
  end if;
end;
$$;

create schema if not exists meals authorization onceward_owner;
set local role onceward_owner;

-- ------------------------------------------------------------ customers

create table if not exists meals.customers (
  id                 uuid primary key default pg_catalog.gen_random_uuid(),
  email              text not null,
  name               text not null,
  telegram_handle    text,
  stripe_customer_id text,
  created_at         timestamptz not null default onceward.now(),
  constraint customers_stripe_once unique (stripe_customer_id),
  constraint customers_email_has_length check (length(email) between 3 and 254),
  constraint customers_name_has_length check (length(name) between 1 and 200),
  constraint customers_handle_form check (telegram_handle ~ '^@[A-Za-z0-9_]{1,31}$')
);

create table if not exists meals.subscriptions (
  id                     uuid primary key default pg_catalog.gen_random_uuid(),
  -- Null: Stripe told of the subscription before it told who bought it.
  customer_id            uuid references meals.customers (id) on delete cascade,
  stripe_subscription_id text not null,
  status                 text not null,
  -- When Stripe says that the status began: older news does not undo newer news.
  status_at              timestamptz not null,
  created_at             timestamptz not null default onceward.now(),
  constraint subscriptions_stripe_once unique (stripe_subscription_id),
  constraint subscriptions_status_known check (status in (
    'incomplete', 'incomplete_expired', 'trialing', 'active', 'past_due', 'canceled', 'unpaid', 'paused'))
);
create index if not exists subscriptions_customer_idx on meals.subscriptions (customer_id);

-- ------------------------------------------------------------ the service calendar, in Pacific time

-- The rule of the week: 1 is Monday, 7 is Sunday.
create table if not exists meals.service_weekdays (
  weekday integer primary key,
  is_open boolean not null,
  constraint service_weekdays_iso check (weekday between 1 and 7)
);
insert into meals.service_weekdays (weekday, is_open)
select d, d <= 5 from pg_catalog.generate_series(1, 7) as d
    on conflict (weekday) do nothing;

-- The exceptions: closed on a holiday, open on a Saturday.
create table if not exists meals.service_calendar (
  service_date date primary key,
  is_open      boolean not null,
  reason       text not null default ''
);
-- Apart, for tables that were made before there was a limit.
alter table meals.service_calendar drop constraint if exists service_calendar_reason_has_length;
alter table meals.service_calendar add constraint service_calendar_reason_has_length check (length(reason) <= 200);

-- A customer does without on this day.
create table if not exists meals.skips (
  customer_id  uuid not null references meals.customers (id) on delete cascade,
  service_date date not null,
  created_at   timestamptz not null default onceward.now(),
  primary key (customer_id, service_date)
);

-- ------------------------------------------------------------ links that are used once

create table if not exists meals.handle_update_tokens (
  id          uuid primary key default pg_catalog.gen_random_uuid(),
  customer_id uuid not null references meals.customers (id) on delete cascade,
  token_hash  bytea not null,
  created_at  timestamptz not null default onceward.now(),
  expires_at  timestamptz not null,
  used_at     timestamptz,
  constraint handle_update_tokens_once unique (token_hash),
  constraint handle_update_tokens_hashed check (octet_length(token_hash) = 32)
);
create index if not exists handle_update_tokens_customer_idx on meals.handle_update_tokens (customer_id);
create index if not exists handle_update_tokens_expiry_idx on meals.handle_update_tokens (expires_at);

create table if not exists meals.telegram_deep_link_tokens (
  id           uuid primary key default pg_catalog.gen_random_uuid(),
  customer_id  uuid not null references meals.customers (id) on delete cascade,
  token_hash   bytea not null,
  created_at   timestamptz not null default onceward.now(),
  expires_at   timestamptz not null,
  used_at      timestamptz,
  used_by_chat bigint,
  constraint telegram_deep_link_tokens_once unique (token_hash),
  constraint telegram_deep_link_tokens_hashed check (octet_length(token_hash) = 32),
  constraint telegram_deep_link_tokens_used_by check ((used_at is null) = (used_by_chat is null))
);
create index if not exists telegram_deep_link_tokens_customer_idx on meals.telegram_deep_link_tokens (customer_id);
create index if not exists telegram_deep_link_tokens_expiry_idx on meals.telegram_deep_link_tokens (expires_at);

create table if not exists meals.telegram_links (
  customer_id uuid primary key references meals.customers (id) on delete cascade,
  chat_id     bigint not null,
  linked_at   timestamptz not null default onceward.now(),
  constraint telegram_links_chat_once unique (chat_id)
);

-- ------------------------------------------------------------ QR codes

create table if not exists meals.qr_tokens (
  jti          uuid primary key,
  customer_id  uuid not null references meals.customers (id) on delete cascade,
  service_date date not null,
  issued_at    timestamptz not null default onceward.now(),
  expires_at   timestamptz not null,
  used_at      timestamptz,
  constraint qr_tokens_customer_date_unique unique (customer_id, service_date)
);
comment on constraint qr_tokens_customer_date_unique on meals.qr_tokens is
  'Prevents duplicate QR tokens for same customer and date (race condition protection)';
create index if not exists qr_tokens_date_idx on meals.qr_tokens (service_date);

create table if not exists meals.redemptions (
  id           uuid primary key default pg_catalog.gen_random_uuid(),
  jti          uuid not null references meals.qr_tokens (jti) on delete cascade,
  -- Named by the kiosk, so that it may ask again when the answer was lost.
  scan_id      uuid,
  customer_id  uuid not null references meals.customers (id) on delete cascade,
  service_date date not null,
  redeemed_at  timestamptz not null default onceward.now(),
  kiosk        text not null,
  constraint redemptions_once unique (jti),
  constraint redemptions_kiosk_has_length check (length(kiosk) between 1 and 100)
);
create index if not exists redemptions_customer_idx on meals.redemptions (customer_id);
create index if not exists redemptions_date_idx on meals.redemptions (service_date);

-- ------------------------------------------------------------ calls that come in more than once

create table if not exists meals.stripe_events (
  event_id    text primary key,
  type        text not null,
  outcome     text not null,
  reason      text,
  received_at timestamptz not null default onceward.now(),
  constraint stripe_events_outcome_known check (outcome in ('applied', 'ignored', 'invalid'))
);
create index if not exists stripe_events_received_idx on meals.stripe_events (received_at);

create table if not exists meals.telegram_updates (
  update_id   bigint primary key,
  received_at timestamptz not null default onceward.now()
);
create index if not exists telegram_updates_received_idx on meals.telegram_updates (received_at);

-- ------------------------------------------------------------ emails

-- What the ledger does not know about a delivery: for whom, and from which template.  The id is that of the delivery.
create table if not exists meals.emails (
  id            uuid primary key,
  customer_id   uuid references meals.customers (id) on delete cascade,
  template_type text not null,
  tags          jsonb not null default '[]',
  created_at    timestamptz not null default onceward.now()
);
create index if not exists emails_customer_idx on meals.emails (customer_id);
create index if not exists emails_created_idx on meals.emails (created_at);
