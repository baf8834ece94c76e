-- Workers and whether their lease holds.
create or replace view onceward.workers with (security_invoker = true) as
select w.id, w.name, w.host, w.pid, w.lanes, w.tasks, w.version, w.concurrency, w.lease, w.started_at,
       w.heartbeat_at, w.expires_at, w.retired_at, w.retired_why,
       case when w.retired_at is not null then 'retired'
            when w.expires_at <= onceward.now() then 'expired'
            else 'live' end as state,
       (select count(*) from onceward.job_private as j where j.state = 'running' and j.worker_id = w.id
           and (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))) as running
  from onceward.worker_private as w;
comment on view onceward.workers is 'Worker processes: what they serve, their lease, and how many jobs they run.';
