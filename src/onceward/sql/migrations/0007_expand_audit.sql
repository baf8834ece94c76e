-- The audit log: who did what, in an order that cannot be changed unnoticed, and the seals over it.
-- Locks: lane_private for a moment, to add a column with a constant default.  Duration: milliseconds.

alter table onceward.lane_private
  add column audit text not null default 'ends',
  add constraint lane_audit_known check (audit in ('ends', 'all'));

create sequence onceward.audit_seq as bigint;
comment on sequence onceward.audit_seq is 'Names entries of the audit log.  Numbers of transactions that rolled back are missing.';

-- One row per thing that happened; per batch, where many jobs went the same way in one statement.
create table onceward.audit_private (
  seq         bigint not null default nextval('onceward.audit_seq'),
  -- The writer's transaction: what is below every open one can be sealed, because nothing can appear there any more.
  xact        xid8 not null default pg_current_xact_id(),
  at          timestamptz not null,
  kind        text not null,
  source      text not null,
  actor       text not null,
  role        text not null,
  tenant      text,
  job_id      uuid,
  jobs        uuid[],
  entity_type text,
  entity_id   text,
  before      jsonb,
  after       jsonb,
  message     text,
  meta        jsonb,
  primary key (seq, at),
  constraint audit_source_known check (source in ('engine', 'application'))
) partition by range (at);
create index audit_order_idx on onceward.audit_private (xact, seq);
create index audit_at_idx on onceward.audit_private (at);
create index audit_job_idx on onceward.audit_private (job_id) where job_id is not null;
create index audit_entity_idx on onceward.audit_private (entity_type, entity_id) where entity_type is not null;
-- What the log says about itself.
create index audit_own_idx on onceward.audit_private (kind, seq) where kind in ('audit.checkpoint', 'audit.dropped');
create table onceward.audit_default partition of onceward.audit_private default;

-- One row per sealed batch: the entries of one day between two places of the order.  Kept when the entries are dropped.
create table onceward.seal_private (
  number     bigint primary key,
  day        date,
  -- Entries above this seq only.  It rises when the database was restored into another cluster, where transactions are
  -- numbered from the beginning.
  above_seq  bigint not null,
  after_xact xid8 not null,
  after_seq  bigint not null,
  upto_xact  xid8 not null,
  upto_seq   bigint not null,
  top_seq    bigint not null,
  entries    bigint not null,
  total      bigint not null,
  root       bytea not null,
  previous   bytea not null,
  head       bytea not null,
  -- The Merkle tree over all heads so far, as the roots of its complete subtrees, largest first.
  peaks      bytea[] not null,
  at         timestamptz not null,
  constraint seal_hashes_whole check (length(root) = 32 and length(previous) = 32 and length(head) = 32)
);

-- The leaves of each seal: what tells which entry of a batch was changed.
create table onceward.seal_leaf_private (
  number bigint not null,
  day    date not null,
  seqs   bigint[] not null,
  leaves bytea not null,
  primary key (number, day)
) partition by range (day);
create table onceward.seal_leaf_default partition of onceward.seal_leaf_private default;

-- The beginning of the chain is random: no two logs have a head in common.
insert into onceward.seal_private
  (number, above_seq, after_xact, after_seq, upto_xact, upto_seq, top_seq, entries, total, root, previous, head, peaks, at)
values
  (0, 0, '0', 0, '0', 0, 0, 0, 0, sha256(''), sha256(''), sha256(uuid_send(gen_random_uuid())), '{}', statement_timestamp());

-- It answers otherwise now, and a function is replaced only by one that answers alike.
drop function if exists onceward.unarchive(uuid);
