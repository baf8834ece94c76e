-- Who belongs to which workflow: those that say so, and the job whose id the workflow bears.
create or replace view onceward.workflow_members with (security_invoker = true) as
select j.workflow_id, j.tenant, j.id as job_id, j.state, j.created_at, null::timestamptz as finished_at
  from onceward.job_private as j where j.workflow_id is not null and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select a.workflow_id, a.tenant, a.id, a.state, a.created_at, a.finished_at
  from onceward.archive_private as a where a.workflow_id is not null and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select j.id, j.tenant, j.id, j.state, j.created_at, null
  from onceward.job_private as j
 where j.workflow_id is null and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
   and (exists (select from onceward.job_private as m where m.workflow_id = j.id and m.tenant = j.tenant)
        or exists (select from onceward.archive_private as m where m.workflow_id = j.id and m.tenant = j.tenant))
union all
select a.id, a.tenant, a.id, a.state, a.created_at, a.finished_at
  from onceward.archive_private as a
 where a.workflow_id is null and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
   and (exists (select from onceward.job_private as m where m.workflow_id = a.id and m.tenant = a.tenant)
        or exists (select from onceward.archive_private as m where m.workflow_id = a.id and m.tenant = a.tenant));
comment on view onceward.workflow_members is 'The jobs of each workflow, live and archived.  By workflow_id it is read through an index.';

-- Workflows: jobs that belong together.
create or replace view onceward.workflows with (security_invoker = true) as
select m.workflow_id as id, m.tenant,
       case when bool_or(m.state = 'dead_letter') then 'dead_letter'
            when bool_or(m.state in ('scheduled', 'ready', 'running', 'blocked')) then 'running'
            when bool_or(m.state = 'cancelled') then 'cancelled'
            else 'done' end as state,
       count(*) as jobs,
       count(*) filter (where m.state = 'done') as done,
       count(*) filter (where m.state in ('scheduled', 'ready', 'running', 'blocked')) as live,
       count(*) filter (where m.state = 'dead_letter') as dead_letters,
       count(*) filter (where m.state in ('cancelled', 'resolved')) as stopped,
       min(m.created_at) as created_at,
       case when bool_and(m.finished_at is not null) then max(m.finished_at) end as finished_at
  from onceward.workflow_members as m
 group by m.workflow_id, m.tenant;
comment on view onceward.workflows is 'Workflows, with how many jobs are in which state.';

-- The graph of workflows: who waits, or waited, for whom, and who was spawned by whom.
create or replace view onceward.dependencies with (security_invoker = true) as
select j.workflow_id, j.tenant, j.id as job_id, j.node, j.task, j.state, 'after' as relation, u.after_id, j.after_policy,
       j.awaits is not distinct from 'jobs' as waits
  from onceward.job_private as j cross join lateral unnest(j.after) as u (after_id)
 where (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select a.workflow_id, a.tenant, a.id, a.node, a.task, a.state, 'after', u.after_id, a.after_policy, false
  from onceward.archive_private as a cross join lateral unnest(a.after) as u (after_id)
 where (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select j.workflow_id, j.tenant, j.id, j.node, j.task, j.state, 'spawned', j.parent_id, null, false
  from onceward.job_private as j where j.parent_id is not null and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
union all
select a.workflow_id, a.tenant, a.id, a.node, a.task, a.state, 'spawned', a.parent_id, null, false
  from onceward.archive_private as a where a.parent_id is not null and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.dependencies is
  'The graph of workflows: one row per pair of a job and one that it waits, or waited, for (relation after), or that spawned it (spawned).';
