-- Tasks that some worker has announced.
create or replace view onceward.tasks with (security_invoker = true) as
select t.name, t.resolve_check, t.first_seen_at, t.last_seen_at
  from onceward.task_private as t;
comment on view onceward.tasks is 'Tasks that some worker has announced.';
