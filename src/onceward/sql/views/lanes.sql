-- Lanes with what waits in them.
create or replace view onceward.lanes with (security_invoker = true) as
select l.name, l.paused_at is not null as paused, l.paused_at, l.paused_by, l.pause_reason,
       coalesce(c.ready, 0) as ready, coalesce(c.running, 0) as running, coalesce(c.scheduled, 0) as scheduled,
       coalesce(c.blocked, 0) as blocked, coalesce(c.dead_letter, 0) as dead_letter, c.oldest_ready_at,
       l.max_payload_bytes, l.max_result_bytes, l.created_at, l.fair, l.max_wait, l.audit,
       l.max_running
  from onceward.lane_private as l
  left join (
    select j.lane,
           count(*) filter (where j.state = 'ready') as ready,
           count(*) filter (where j.state = 'running') as running,
           count(*) filter (where j.state = 'scheduled') as scheduled,
           count(*) filter (where j.state = 'blocked') as blocked,
           count(*) filter (where j.state = 'dead_letter') as dead_letter,
           min(j.run_at) filter (where j.state = 'ready') as oldest_ready_at
      from onceward.job_private as j
     where (j.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()))
     group by j.lane) as c on c.lane = l.name;
comment on view onceward.lanes is 'Lanes with their pause switch, caps, and how many jobs are in each state.';
