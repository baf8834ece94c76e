-- Who looks after which dead letters, and what was said about them.
create or replace view onceward.assignments with (security_invoker = true) as
select a.tenant, a.task, nullif(a.fingerprint, '') as fingerprint, a.assigned_to, a.assigned_by, a.assigned_at
  from onceward.assignment_private as a
 where (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.assignments is 'Who looks after the dead letters of a task and fingerprint; without a tenant, for all of them.';

create or replace view onceward.comments with (security_invoker = true) as
select c.id, c.tenant, c.task, nullif(c.fingerprint, '') as fingerprint, c.job_id, c.author, c.said_at, c.body
  from onceward.comment_private as c
 where (c.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.comments is 'What people have said about the dead letters of a task and fingerprint.';
