-- Alerts, open and closed.  What has not lasted long enough to be one is left out.
create or replace view onceward.alerts with (security_invoker = true) as
select a.id, a.monitor, a.tenant, a.key,
       case when a.state = 'closed' then 'closed'
            when a.acked_at is not null then 'acknowledged'
            else 'open' end as state,
       a.severity, a.worst, a.value, a.summary, a.detail, a.seen, a.first_seen_at, a.opened_at, a.last_seen_at, a.clear_since,
       a.told is not null as notified, a.reminders, a.acked_at, a.acked_by, a.ack_note,
       (select max(s.until) from onceward.silence_private as s
         where a.closed_at is null and s.until > onceward.now()
           and (s.alert_id is null or s.alert_id = a.id) and (s.monitor is null or s.monitor = a.monitor)
           and (s.tenant is null or s.tenant = a.tenant) and (s.key is null or s.key = a.key)) as silenced_until,
       a.closed_at, a.closed_by, a.close_note, onceward.has_channel(a.id) as has_channel
  from onceward.alert_private as a
 where a.state <> 'pending' and (a.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.alerts is 'Alerts: one per condition and episode, with who looks after it and how it ended.  notified says whether anybody was told; has_channel, whether there is anybody to tell (null when it is closed).';

create or replace view onceward.silences with (security_invoker = true) as
select s.id, s.alert_id, s.monitor, s.tenant, s.key, s.until, s.until > onceward.now() as active, s.reason, s.created_at, s.created_by
  from onceward.silence_private as s
 where (s.tenant = (select onceward.current_tenant()) or (select onceward.is_for_all()));
comment on view onceward.silences is 'What is not told for a while, and why.';
