-- Keys are found faster: text is compared by the rules of a language, column after column, at every step through an index.
-- Locks: access exclusive on job_private, key_private and concurrency_private.  Duration: indexes of keys are made again: some
-- seconds per million live jobs with concurrency keys, and per million idempotency keys.

-- Who holds a place of a concurrency key and who waits for one, by a number instead of two texts.  A job that waits for others
-- does not stand in line for its key yet.  A column and no expression in the index: under row-level security, the planner
-- trusts the order of an index only as far as its columns are compared by operators that cannot leak.  Whoever inserts a job
-- with a key computes it: a generated column is read from the catalogue again by every statement, and on PostgreSQL 18 for
-- every row that an update leaves as it is, which was an eighth of what a worker's calls cost the server.
drop index onceward.job_key_idx;
alter table onceward.job_private add column concurrency_hash bigint;
update onceward.job_private
   set concurrency_hash = hashtextextended(tenant || E'\x1f' || concurrency_key, 0)
 where concurrency_key is not null;
create index job_key_idx on onceward.job_private (concurrency_hash, state, priority desc, id)
  where concurrency_hash is not null and awaits is null;

-- An idempotency key is most likely the first thing in which two differ.
alter table onceward.key_private
  drop constraint key_private_pkey,
  alter column tenant type text collate "C",
  alter column task type text collate "C",
  alter column key type text collate "C",
  add constraint key_private_pkey primary key (key, task, tenant);
alter table onceward.concurrency_private
  drop constraint concurrency_private_pkey,
  alter column tenant type text collate "C",
  alter column concurrency_key type text collate "C",
  add constraint concurrency_private_pkey primary key (concurrency_key, tenant);
