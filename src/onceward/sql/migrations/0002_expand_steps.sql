-- Steps, events and workflows.
-- Locks: access exclusive on job_private, archive_private and attempt_private; new columns are null, nothing is rewritten.
-- Duration: one read of the attempts (a constraint) and of the archive (an index), and the index of live jobs with a
-- concurrency key; seconds with ten million archived jobs.

-- `awaits` says what a job waits for beside its time and its key: 'jobs' (those in `after`; the job is blocked), 'join'
-- (others, in the middle of its work; blocked too), or 'event:<name>' (it is scheduled at the moment when it gives up).
alter table onceward.job_private
  add column workflow_id  uuid,
  add column parent_id    uuid,
  add column node         text,
  add column after        uuid[],
  add column after_policy text,
  add column awaits       text;
alter table onceward.archive_private
  add column workflow_id  uuid,
  add column parent_id    uuid,
  add column node         text,
  add column after        uuid[],
  add column after_policy text;

create index job_awaits_idx on onceward.job_private (tenant, awaits) where awaits is not null;
create index job_workflow_idx on onceward.job_private (workflow_id) where workflow_id is not null;
create index archive_workflow_idx on onceward.archive_private (workflow_id) where workflow_id is not null;
-- One index for those who hold a place of a key and those who wait for one, instead of two: every index is part of the price
-- of an enqueue.  A job that waits for others does not stand in line for its key yet.
drop index onceward.job_waiting_key_idx, onceward.job_holding_key_idx;
create index job_key_idx on onceward.job_private (tenant, concurrency_key, state, priority desc, id)
  where concurrency_key is not null and awaits is null;

-- A key that has to be looked at is a row of its own: a flag would be one more update, and one more index, per job.
insert into onceward.admission_private (tenant, concurrency_key)
select distinct j.tenant, j.concurrency_key from onceward.job_private as j where j.state = 'blocked' and j.admit_pending;
drop index onceward.job_pending_idx;
-- PostgreSQL reads each constraint from its catalogue at every statement, which is a tenth of an enqueue.  The invariant that
-- fencing rests on stays (job_running_has_lease); only functions write here, and the tests hold the others.
alter table onceward.job_private
  drop column admit_pending,
  drop constraint job_state_known;
-- It returns a column more; functions are made again after the migrations.
drop function if exists onceward.promote(integer);

alter table onceward.attempt_private
  drop constraint attempt_outcome_known,
  add constraint attempt_outcome_known
    check (outcome in ('failed', 'dead_letter', 'snoozed', 'suspended', 'cancelled', 'rescued', 'released'));

-- Checkpoints of jobs.  What is done is not run again.
create table onceward.step_private (
  job_id      uuid not null,
  name        text not null,
  tenant      text not null,
  task        text not null,
  kind        text not null,
  state       text not null,
  seq         bigint not null,
  epoch       bigint not null,
  attempt     integer not null,
  tries       integer not null,
  started_at  timestamptz not null,
  finished_at timestamptz,
  -- When a sleep is over, or the wait for an event is given up.
  until       timestamptz,
  result      jsonb,
  error       jsonb,
  version     text,
  primary key (job_id, name),
  constraint step_kind_known check (kind in ('step', 'transaction', 'sleep', 'event', 'spawn', 'join')),
  constraint step_state_known check (state in ('done', 'failed', 'waiting'))
) partition by range (job_id);
create table onceward.step_default partition of onceward.step_private default;

-- Events that jobs wait for.  The first one of a name stays.
create table onceward.event_private (
  tenant     text not null,
  name       text not null,
  payload    jsonb,
  emitted_at timestamptz not null,
  expires_at timestamptz not null,
  primary key (tenant, name)
);
create index event_expires_idx on onceward.event_private (expires_at);

-- What a blocked job waits for.  Rows live as long as it waits.
create table onceward.dependency_private (
  job_id   uuid not null,
  after_id uuid not null,
  -- null: the other job has not ended.
  outcome  text,
  -- The other job was seen alive after this row was committed, so its end will find the row.
  verified boolean not null default false,
  primary key (job_id, after_id),
  constraint dependency_outcome_known check (outcome in ('done', 'failed'))
);
-- Not a partial one: with the statistics of an empty table, it would be read as a whole where job_id is looked for.
create index dependency_after_idx on onceward.dependency_private (after_id);
-- Is anything open, has anything failed?  Without reading what is done, of which a fan-in has thousands.
create index dependency_outcome_idx on onceward.dependency_private (job_id, outcome);

-- What the next promote has to look at: a job that waits (job), one that has ended and that others wait for (ended; again,
-- when not all of them could be told), an event that came (event).
-- Only inserted into and deleted from, so that nobody ever waits to ask.
create table onceward.recheck_private (
  id     bigint generated always as identity primary key,
  kind   text not null,
  job_id uuid,
  tenant text,
  event  text,
  constraint recheck_kind_known check (kind in ('job', 'ended', 'again', 'event'))
);
