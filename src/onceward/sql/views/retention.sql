-- How long each kind of data is kept.
create or replace view onceward.retention with (security_invoker = true) as
select r.kind, r.description, r.keep, r.default_keep, r.least_keep, r.next_at, r.last_run_at, r.last_removed, r.last_note, r.set_at, r.set_by
  from onceward.retention_private as r;
comment on view onceward.retention is 'How long each kind of data is kept (null: for ever), and what the last run removed.';

create or replace view onceward.removals with (security_invoker = true) as
select r.id, r.kind, r.removed_at, r.row_count, r.partitions, r.before
  from onceward.removal_private as r;
comment on view onceward.removals is 'What retention has removed, and when.';

create or replace view onceward.legal_holds with (security_invoker = true) as
select h.tenant, h.released_at is null as active, h.held_at, h.held_by, h.reason, h.released_at, h.released_by, h.release_reason
  from onceward.legal_hold_private as h
 where (h.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.legal_holds is 'Legal holds of tenants, present and past.';
