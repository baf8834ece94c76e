-- Alerts: tenants keep metrics and rules; a condition makes one alert per day, an alert one decision card, a card one outcome.
-- Everything belongs to onceward_owner.  A tenant here is a tenant of the engine, under its slug; see 90_grants.sql for who sees what.
-- Runs and dead letters have no tables: alerts.job_runs and alerts.sync_errors are views of the engine's jobs.

create schema if not exists alerts authorization onceward_owner;
set local role onceward_owner;

create table if not exists alerts.tenants (
  id         uuid primary key default pg_catalog.gen_random_uuid(),
  -- The engine's name of the tenant, in lock keys, tokens and settings.
  slug       text not null,
  name       text not null,
  -- In which days and hours begin.
  time_zone  text not null default 'UTC',
  -- Who hears of alerts, by email; nobody when empty.
  notify     text[] not null default '{}',
  created_at timestamptz not null default onceward.now(),
  constraint tenants_slug_once unique (slug),
  constraint tenants_slug_form check (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  constraint tenants_name_has_length check (length(name) between 1 and 200)
);
comment on table alerts.tenants is 'Whose metrics, rules and alerts: the name in the engine, and the time zone in which their days begin.';

-- ------------------------------------------------------------ metrics

create table if not exists alerts.metric_definitions (
  tenant_id   uuid not null references alerts.tenants (id) on delete cascade,
  metric_code text not null,
  title       text not null,
  unit        text not null default '',
  -- Which way is good: what an outcome is measured by.
  better      text not null default 'up',
  created_at  timestamptz not null default onceward.now(),
  primary key (tenant_id, metric_code),
  constraint metric_definitions_code_form check (metric_code ~ '^[a-z0-9][a-z0-9_.-]{0,99}$'),
  constraint metric_definitions_better_known check (better in ('up', 'down'))
);
comment on table alerts.metric_definitions is 'What is measured, in which unit, and which way is good.';

-- The key begins with the metric and goes on with the time: rules read the end of it, however long the history is.
create table if not exists alerts.metric_values (
  tenant_id          uuid not null,
  metric_code        text not null,
  observed_at        timestamptz not null,
  -- Of which shop, product, campaign; empty when the metric has no objects.
  external_object_id text not null default '',
  value              double precision not null,
  primary key (tenant_id, metric_code, observed_at, external_object_id),
  constraint metric_values_of_metric foreign key (tenant_id, metric_code)
    references alerts.metric_definitions (tenant_id, metric_code) on delete cascade,
  constraint metric_values_finite check (value > '-Infinity' and value < 'Infinity')
);
comment on table alerts.metric_values is 'One value of one metric, of one object, at one moment.  Writing it again changes it.';

-- Which objects a metric has, and since when: a rule about missing data has to know what to miss.
create table if not exists alerts.metric_objects (
  tenant_id          uuid not null,
  metric_code        text not null,
  external_object_id text not null,
  first_observed_at  timestamptz not null,
  last_observed_at   timestamptz not null,
  primary key (tenant_id, metric_code, external_object_id),
  constraint metric_objects_of_metric foreign key (tenant_id, metric_code)
    references alerts.metric_definitions (tenant_id, metric_code) on delete cascade
);
comment on table alerts.metric_objects is 'The objects of each metric, kept up by a trigger of metric_values.';

-- ------------------------------------------------------------ rules and what they find

create table if not exists alerts.alert_configs (
  id                 uuid primary key default pg_catalog.gen_random_uuid(),
  tenant_id          uuid not null,
  metric_code        text not null,
  -- Null: every object of the metric, each by itself.
  external_object_id text,
  title              text not null,
  kind               text not null,
  -- What the values of a period are taken together as.
  aggregate          text not null default 'last',
  comparison         text not null default 'above',
  -- threshold: in the metric's unit.  change, trend: in percent, per period.  missing: none.
  threshold          double precision,
  period             interval not null default '1 day',
  -- trend: over how many periods.
  periods            integer not null default 1,
  severity           text not null default 'warning',
  enabled            boolean not null default true,
  created_at         timestamptz not null default onceward.now(),
  constraint alert_configs_of_metric foreign key (tenant_id, metric_code)
    references alerts.metric_definitions (tenant_id, metric_code) on delete cascade,
  constraint alert_configs_title_has_length check (length(title) between 1 and 200),
  constraint alert_configs_kind_known check (kind in ('threshold', 'change', 'missing', 'trend')),
  constraint alert_configs_aggregate_known check (aggregate in ('last', 'avg', 'sum', 'min', 'max')),
  constraint alert_configs_comparison_known check (comparison in ('above', 'below')),
  constraint alert_configs_threshold_given check ((kind = 'missing') = (threshold is null)),
  constraint alert_configs_period_bounded check (period >= interval '1 minute' and period <= interval '93 days'),
  constraint alert_configs_periods_bounded check (periods between 1 and 366 and (kind = 'trend') = (periods > 1)),
  constraint alert_configs_severity_known check (severity in ('info', 'warning', 'critical'))
);
alter table alerts.alert_configs add column if not exists updated_at timestamptz not null default onceward.now();
alter table alerts.alert_configs add column if not exists updated_by text;
create index if not exists alert_configs_tenant_idx on alerts.alert_configs (tenant_id, metric_code) where enabled;
comment on table alerts.alert_configs is
  'Rules: a value beyond a threshold, a change against the period before, missing data, a trend over several periods.';

create table if not exists alerts.alert_instances (
  id                 uuid primary key default pg_catalog.gen_random_uuid(),
  tenant_id          uuid not null references alerts.tenants (id) on delete cascade,
  alert_config_id    uuid not null references alerts.alert_configs (id) on delete cascade,
  external_object_id text,
  -- The day in the tenant's time zone: a real column, because a day of a timestamptz depends on who asks.
  alert_date         date not null,
  metric_code        text not null,
  title              text not null,
  message            text not null,
  severity           text not null,
  status             text not null default 'active',
  metric_value       double precision,
  -- What it was compared with: the threshold, or the value of the period before.
  reference_value    double precision,
  -- The moment for which the rule was evaluated.
  triggered_at       timestamptz not null,
  -- The run that found it.
  job_id             uuid,
  created_at         timestamptz not null default onceward.now(),
  acknowledged_at    timestamptz,
  acknowledged_by    text,
  resolved_at        timestamptz,
  resolved_by        text,
  constraint alert_instances_severity_known check (severity in ('info', 'warning', 'critical')),
  constraint alert_instances_status_known check (status in ('active', 'open', 'triggered', 'acknowledged', 'resolved')),
  constraint alert_instances_resolved_has_time check ((status = 'resolved') = (resolved_at is not null))
);
-- Whatever its status: an alert that somebody has resolved is not raised again on the same day.
create unique index if not exists unique_alert_instance
  on alerts.alert_instances (tenant_id, alert_config_id, external_object_id, alert_date) nulls not distinct;
create index if not exists alert_instances_latest_idx on alerts.alert_instances (tenant_id, triggered_at desc, id);
create index if not exists alert_instances_config_idx on alerts.alert_instances (alert_config_id);
comment on table alerts.alert_instances is 'What rules have found: one row per tenant, rule, object and day of the tenant.';

-- ------------------------------------------------------------ decisions

create table if not exists alerts.decision_cards (
  id                uuid primary key default pg_catalog.gen_random_uuid(),
  tenant_id         uuid not null references alerts.tenants (id) on delete cascade,
  alert_instance_id uuid not null references alerts.alert_instances (id) on delete cascade,
  metric_code       text not null,
  period_start      date not null,
  title             text not null,
  -- [{"code": "...", "title": "...", "effect": "..."}]
  options           jsonb not null,
  owner             text,
  due_on            date not null,
  status            text not null default 'OPEN',
  -- The code of the option that was taken.
  decision          text,
  note              text,
  decided_at        timestamptz,
  decided_by        text,
  job_id            uuid,
  created_at        timestamptz not null default onceward.now(),
  updated_at        timestamptz not null default onceward.now(),
  constraint decision_cards_one_per_alert unique (alert_instance_id),
  constraint decision_cards_status_known check (status in ('OPEN', 'IN_PROGRESS', 'DECIDED', 'MEASURED')),
  constraint decision_cards_options_listed check (jsonb_typeof(options) = 'array' and jsonb_array_length(options) > 0),
  constraint decision_cards_decided_is_complete check (
    (status in ('DECIDED', 'MEASURED')) = (decision is not null and decided_at is not null and decided_by is not null))
);
create unique index if not exists unique_decision_card
  on alerts.decision_cards (tenant_id, alert_instance_id, metric_code, period_start) nulls not distinct;
create index if not exists decision_cards_board_idx on alerts.decision_cards (tenant_id, status, due_on, id);
comment on table alerts.decision_cards is 'What to do about an alert: options, owner, due day; OPEN, IN_PROGRESS, DECIDED, MEASURED.';

create table if not exists alerts.outcomes (
  id               uuid primary key default pg_catalog.gen_random_uuid(),
  tenant_id        uuid not null references alerts.tenants (id) on delete cascade,
  decision_card_id uuid not null references alerts.decision_cards (id) on delete cascade,
  metric_code      text not null,
  -- Means of the same number of days before and after the decision.
  baseline         double precision,
  observed         double precision,
  change_percent   double precision,
  verdict          text not null,
  measured_on      date not null,
  job_id           uuid,
  created_at       timestamptz not null default onceward.now(),
  constraint outcomes_verdict_known check (verdict in ('improved', 'unchanged', 'worsened', 'no_data'))
);
create unique index if not exists unique_outcome on alerts.outcomes (tenant_id, decision_card_id);
create index if not exists outcomes_card_idx on alerts.outcomes (decision_card_id);
comment on table alerts.outcomes is 'Whether the metric moved after a decision: one row per card.';

create table if not exists alerts.notifications (
  id                uuid primary key default pg_catalog.gen_random_uuid(),
  tenant_id         uuid not null references alerts.tenants (id) on delete cascade,
  alert_instance_id uuid not null references alerts.alert_instances (id) on delete cascade,
  channel           text not null default 'email',
  recipient         text not null,
  -- In the engine's ledger, which knows whether it was sent.
  delivery_id       uuid,
  created_at        timestamptz not null default onceward.now(),
  constraint notifications_channel_known check (channel in ('email'))
);
create unique index if not exists unique_notification
  on alerts.notifications (tenant_id, alert_instance_id, channel, recipient);
comment on table alerts.notifications is 'Who is told of which alert: one row per alert, channel and recipient.';

-- ------------------------------------------------------------ what comes from other systems

create table if not exists alerts.sync_sources (
  id            uuid primary key default pg_catalog.gen_random_uuid(),
  tenant_id     uuid not null references alerts.tenants (id) on delete cascade,
  -- The function that reads it.
  function_name text not null,
  name          text not null,
  kind          text not null,
  -- Where the rows go: metric_values or orders.
  target        text not null,
  -- Addresses, columns, names of environment variables; never a secret.
  settings      jsonb not null default '{}',
  enabled       boolean not null default true,
  created_at    timestamptz not null default onceward.now(),
  constraint sync_sources_name_once unique (tenant_id, function_name, name),
  constraint sync_sources_kind_known check (kind in ('bigquery', 'http', 'csv', 'parquet')),
  constraint sync_sources_target_known check (target in ('metric_values', 'orders')),
  constraint sync_sources_settings_object check (jsonb_typeof(settings) = 'object')
);
comment on table alerts.sync_sources is 'From where a tenant''s rows come.';

create table if not exists alerts.sync_cursors (
  source_id   uuid primary key references alerts.sync_sources (id) on delete cascade,
  tenant_id   uuid not null references alerts.tenants (id) on delete cascade,
  -- Where the next page begins, in the source's own words.
  cursor      jsonb,
  -- Column → type, as the last page had them.
  columns     jsonb not null default '{}',
  rows_synced bigint not null default 0,
  synced_at   timestamptz not null default onceward.now(),
  job_id      uuid
);
comment on table alerts.sync_cursors is 'How far each source was read: committed with the rows of the page.';

create table if not exists alerts.orders (
  tenant_id   uuid not null references alerts.tenants (id) on delete cascade,
  order_id    text not null,
  source_id   uuid references alerts.sync_sources (id) on delete set null,
  customer_id text not null,
  email       text,
  name        text,
  ordered_at  timestamptz not null,
  updated_at  timestamptz not null,
  amount      numeric not null,
  currency    text not null default 'USD',
  status      text not null default 'paid',
  -- What else the source says.
  extra       jsonb not null default '{}',
  primary key (tenant_id, order_id)
);
create index if not exists orders_customer_idx on alerts.orders (tenant_id, customer_id, ordered_at);
comment on table alerts.orders is 'Orders as the shop system tells them; from these the customer profiles are built.';

create table if not exists alerts.customer_profiles (
  tenant_id      uuid not null references alerts.tenants (id) on delete cascade,
  customer_id    text not null,
  email          text,
  name           text,
  orders         integer not null default 0,
  revenue        numeric not null default 0,
  first_order_at timestamptz,
  last_order_at  timestamptz,
  segment        text not null default 'new',
  -- The tenant's day for which it was built.
  built_on       date not null,
  attributes     jsonb not null default '{}',
  primary key (tenant_id, customer_id)
);
create index if not exists customer_profiles_segment_idx on alerts.customer_profiles (tenant_id, segment);
comment on table alerts.customer_profiles is 'The customer data platform: one profile per customer, rebuilt every day.';
