-- Who looks after dead letters and what they say; levels of limits over time; which job asked for a delivery or an event.
-- Locks: delivery_private and event_private for a moment, to add columns without defaults; share on both while their new
-- indexes are made, which hold nothing yet.  Duration: one read of each; seconds with ten million deliveries.

-- One row per kind of failure that somebody looks after.  Without a tenant: by who sees all of them.
create table onceward.assignment_private (
  id          uuid primary key,
  tenant      text,
  task        text not null,
  -- Empty: of failures without one.
  fingerprint text not null,
  assigned_to text not null,
  assigned_by text not null,
  assigned_at timestamptz not null
);
create unique index assignment_of_idx on onceward.assignment_private (task, fingerprint, coalesce(tenant, ''));
create index assignment_old_idx on onceward.assignment_private (assigned_at);

-- What people say about a kind of failure, in the order of the ids.
create table onceward.comment_private (
  id          uuid primary key,
  tenant      text,
  task        text not null,
  fingerprint text not null,
  -- The dead letter that was looked at, where it was one and not the whole kind.
  job_id      uuid,
  author      text not null,
  said_at     timestamptz not null,
  body        text not null,
  constraint comment_says_something check (length(trim(body)) > 0)
);
create index comment_of_idx on onceward.comment_private (task, fingerprint, id);
create index comment_old_idx on onceward.comment_private (said_at);

-- What was left of each limit, minute by minute; of a limit per key, of the emptiest key.
create table onceward.limit_level_private (
  limit_name text not null,
  at         timestamptz not null,
  level      real not null,
  waiting    bigint not null,
  paused     boolean not null,
  primary key (limit_name, at)
);
create index limit_level_at_idx on onceward.limit_level_private (at);

-- The job whose handler asked for it.
alter table onceward.delivery_private add column made_by uuid;
create index delivery_made_by_idx on onceward.delivery_private (made_by) where made_by is not null;
alter table onceward.event_private add column made_by uuid;
create index event_made_by_idx on onceward.event_private (made_by) where made_by is not null;
