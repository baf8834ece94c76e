-- The engine's tables: live jobs, their archive and attempts, lanes, workers, keys.
-- Locks: none that matter, everything is new.  Duration: milliseconds.
-- Tables are private (their names say so).  Programs use the functions and the views.

create sequence onceward.ready_seq as bigint;
comment on sequence onceward.ready_seq is
  'Order in which jobs became ready; retries and scheduled jobs get their number when they are promoted.';

create table onceward.lane_private (
  name              text primary key,
  paused_at         timestamptz,
  paused_by         text,
  pause_reason      text,
  max_payload_bytes integer not null default 262144,
  max_result_bytes  integer not null default 262144,
  created_at        timestamptz not null,
  constraint lane_name_form check (name ~ '^[A-Za-z0-9_.:-]{1,100}$'),
  constraint lane_caps_positive check (max_payload_bytes > 0 and max_result_bytes > 0)
);

-- Tasks that some worker has announced, and the check that must pass before a dead letter of it is resolved.
create table onceward.task_private (
  name          text primary key,
  -- By name, not as regprocedure: pg_upgrade refuses a database with such a column.
  resolve_check text,
  first_seen_at timestamptz not null,
  last_seen_at  timestamptz not null
);

create table onceward.worker_private (
  id            uuid primary key,
  name          text not null,
  host          text not null,
  pid           bigint,
  lanes         text[] not null,
  tasks         text[] not null,
  version       text,
  concurrency   integer not null,
  lease         interval not null,
  started_at    timestamptz not null,
  heartbeat_at  timestamptz not null,
  expires_at    timestamptz not null,
  -- Until then the worker may be asleep, and an enqueue for its lanes sends a NOTIFY.
  asleep_until  timestamptz,
  retired_at    timestamptz,
  retired_why   text,
  constraint worker_lease_range check (lease between interval '1 second' and interval '1 day')
) with (fillfactor = 50);

create table onceward.job_private (
  id                uuid primary key,
  tenant            text not null,
  lane              text not null,
  task              text not null,
  state             text not null,
  priority          smallint not null,
  ready_seq         bigint,
  epoch             bigint not null default 0,
  attempt           integer not null default 0,
  max_attempts      integer not null,
  snoozes           integer not null default 0,
  created_at        timestamptz not null,
  run_at            timestamptz not null,
  started_at        timestamptz,
  worker_id         uuid,
  payload           jsonb not null,
  expires_at        timestamptz,
  timeout           interval,
  retry             jsonb,
  headers           jsonb,
  key               text,
  key_is_live       boolean,
  concurrency_key   text,
  concurrency_limit integer,
  -- Blocked, and nobody has looked yet whether the key has room.
  admit_pending     boolean,
  progress          jsonb,
  cancel_at         timestamptz,
  cancel_reason     text,
  dead_at           timestamptz,
  last_error        jsonb,
  -- Only the invariants that fencing rests on: PostgreSQL reads each constraint from its catalogue at every
  -- statement, and an enqueue is one small statement.  The tests hold the others.
  constraint job_state_known check (state in ('scheduled', 'ready', 'running', 'blocked', 'dead_letter')),
  constraint job_running_has_lease check ((state = 'running') = (worker_id is not null))
) with (
  -- Claims and finishes churn this table; vacuum must not wait for a fifth of it to be dead.
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.1
);

create index job_ready_idx on onceward.job_private (lane, priority desc, ready_seq) where state = 'ready';
create index job_scheduled_idx on onceward.job_private (run_at) where state = 'scheduled';
create index job_running_idx on onceward.job_private (worker_id) where state = 'running';
create index job_cancel_idx on onceward.job_private (worker_id) where state = 'running' and cancel_at is not null;
create index job_dead_idx on onceward.job_private (dead_at) where state = 'dead_letter';
create index job_expires_idx on onceward.job_private (expires_at)
  where expires_at is not null and state in ('scheduled', 'ready', 'blocked');
create index job_waiting_key_idx on onceward.job_private (tenant, concurrency_key, priority desc, id)
  where state = 'blocked' and concurrency_key is not null;
create index job_pending_idx on onceward.job_private (id) where state = 'blocked' and admit_pending;
create index job_holding_key_idx on onceward.job_private (tenant, concurrency_key)
  where state in ('ready', 'running') and concurrency_key is not null;

-- A finished job.  Its last attempt is part of the row: most jobs have one attempt, and it succeeds.
create table onceward.archive_private (
  id                uuid not null,
  tenant            text not null,
  lane              text not null,
  task              text not null,
  state             text not null,
  priority          smallint not null,
  epoch             bigint not null,
  attempt           integer not null,
  max_attempts      integer not null,
  snoozes           integer not null,
  created_at        timestamptz not null,
  run_at            timestamptz not null,
  started_at        timestamptz,
  finished_at       timestamptz not null,
  worker_id         uuid,
  payload           jsonb not null,
  result            jsonb,
  expires_at        timestamptz,
  timeout           interval,
  retry             jsonb,
  headers           jsonb,
  key               text,
  concurrency_key   text,
  concurrency_limit integer,
  progress          jsonb,
  finish_note       text,
  last_error        jsonb,
  primary key (id),
  constraint archive_state_known check (state in ('done', 'cancelled', 'resolved'))
) partition by range (id);
create table onceward.archive_default partition of onceward.archive_private default;

-- Attempts that did not end in `done`.
create table onceward.attempt_private (
  job_id      uuid not null,
  epoch       bigint not null,
  tenant      text not null,
  task        text not null,
  attempt     integer not null,
  worker_id   uuid,
  started_at  timestamptz not null,
  ended_at    timestamptz not null,
  outcome     text not null,
  error_type  text,
  category    text,
  message     text,
  fingerprint text,
  traceback   text,
  retry_at    timestamptz,
  primary key (job_id, epoch),
  constraint attempt_outcome_known
    check (outcome in ('failed', 'dead_letter', 'snoozed', 'cancelled', 'rescued', 'released'))
) partition by range (job_id);
create table onceward.attempt_default partition of onceward.attempt_private default;

-- Idempotency keys.  A row outlives its job when its window does.
create table onceward.key_private (
  tenant       text not null,
  task         text not null,
  key          text not null,
  job_id       uuid not null,
  payload_hash bytea not null,
  expires_at   timestamptz,
  primary key (tenant, task, key)
);
create index key_expires_idx on onceward.key_private (expires_at) where expires_at is not null;

-- One row per concurrency key in use: the lock under which jobs are admitted.  Never locked by an enqueue.
create table onceward.concurrency_private (
  tenant          text not null,
  concurrency_key text not null,
  primary key (tenant, concurrency_key)
);

-- Keys whose waiting jobs have to be looked at again.  Only inserted into, so that nobody ever waits to ask.
create table onceward.admission_private (
  id              bigint generated always as identity primary key,
  tenant          text not null,
  concurrency_key text not null
);

-- Payloads as they were before an operator edited them.
create table onceward.payload_edit_private (
  job_id         uuid not null,
  edited_at      timestamptz not null,
  tenant         text not null,
  edited_by      text not null,
  payload_before jsonb not null,
  primary key (job_id, edited_at)
);

insert into onceward.lane_private (name, created_at) values ('default', statement_timestamp());
