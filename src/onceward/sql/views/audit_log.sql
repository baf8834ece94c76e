-- The audit log, as written.
create or replace view onceward.audit_log with (security_invoker = true) as
select e.seq, e.at, e.kind, e.source, e.actor, e.role, e.tenant, e.job_id, e.jobs, e.entity_type, e.entity_id, e.before, e.after,
       e.message, e.meta, e.xact
  from onceward.audit_private as e
 where (e.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.audit_log is 'The audit log: one entry per action of a person, end of a job and record of an application; in lanes that ask for it, per transition.';

create or replace view onceward.seals with (security_invoker = true) as
select s.number, s.day, s.above_seq, s.after_xact, s.after_seq, s.upto_xact, s.upto_seq, s.top_seq, s.entries, s.total, s.root,
       s.previous, s.head, s.peaks, s.at, l.seqs, l.leaves
  from onceward.seal_private as s
  left join onceward.seal_leaf_private as l on l.number = s.number and l.day = s.day
 where s.number > 0;
comment on view onceward.seals is 'Seals of the audit log: hashes over runs of entries, each chained to the one before.  Leaves are gone when their day was dropped.';
