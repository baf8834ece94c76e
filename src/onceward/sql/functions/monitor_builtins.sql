-- The built-in monitors: one row each, and one per threshold.  A new one is added here, with its check beside the others.
create or replace function onceward.builtin_monitors()
  returns table (name text, function text, every interval, hold_for interval, clear_after interval, description text)
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  values
    ('ready_age', 'check_ready_age', interval '30 seconds', interval '0', interval '0',
     'how long the oldest ready job of each lane has waited'),
    ('stuck', 'check_stuck', interval '30 seconds', interval '0', interval '0',
     'jobs that run past their lease or timeout although they should have been rescued'),
    ('rescued', 'check_rescued', interval '1 minute', interval '0', interval '0',
     'attempts that were taken from workers whose lease had run out'),
    ('dead_letters', 'check_dead_letters', interval '30 seconds', interval '0', interval '0',
     'jobs that gave up, one alert per kind of failure'),
    ('partial_completions', 'check_partial_completions', interval '1 minute', interval '0', interval '0',
     'jobs that gave up with some of their steps done'),
    ('failure_rate', 'check_failure_rate', interval '1 minute', interval '0', interval '5 minutes',
     'share of recent jobs of a task that gave up'),
    ('retry_rate', 'check_retry_rate', interval '1 minute', interval '0', interval '5 minutes',
     'share of recent attempts of a task that had to be repeated'),
    ('long_running', 'check_long_running', interval '1 minute', interval '0', interval '0',
     'how long the oldest running job of each task has run'),
    ('missed_ticks', 'check_missed_ticks', interval '1 minute', interval '0', interval '0',
     'slots of schedules that were missed or refused, and schedules that nobody ticks'),
    ('delivery_backlog', 'check_delivery_backlog', interval '1 minute', interval '0', interval '0',
     'deliveries that are due and have not got through'),
    ('delivery_trouble', 'check_delivery_trouble', interval '30 seconds', interval '0', interval '0',
     'deliveries that need a person: uncertain or abandoned'),
    ('limit_starvation', 'check_limit_starvation', interval '30 seconds', interval '0', interval '0',
     'jobs that wait for a limit, and limits that are paused'),
    ('seal_lag', 'check_seal_lag', interval '30 seconds', interval '0', interval '0',
     'entries of the audit log that are not sealed'),
    ('workers', 'check_workers', interval '30 seconds', interval '0', interval '0',
     'lanes with work and no living worker, and workers that were lost'),
    ('pinned_xmin', 'check_pinned_xmin', interval '30 seconds', interval '0', interval '0',
     'who keeps vacuum from removing dead rows'),
    ('bloat', 'check_bloat', interval '1 minute', interval '5 minutes', interval '0',
     'dead rows in the tables of the engine'),
    ('disk', 'check_disk', interval '10 minutes', interval '0', interval '0',
     'size and growth of the database'),
    ('monitors', 'check_monitors_overdue', interval '1 minute', interval '0', interval '0',
     'monitors that nobody runs')
$$;

create or replace function onceward.builtin_thresholds()
  returns table (monitor text, name text, unit text, value numeric, description text)
  language sql immutable
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  values
    ('ready_age', 'warning_age', 'seconds', 300::numeric, 'a ready job has waited so long'),
    ('ready_age', 'critical_age', 'seconds', 1800, 'a ready job has waited so long'),
    ('stuck', 'late', 'seconds', 120, 'so long after its lease or timeout a job counts as stuck'),
    ('stuck', 'warning_count', 'count', 1, 'jobs of a task'),
    ('stuck', 'critical_count', 'count', 50, 'jobs of a task'),
    ('rescued', 'window', 'seconds', 3600, 'how far to look back'),
    ('rescued', 'warning_count', 'count', 10, 'attempts of a task'),
    ('rescued', 'critical_count', 'count', 100, 'attempts of a task'),
    ('dead_letters', 'warning_count', 'count', 1, 'dead letters of one kind'),
    ('dead_letters', 'critical_count', 'count', 100, 'dead letters of one kind'),
    ('partial_completions', 'warning_count', 'count', 1, 'jobs of a task'),
    ('partial_completions', 'critical_count', 'count', 20, 'jobs of a task'),
    ('failure_rate', 'window', 'seconds', 3600, 'jobs created so long ago at most'),
    ('failure_rate', 'least_jobs', 'count', 20, 'with fewer jobs, a share says nothing'),
    ('failure_rate', 'warning_share', 'share', 0.05, 'share of jobs that gave up'),
    ('failure_rate', 'critical_share', 'share', 0.25, 'share of jobs that gave up'),
    ('retry_rate', 'window', 'seconds', 3600, 'jobs created so long ago at most'),
    ('retry_rate', 'least_attempts', 'count', 20, 'with fewer attempts, a share says nothing'),
    ('retry_rate', 'warning_share', 'share', 0.3, 'share of attempts that were repeated'),
    ('retry_rate', 'critical_share', 'share', 0.6, 'share of attempts that were repeated'),
    ('long_running', 'warning_age', 'seconds', 3600, 'an attempt has run so long'),
    ('long_running', 'critical_age', 'seconds', 21600, 'an attempt has run so long'),
    ('missed_ticks', 'window', 'seconds', 3600, 'how far to look back'),
    ('missed_ticks', 'warning_slots', 'count', 1, 'slots of a schedule'),
    ('missed_ticks', 'critical_slots', 'count', 24, 'slots of a schedule'),
    ('missed_ticks', 'late', 'seconds', 300, 'a schedule is overdue by so much'),
    ('delivery_backlog', 'late', 'seconds', 900, 'a delivery that waits longer counts'),
    ('delivery_backlog', 'warning_count', 'count', 20, 'deliveries of one kind'),
    ('delivery_backlog', 'critical_count', 'count', 500, 'deliveries of one kind'),
    ('delivery_trouble', 'warning_uncertain', 'count', 1, 'uncertain deliveries of one kind'),
    ('delivery_trouble', 'critical_uncertain', 'count', 50, 'uncertain deliveries of one kind'),
    ('delivery_trouble', 'warning_abandoned', 'count', 1, 'abandoned deliveries of one kind'),
    ('delivery_trouble', 'critical_abandoned', 'count', 50, 'abandoned deliveries of one kind'),
    ('limit_starvation', 'warning_wait', 'seconds', 600, 'a job has waited so long, and its limit has no room'),
    ('limit_starvation', 'critical_wait', 'seconds', 3600, 'a job has waited so long, and its limit has no room'),
    ('limit_starvation', 'warning_pause', 'seconds', 900, 'a limit is paused for so long'),
    ('limit_starvation', 'critical_pause', 'seconds', 7200, 'a limit is paused for so long'),
    ('seal_lag', 'warning_age', 'seconds', 300, 'an entry is not sealed after so long'),
    ('seal_lag', 'critical_age', 'seconds', 3600, 'an entry is not sealed after so long'),
    ('workers', 'warning_unserved', 'seconds', 60, 'a lane has ready jobs and no worker for so long'),
    ('workers', 'critical_unserved', 'seconds', 600, 'a lane has ready jobs and no worker for so long'),
    ('workers', 'window', 'seconds', 3600, 'how far to look back for lost workers'),
    ('workers', 'warning_lost', 'count', 3, 'workers whose lease ran out'),
    ('workers', 'critical_lost', 'count', 20, 'workers whose lease ran out'),
    ('pinned_xmin', 'warning_age', 'seconds', 300, 'a transaction is open for so long'),
    ('pinned_xmin', 'critical_age', 'seconds', 3600, 'a transaction is open for so long'),
    ('pinned_xmin', 'warning_transactions', 'count', 1000000, 'a slot or standby is so far behind'),
    ('pinned_xmin', 'critical_transactions', 'count', 100000000, 'a slot or standby is so far behind'),
    ('bloat', 'least_share', 'share', 1, 'dead rows per live row, at least'),
    ('bloat', 'warning_dead', 'count', 50000, 'dead rows of a table'),
    ('bloat', 'critical_dead', 'count', 1000000, 'dead rows of a table'),
    ('disk', 'bound', 'bytes', null, 'room for the database; not set: not checked'),
    ('disk', 'warning_share', 'share', 0.8, 'share of the bound'),
    ('disk', 'critical_share', 'share', 0.9, 'share of the bound'),
    ('disk', 'growth_bytes', 'bytes', 1073741824, 'growth per day, at least'),
    ('disk', 'growth_share', 'share', 0.5, 'growth per day, as a share of the size'),
    ('monitors', 'warning_late', 'seconds', 600, 'a monitor is overdue by so much'),
    ('monitors', 'critical_late', 'seconds', 86400, 'a monitor is overdue by so much')
$$;

-- Bring the rows in line with this version: what people have set stays.
create or replace function onceward.declare_builtins()
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
declare
  v_row record;
begin
  for v_row in
    select b.*, coalesce((select jsonb_agg(to_jsonb(t)) from onceward.builtin_thresholds() as t where t.monitor = b.name), '[]') as thresholds
      from onceward.builtin_monitors() as b
     -- A name that was somebody's before it became ours stays theirs.
     where not exists (select from onceward.monitor_private as m where m.name = b.name and m.source <> 'built in')
     order by b.name
  loop
    perform onceward.enter_monitor('built in', null, format('onceward.%I', v_row.function), to_jsonb(v_row));
  end loop;
  for v_row in
    select m.name from onceward.monitor_private as m
     where m.source = 'built in' and m.name not in (select b.name from onceward.builtin_monitors() as b)
  loop
    perform onceward.drop_alerts(v_row.name, 'the monitor is not part of this version');
    delete from onceward.threshold_private as t where t.monitor = v_row.name;
    delete from onceward.monitor_private as m where m.name = v_row.name;
  end loop;
end;
$$;
