-- A database that has been in use: archived jobs over two days, live ones in every state, and what lies around them.
-- Written into the engine's tables as their owner, because the way through its functions would take the better part of an
-- hour.  Only the benchmark does this.
-- :archived and :live are replaced by numbers.

select onceward.ensure_partitions();
select onceward.add_lane(name) from unnest(array['mail', 'orders', 'reports', 'sync']) as name;

insert into onceward.worker_private
  (id, name, host, pid, lanes, tasks, version, concurrency, lease, started_at, heartbeat_at, expires_at, retired_at, retired_why)
select gen_random_uuid(), 'worker-' || n, 'host-' || n % 8, 1000 + n, array['default', 'mail', 'orders', 'reports', 'sync'],
       array(select 'task_' || t from generate_series(0, 39) as t), '1', 50, '30 s', onceward.now() - n * interval '10 minutes',
       onceward.now(), onceward.now() + interval '1 day', case when n > 20 then onceward.now() - n * interval '1 minute' end,
       case when n > 20 then 'stopped' end
  from generate_series(1, 100) as n;
insert into onceward.task_private (name, first_seen_at, last_seen_at)
select 'task_' || t, onceward.now(), onceward.now() from generate_series(0, 39) as t;

-- Ids as new_id makes them, at moments of the past: half of the jobs within the last six hours.
create temporary table old_job as
select encode(overlay(uuid_send(onceward.id_at(o.at)) placing substring(uuid_send(gen_random_uuid()) from 7) from 7), 'hex')::uuid as id,
       o.n, o.at
  from (select n, onceward.now() - case when n % 2 = 0 then interval '6 hours' else interval '47 hours' end * random() as at
          from generate_series(1, :archived) as n) as o;
insert into onceward.archive_private
  (id, tenant, lane, task, state, priority, epoch, attempt, max_attempts, snoozes, created_at, run_at, started_at, finished_at,
   worker_id, payload, result, key, last_error, finish_note)
select o.id, case when o.n % 10 = 0 then 'tenant_' || o.n % 70 else 'default' end,
       (array['default', 'mail', 'orders', 'reports', 'sync'])[1 + o.n % 5],
       case when o.n % 20 = 1 then 'onceward.deliver' else 'task_' || o.n % 40 end,
       case when o.n % 200 = 0 then 'cancelled' when o.n % 333 = 0 then 'resolved' else 'done' end,
       0, 1, 1, 8, 0, o.at, o.at, o.at + interval '20 ms', o.at + interval '1 second' * random(),
       (select w.id from onceward.worker_private as w where w.retired_at is null limit 1),
       jsonb_build_object('order', o.n, 'customer', 'customer ' || o.n % 5000, 'note', repeat('x', 80)),
       jsonb_build_object('ok', true), case when o.n % 7 = 0 then 'order:' || o.n end,
       case when o.n % 333 = 0 then '{"type": "Refused", "message": "the bank said no", "fingerprint": "f00d"}'::jsonb end, null
  from old_job as o;
insert into onceward.attempt_private
  (job_id, epoch, tenant, task, attempt, started_at, ended_at, outcome, error_type, category, message, fingerprint, traceback)
select o.id, 0, 'default', 'task_' || o.n % 40, 1, o.at, o.at + interval '1 second', 'failed', 'TimeoutError', 'transient',
       'no answer within 5 s', 'beef', repeat('  File "x.py", line 1' || chr(10), 20)
  from old_job as o where o.n % 20 = 0;
insert into onceward.step_private
  (job_id, name, tenant, task, kind, state, seq, epoch, attempt, tries, started_at, finished_at, result)
select o.id, 'step ' || s, 'default', 'task_' || o.n % 40, 'step', 'done', s, 1, 1, 1, o.at, o.at + s * interval '10 ms', '{"ok": 1}'
  from old_job as o, generate_series(1, 3) as s where o.n % 20 = 2;
insert into onceward.delivery_private
  (id, tenant, kind, key, state, tries, provider, created_at, first_try_at, ended_at, is_alert)
select o.id, case when o.n % 10 = 0 then 'tenant_' || o.n % 70 else 'default' end, 'email', 'receipt:' || o.n,
       case when o.n % 10000 = 1 then 'uncertain' when o.n % 2000 = 1 then 'abandoned' else 'sent' end, 1, 'smtp', o.at, o.at,
       o.at + interval '1 second', false
  from old_job as o where o.n % 20 = 1;
insert into onceward.delivery_content_private (id, tenant, content)
select d.id, d.tenant, '{"to": "a@example.com", "subject": "Receipt", "html": "<b>Thank you</b>"}' from onceward.delivery_private as d;
-- The log holds one entry per batch of ends, as workers write them, and what people did.
insert into onceward.audit_private (at, kind, source, actor, role, tenant, jobs)
select min(o.at), 'job.done', 'engine', 'worker-1', 'onceward_worker', 'default', array_agg(o.id)
  from old_job as o group by o.n / 20;
insert into onceward.audit_private (at, kind, source, actor, role, entity_type, entity_id, message)
select o.at, (array['lane.paused', 'lane.resumed', 'limit.changed', 'alert.acknowledged'])[1 + o.n % 4], 'engine', 'person ' || o.n % 9,
       'onceward_operator', 'lane', 'mail', 'works' from old_job as o where o.n % 100 = 0;

insert into onceward.job_private
  (id, tenant, lane, task, state, priority, ready_seq, epoch, attempt, max_attempts, created_at, run_at, started_at, worker_id,
   payload, key, concurrency_key, concurrency_hash, concurrency_limit, dead_at, last_error, line, uses)
select onceward.new_id(), l.tenant, l.lane, 'task_' || l.n % 40, l.state, 0,
       case when l.state = 'ready' then nextval('onceward.ready_seq') end, case when l.state in ('running', 'dead_letter') then 1 else 0 end,
       case when l.state in ('running', 'dead_letter') then 1 else 0 end, 8, onceward.now() - interval '10 minutes',
       onceward.now() + case when l.state = 'scheduled' then l.n * interval '1 second' else -interval '10 minutes' end,
       case when l.state = 'running' then onceward.now() - l.n * interval '1 ms' end,
       case when l.state = 'running' then (select w.id from onceward.worker_private as w where w.retired_at is null limit 1) end,
       jsonb_build_object('order', l.n, 'customer', 'customer ' || l.n % 5000, 'note', repeat('x', 80)),
       case when l.n % 7 = 0 then 'live:' || l.n end,
       case when l.state = 'blocked' then 'customer:' || l.n % 300 end,
       case when l.state = 'blocked' then hashtextextended(l.tenant || E'\x1f' || 'customer:' || l.n % 300, 0) end, case when l.state = 'blocked' then 1 end,
       case when l.state = 'dead_letter' then onceward.now() - random() * interval '2 days' end,
       case when l.state = 'dead_letter' then jsonb_build_object('type', 'Refused', 'category', 'permanent', 'message',
         'the bank said no to ' || l.n, 'fingerprint', md5((l.n / 100 % 60)::text)) end,
       case when l.uses is null and l.tenant <> 'default' then l.tenant else onceward.line_of(true, l.tenant, l.uses) end, l.uses
  from (select n, case when n % 10 = 0 then 'tenant_' || n % 70 else 'default' end as tenant,
               (array['default', 'mail', 'orders', 'reports', 'sync'])[1 + n % 5] as lane,
               case when n % 100 < 60 then 'ready' when n % 100 < 85 then 'scheduled' when n % 100 < 90 then 'blocked'
                    when n % 1000 = 990 then 'running' else 'dead_letter' end as state,
               case when n % 100 < 60 and n % 5 = 0 then '[{"limit": "openai", "weight": 1}]'::jsonb end as uses
          from generate_series(1, :live) as n) as l;

select onceward.add_schedule('schedule-' || n, 'task_' || n % 40, '*/5 * * * *') from generate_series(1, 40) as n;
insert into onceward.tick_private (schedule_id, slot, tenant, schedule, fire_at, outcome, job_id, ticked_at)
select s.id, to_char(t, 'YYYY-MM-DD"T"HH24:MI'), s.tenant, s.name, t, 'fired', gen_random_uuid(), t
  from onceward.schedule_private as s, generate_series(onceward.now() - interval '2 days', onceward.now(), interval '5 minutes') as t;
insert into onceward.monitor_run_private (id, monitor, started_at, deadline, ended_at, status, took)
select gen_random_uuid(), m.name, t, t, t, 'ok', '10 ms' from onceward.monitor_private as m,
       generate_series(onceward.now() - interval '2 days', onceward.now(), interval '5 minutes') as t;
insert into onceward.alert_private
  (id, monitor, tenant, key, state, severity, worst, summary, first_seen_at, last_seen_at, opened_at, closed_at)
select encode(overlay(uuid_send(onceward.id_at(onceward.now() - n * interval '1 minute')) placing substring(uuid_send(gen_random_uuid()) from 7) from 7), 'hex')::uuid,
       'dead_letters', null, 'task ' || n, case when n > 30 then 'closed' else 'open' end, 'warning', 'critical', 'task ' || n || ' has dead letters',
       onceward.now() - n * interval '1 minute', onceward.now(), onceward.now() - n * interval '1 minute',
       case when n > 30 then onceward.now() - n * interval '50 s' end
  from generate_series(1, 3000) as n;
