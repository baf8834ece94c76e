-- Monitors, alerts, channels, retention.
-- Locks: share on attempt_private, tick_private, delivery_private and payload_edit_private while their new indexes are made;
-- everything else is new.  Duration: one read of those tables; seconds with ten million attempts.

-- A check on a schedule.
create table onceward.monitor_private (
  name           text primary key,
  kind           text not null,
  -- By name, not as regprocedure: pg_upgrade refuses a database with such a column.
  function       text,
  source         text not null,
  app            text,
  description    text not null,
  enabled        boolean not null default true,
  every          interval not null,
  -- Of findings that name none.
  severity       text not null,
  -- How long a condition has to last before it is an alert, and to be over before the alert is closed.
  hold_for       interval not null,
  clear_after    interval not null,
  -- null: never.
  remind_every   interval,
  timeout        interval not null,
  -- So many errors of the check in a row are only logged.
  errors_allowed integer not null,
  -- null: every channel that its severity reaches.
  channels       text[],
  next_at        timestamptz not null,
  last_run_at    timestamptz,
  last_status    text,
  last_error     text,
  errors         integer not null default 0,
  created_at     timestamptz not null,
  -- Who has set it otherwise than declared; code and upgrades leave that alone.
  set_at         timestamptz,
  set_by         text,
  constraint monitor_kind_known check (kind in ('sql', 'python')),
  constraint monitor_sql_has_function check ((kind = 'sql') = (function is not null)),
  constraint monitor_source_known check (source in ('built in', 'code', 'person')),
  constraint monitor_severity_known check (severity in ('info', 'warning', 'critical')),
  constraint monitor_status_known check (last_status in ('ok', 'firing', 'error'))
) with (fillfactor = 50);
create index monitor_next_idx on onceward.monitor_private (next_at) where enabled;

-- The bounds of a monitor.  A value that is null switches its part of the check off.
create table onceward.threshold_private (
  monitor       text not null,
  name          text not null,
  unit          text not null,
  value         numeric,
  default_value numeric,
  description   text not null,
  primary key (monitor, name),
  constraint threshold_unit_known check (unit in ('seconds', 'count', 'share', 'bytes'))
);

-- Every run of every monitor.  The row is committed before the check begins, so that nothing which happens to the check can
-- undo its trace.
create table onceward.monitor_run_private (
  id         uuid primary key,
  monitor    text not null,
  started_at timestamptz not null,
  -- Whoever has not ended it by then is taken for dead.
  deadline   timestamptz not null,
  ended_at   timestamptz,
  status     text not null,
  took       interval,
  findings   integer not null default 0,
  -- What was found, and what was only measured.
  result     jsonb,
  error      text,
  constraint monitor_run_status_known check (status in ('running', 'ok', 'firing', 'error')),
  constraint monitor_run_ended_has_time check ((status = 'running') = (ended_at is null))
);
-- One run of a monitor at a time.
create unique index monitor_run_open_idx on onceward.monitor_run_private (monitor) where ended_at is null;
create index monitor_run_recent_idx on onceward.monitor_run_private (monitor, started_at desc);
create index monitor_run_old_idx on onceward.monitor_run_private (started_at);

-- One row per condition and episode.
create table onceward.alert_private (
  id             uuid primary key,
  monitor        text not null,
  -- null: of the whole installation, and not of one tenant.
  tenant         text,
  key            text not null,
  state          text not null,
  severity       text not null,
  worst          text not null,
  value          numeric,
  summary        text not null,
  detail         jsonb,
  -- How many runs have seen it.
  seen           bigint not null default 1,
  first_seen_at  timestamptz not null,
  last_seen_at   timestamptz not null,
  opened_at      timestamptz,
  -- Since then the check passes; it is closed when that has lasted.
  clear_since    timestamptz,
  -- The severity that was told last.
  told           text,
  reminders      integer not null default 0,
  remind_at      timestamptz,
  acked_at       timestamptz,
  acked_by       text,
  ack_note       text,
  closed_at      timestamptz,
  closed_by      text,
  close_note     text,
  constraint alert_state_known check (state in ('pending', 'open', 'closed')),
  constraint alert_severity_known check (severity in ('info', 'warning', 'critical')),
  constraint alert_closed_has_time check ((state = 'closed') = (closed_at is not null)),
  constraint alert_open_has_time check (state = 'pending' or opened_at is not null)
);
-- The promise: a condition has one alert at a time.
create unique index alert_open_idx on onceward.alert_private (monitor, coalesce(tenant, ''), key) where closed_at is null;
create index alert_closed_idx on onceward.alert_private (closed_at) where closed_at is not null;

-- What is not told for a while.  A null matches everything.
create table onceward.silence_private (
  id         uuid primary key,
  alert_id   uuid,
  monitor    text,
  tenant     text,
  key        text,
  until      timestamptz not null,
  reason     text not null,
  created_at timestamptz not null,
  created_by text not null
);
create index silence_until_idx on onceward.silence_private (until);

-- Whom alerts are told.  The address lies apart, because whoever lists channels must not read it.
create table onceward.channel_private (
  name       text primary key,
  kind       text not null,
  -- null: told of every tenant, and of the installation.
  tenant     text,
  severity   text not null,
  created_at timestamptz not null,
  created_by text not null,
  constraint channel_kind_known check (kind in ('email', 'slack', 'telegram', 'webhook')),
  constraint channel_severity_known check (severity in ('info', 'warning', 'critical'))
);
create table onceward.channel_target_private (
  name   text primary key,
  target jsonb not null
);

-- How long each kind of data is kept.
create table onceward.retention_private (
  kind         text primary key,
  description  text not null,
  -- null: for ever.
  keep         interval,
  default_keep interval,
  least_keep   interval not null,
  next_at      timestamptz not null,
  last_run_at  timestamptz,
  last_removed bigint,
  last_note    text,
  -- Partitions in which only rows that stay are left: {name: {"holds": digest, "at": time}}.
  kept         jsonb not null default '{}',
  set_at       timestamptz,
  set_by       text,
  constraint retention_keep_is_enough check (keep >= least_keep)
);

-- What retention has removed.
create table onceward.removal_private (
  id         uuid primary key,
  kind       text not null,
  removed_at timestamptz not null,
  row_count  bigint not null,
  partitions text[] not null,
  -- Everything removed was older than this.
  before     timestamptz not null
);
create index removal_old_idx on onceward.removal_private (removed_at);

-- Legal holds: while one lasts, retention removes nothing of the tenant.
create table onceward.legal_hold_private (
  tenant         text not null,
  held_at        timestamptz not null,
  held_by        text not null,
  reason         text not null,
  released_at    timestamptz,
  released_by    text,
  release_reason text,
  primary key (tenant, held_at)
);
create unique index hold_open_idx on onceward.legal_hold_private (tenant) where released_at is null;

-- What monitors and retention look for, without reading the rest.
create index attempt_rescued_idx on onceward.attempt_private (ended_at) where error_type = 'LeaseExpired';
create index tick_trouble_idx on onceward.tick_private (ticked_at) where outcome in ('missed', 'failed');
create index delivery_open_idx on onceward.delivery_private (created_at) where state in ('pending', 'sending');
create index delivery_ended_idx on onceward.delivery_private (ended_at) where ended_at is not null;
create index payload_edit_old_idx on onceward.payload_edit_private (edited_at);
