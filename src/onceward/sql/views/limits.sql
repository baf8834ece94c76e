-- Limits with what is left of them: one row per bucket, of keys that are the reader's.
create or replace view onceward.limits with (security_invoker = true) as
select l.name, b.key, l.requests, l.period, l.weight, l.weight_period, l.slots, l.burst, l.weight_burst, l.allowance, l.per_key,
       l.threshold, l.over, l.source, b.requests_left, b.weight_left, b.slots_held, b.next_room_at, b.reason, b.paused_until,
       l.changed_at, l.changed_by
  from onceward.limit_private as l
  left join onceward.limit_levels() as b on b.limit_name = l.name;
comment on view onceward.limits is 'Limits, what is left of each now, whether it is paused, and when there is room next.';

create or replace view onceward.limit_history with (security_invoker = true) as
select h.limit_name as name, h.at, h.level, h.waiting, h.paused from onceward.limit_level_private as h;
comment on view onceward.limit_history is
  'What was left of each limit, minute by minute, from 0 to 1; how many ready jobs used it; whether it was paused.  Of a limit per key, the emptiest.';
