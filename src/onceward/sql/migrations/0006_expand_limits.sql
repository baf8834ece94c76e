-- Lines inside lanes, limits, shares of tenants, bounds of lanes.
-- Locks: access exclusive on job_private, archive_private, lane_private, schedule_private and worker_private; new columns
-- have constant defaults, nothing is rewritten.  Duration: the index of ready jobs is made again; about a second per million of them.

-- Which line of its lane a job stands in; see functions/lines.sql.  In the C collation the lines of a tenant are neighbours,
-- and comparing costs next to nothing.
alter table onceward.job_private
  add column line    text collate "C" not null default '',
  -- [{"limit": ..., "key": ..., "weight": ...}, ...], sorted; null: none.
  add column uses    jsonb,
  -- {"epoch": ..., "<limit>": weight, ...}: what was really used, of the attempt with this epoch.
  add column settled jsonb;
alter table onceward.archive_private
  add column uses jsonb;
drop index onceward.job_ready_idx;
create index job_ready_idx on onceward.job_private (lane, line, priority desc, ready_seq) where state = 'ready';

alter table onceward.lane_private
  -- Tenants take turns.
  add column fair     boolean not null default true,
  -- A job that has waited so long is not passed over for higher priorities any more; null: it may be.
  add column max_wait interval default interval '5 minutes',
  -- There are rows in bound_private: an enqueue has to look.
  add column bounded  boolean not null default false;
alter table onceward.schedule_private
  add column uses jsonb;
alter table onceward.worker_private
  -- {"lane": line}: where the turn is, for workers that call claim.
  add column turns jsonb;

-- How many turns a tenant gets in a lane; without a row, one.
create table onceward.share_private (
  lane   text not null,
  tenant text not null,
  share  integer not null,
  primary key (lane, tenant),
  constraint share_range check (share between 1 and 1000)
);

-- Shared capacity.  Bursts and rates are computed when a limit is set: see functions/limits.sql.
create table onceward.limit_private (
  name         text primary key,
  requests     integer,
  period       interval,
  burst        double precision,
  rate         double precision,
  weight       bigint,
  weight_period interval,
  weight_burst double precision,
  weight_rate  double precision,
  slots        integer,
  -- A claimed job starts within this time, or is handed back.
  allowance    interval not null,
  per_key      boolean not null,
  -- When more waits than this share of what one period gives, and what happens to new work then.
  threshold    double precision not null,
  over         text not null,
  -- Whose it is: code declares it at each start of a worker; what a person has set, code leaves alone.
  source       text not null,
  changed_at   timestamptz not null,
  changed_by   text not null,
  constraint limit_has_a_bound check (num_nonnulls(requests, weight, slots) > 0),
  constraint limit_requests_per_time check (num_nulls(requests, period, burst, rate) in (0, 4)),
  constraint limit_weight_per_time check (num_nulls(weight, weight_period, weight_burst, weight_rate) in (0, 4)),
  constraint limit_over_known check (over in ('accept', 'defer')),
  constraint limit_source_known check (source in ('seed', 'code', 'person'))
);

-- What is left of a limit, for each key; made when it is first needed.  The row is the lock under which jobs are claimed.
create table onceward.bucket_private (
  limit_name   text not null,
  -- Empty when the limit is not per key.
  key          text not null,
  level        double precision,
  weight_level double precision,
  refilled_at  timestamptz not null,
  -- Set, and over: one probe is let through, and how it ends decides.
  paused_until timestamptz,
  pause_reason text,
  probe        uuid,
  -- Null: the probe is not a job, but somebody who has acquired directly, until probe_until.
  probe_epoch  bigint,
  probe_until  timestamptz,
  primary key (limit_name, key)
) with (fillfactor = 50);

-- Who holds something of a limit: a running job a place of a limit with slots, or whoever has acquired directly.  The row
-- of a job counts while the job runs in that epoch, another one until it expires; so nothing has to be given back.
create table onceward.hold_private (
  limit_name text not null,
  key        text not null,
  holder     uuid not null,
  epoch      bigint,
  expires_at timestamptz,
  weight     double precision not null default 0,
  primary key (limit_name, key, holder),
  constraint hold_of_a_job_or_with_a_lease check ((epoch is null) = (expires_at is not null))
);
create index hold_holder_idx on onceward.hold_private (holder);
create index hold_expires_idx on onceward.hold_private (expires_at) where expires_at is not null;

-- How much may wait: in a lane (tenant is empty), of one tenant in it, or of each tenant (*).
create table onceward.bound_private (
  lane      text not null,
  tenant    text not null,
  max_depth bigint,
  max_age   interval,
  max_bytes bigint,
  over      text not null,
  defer_by  interval not null,
  primary key (lane, tenant),
  constraint bound_has_a_bound check (num_nonnulls(max_depth, max_age, max_bytes) > 0),
  constraint bound_over_known check (over in ('signal', 'defer', 'reject'))
);

-- What was measured, about once a second, where there are bounds.  kind: lane (name and tenant) or limit (name and key).
create table onceward.pressure_private (
  kind        text not null,
  name        text not null,
  part        text not null,
  depth       bigint not null,
  oldest_at   timestamptz,
  bytes       bigint,
  reason      text,
  measured_at timestamptz not null,
  primary key (kind, name, part),
  constraint pressure_kind_known check (kind in ('lane', 'limit'))
) with (fillfactor = 50);

-- The provider's own figures at the time of writing, as a start; the rate follows from the rest (functions/limits.sql).
insert into onceward.limit_private
  (name, requests, period, burst, rate, allowance, per_key, threshold, over, source, changed_at, changed_by)
select s.name, s.requests, '1 minute', s.requests * 0.02, (s.requests + 1 - s.requests * 0.02) * (1 - 1e-6) / 61.2,
       '1.2 seconds', false, 0.8, 'accept', 'seed', statement_timestamp(), 'onceward'
  from (values ('openai', 500), ('google-vision', 1800), ('anthropic', 400)) as s (name, requests);
insert into onceward.bucket_private (limit_name, key, refilled_at)
select name, '', statement_timestamp() from onceward.limit_private;

-- They return other columns; functions are made again after the migrations.
drop function if exists onceward.claim(uuid, text[], integer);
drop function if exists onceward.adopt(uuid, uuid[]);
drop function if exists onceward.exchange(uuid, uuid[], bigint[], jsonb[], text[], integer[], integer, jsonb, boolean);
drop function if exists onceward.enqueue_many(
  text, jsonb[], text[], text, integer, timestamptz, timestamptz, interval, text, text, integer, integer, jsonb, text, jsonb,
  uuid[], text, uuid, uuid);
