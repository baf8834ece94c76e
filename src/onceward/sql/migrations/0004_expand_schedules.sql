-- Schedules and their ticks.
-- Locks: none that matter, everything is new.  Duration: milliseconds.

create table onceward.schedule_private (
  id             uuid primary key,
  tenant         text not null,
  name           text not null,
  -- What is enqueued.
  task           text not null,
  payload        jsonb not null,
  lane           text not null,
  priority       integer not null,
  max_attempts   integer not null,
  retry          jsonb,
  timeout        interval,
  expires_in     interval,
  -- When: as it was written, and as it is computed with.
  spec           text not null,
  zone           text not null,
  plan           jsonb not null,
  next_slot      text not null,
  next_at        timestamptz not null,
  -- What happens when the moment is over, or the job before is not.
  missed         text not null,
  catch_up       integer not null,
  grace          interval not null,
  overlap        text not null,
  jitter         interval not null,
  paused_at      timestamptz,
  paused_by      text,
  pause_reason   text,
  -- Whose it is: code declares it at each start of a worker; what a person has set, code leaves alone.
  source         text not null,
  app            text,
  undeclared_at  timestamptz,
  version        bigint not null default 1,
  created_at     timestamptz not null,
  changed_at     timestamptz not null,
  changed_by     text not null,
  last_slot      text,
  last_fire_at   timestamptz,
  last_ticked_at timestamptz,
  last_outcome   text,
  last_job_id    uuid,
  constraint schedule_name_is_unique unique (tenant, name),
  constraint schedule_missed_known check (missed in ('none', 'latest', 'all')),
  constraint schedule_overlap_known check (overlap in ('skip', 'queue', 'allow')),
  constraint schedule_source_known check (source in ('code', 'person'))
) with (fillfactor = 50);
create index schedule_next_idx on onceward.schedule_private (next_at) where paused_at is null;

-- One row per moment that was dealt with.  The primary key is the promise: a slot of a schedule fires once.
create table onceward.tick_private (
  schedule_id uuid not null,
  slot        text not null,
  tenant      text not null,
  schedule    text not null,
  fire_at     timestamptz not null,
  outcome     text not null,
  -- More than one when the row stands for a run of missed or skipped slots that begins here.
  slots       bigint not null default 1,
  job_id      uuid,
  reason      text,
  ticked_at   timestamptz not null,
  primary key (schedule_id, slot),
  constraint tick_outcome_known check (outcome in ('fired', 'missed', 'skipped', 'failed')),
  constraint tick_fired_has_job check ((outcome = 'fired') = (job_id is not null))
);
create index tick_recent_idx on onceward.tick_private (schedule_id, ticked_at desc);
create index tick_old_idx on onceward.tick_private (ticked_at);
