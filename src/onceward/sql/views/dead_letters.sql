-- Jobs that gave up and wait for a person.
create or replace view onceward.dead_letters with (security_invoker = true) as
select j.id, j.tenant, j.lane, j.task, j.priority, j.attempt, j.max_attempts, j.created_at, j.dead_at, j.payload, j.key,
       j.last_error ->> 'type' as error_type, j.last_error ->> 'category' as category,
       j.last_error ->> 'message' as message, j.last_error ->> 'fingerprint' as fingerprint
  from onceward.job_private as j
 where j.state = 'dead_letter' and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.dead_letters is 'Jobs that gave up: requeue or resolve them.';
