-- Monitoring: the queries of the specification (7.3.7 and appendix B) as views.

-- B.1: depth by status.
create or replace view meals.email_queue_health as
select r.status, count(*) as count, min(r.created_at) as oldest, max(r.created_at) as newest
  from meals.email_retry as r
 group by r.status;
comment on view meals.email_queue_health is 'Emails that were retried, by status.';

-- B.1: stuck for more than six hours.
create or replace view meals.stuck_emails as
select r.id, r.email_to, r.template_type, r.attempts, r.created_at, age(onceward.now(), r.created_at) as age,
       r.next_attempt_at, r.last_error
  from meals.email_retry as r
 where r.status = 'pending'
   and r.created_at < onceward.now() - interval '6 hours'
 order by r.created_at;
comment on view meals.stuck_emails is 'Emails that have waited for more than six hours, the oldest first.';

-- For manual review.
create or replace view meals.abandoned_emails as
select r.id, r.customer_id, r.email_to, r.template_type, r.attempts, r.created_at, r.last_attempt_at, r.last_error,
       r.delivery_state
  from meals.email_retry as r
 where r.status = 'abandoned'
 order by r.created_at;
comment on view meals.abandoned_emails is 'Emails that nobody will send unless a person acts.';

-- B.1: success rate of the last day.
create or replace view meals.email_success_rate as
select r.template_type,
       count(*) filter (where r.status = 'sent') as sent,
       count(*) filter (where r.status = 'abandoned') as abandoned,
       round(100.0 * count(*) filter (where r.status = 'sent')
             / nullif(count(*) filter (where r.status in ('sent', 'abandoned')), 0), 2) as success_rate_pct
  from meals.email_retry as r
 where r.created_at > onceward.now() - interval '24 hours'
 group by r.template_type;
comment on view meals.email_success_rate is 'Retried emails of the last day that were sent, by template.';

-- 7.3.7: average time to successful delivery, of the last week.
create or replace view meals.email_delivery_times as
select r.template_type, avg(extract(epoch from (r.sent_at - r.created_at))) / 60 as avg_minutes
  from meals.email_retry as r
 where r.status = 'sent'
   and r.sent_at > onceward.now() - interval '7 days'
 group by r.template_type;
comment on view meals.email_delivery_times is 'Minutes from making to sending, of retried emails of the last week.';

-- 7.3.7: the five metrics.  Bounds are those of the specification until an operator has set others: see 80_monitors.sql.
create or replace function meals.bound(p_name text, p_default numeric)
  returns numeric
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  -- Off is null, and not the default.
  select case when t.name is null then p_default else t.value end
    from (values (1)) as one (n)
    left join onceward.thresholds as t on t.monitor = 'meals_emails' and t.name = p_name
$$;
comment on function meals.bound(text, numeric) is 'A threshold of the monitor meals_emails as it is set; null when it is off.';

create or replace view meals.email_thresholds as
with retried as (
  select r.status, r.created_at, r.sent_at from meals.email_retry as r
), day as (
  select count(*) filter (where r.status = 'abandoned') as abandoned,
         count(*) filter (where r.status = 'sent') as sent,
         count(*) as total
    from retried as r
   where r.created_at > onceward.now() - interval '24 hours'
), measured (metric, value, threshold, alert_when, unit) as (
  select 'Queue depth', (select count(*) from retried as r where r.status = 'pending')::numeric,
         meals.bound('queue_depth', 100), '>', 'emails'
  union all
  select 'Abandoned rate', round(100.0 * d.abandoned / nullif(d.total, 0), 2),
         100 * meals.bound('abandoned_rate', 0.01), '>', '%' from day as d
  union all
  select 'Retry success rate', round(100.0 * d.sent / nullif(d.sent + d.abandoned, 0), 2),
         100 * meals.bound('success_rate', 0.95), '<', '%' from day as d
  union all
  select 'Average time to send',
         (select round(avg(extract(epoch from (r.sent_at - r.created_at))) / 3600, 2) from retried as r
           where r.status = 'sent' and r.sent_at > onceward.now() - interval '7 days'),
         meals.bound('time_to_send', 3600) / 3600, '>', 'hours'
  union all
  select 'Oldest pending email',
         (select round(extract(epoch from onceward.now() - min(r.created_at)) / 3600, 2) from retried as r
           where r.status = 'pending'),
         meals.bound('oldest_pending', 21600) / 3600, '>', 'hours'
)
select m.metric, m.value, m.threshold, m.unit,
       coalesce(case m.alert_when when '>' then m.value > m.threshold else m.value < m.threshold end, false) as breached
  from measured as m;
comment on view meals.email_thresholds is
  'The five metrics of the retry queue, their thresholds, and whether each is breached.  No value: nothing to measure; no threshold: switched off.';

-- B.2: tokens of today.
create or replace view meals.qr_today as
select count(*) as total_qr_tokens, count(distinct q.customer_id) as unique_customers
  from meals.qr_tokens as q
 where q.service_date = meals.service_date();
comment on view meals.qr_today is 'QR tokens of today, in California.';

-- B.2: should always be empty.
create or replace view meals.qr_duplicates as
select q.customer_id, q.service_date, count(*) as duplicate_count
  from meals.qr_tokens as q
 where q.service_date = meals.service_date()
 group by q.customer_id, q.service_date
having count(*) > 1;
comment on view meals.qr_duplicates is 'Customers with more than one token today: always empty, by the unique constraint.';

-- B.2: how many were redeemed.
create or replace view meals.qr_redemption_rate as
select count(*) filter (where q.used_at is not null) as redeemed,
       count(*) filter (where q.used_at is null) as unredeemed,
       round(100.0 * count(*) filter (where q.used_at is not null) / nullif(count(*), 0), 2) as redemption_rate_pct
  from meals.qr_tokens as q
 where q.service_date = meals.service_date();
comment on view meals.qr_redemption_rate is 'Tokens of today that were redeemed.';

create or replace view meals.redemptions_by_hour as
select extract(hour from r.redeemed_at at time zone meals.zone())::integer as hour, count(*) as redemptions
  from meals.redemptions as r
 where r.service_date = meals.service_date()
 group by 1
 order by 1;
comment on view meals.redemptions_by_hour is 'Meals of today by the hour in California.';

-- Somebody paid and has no code: what no retry of an email would show.
create or replace view meals.qr_missing as
select s.id as customer_id
  from meals.served_customers(meals.service_date()) as s
 where not exists (select from meals.qr_tokens as q where q.customer_id = s.id and q.service_date = meals.service_date());
comment on view meals.qr_missing is 'Customers who eat today and have no QR token yet.';

create or replace view meals.stripe_trouble as
select e.event_id, e.type, e.reason, e.received_at from meals.stripe_events as e where e.outcome = 'invalid';
comment on view meals.stripe_trouble is 'Events of Stripe that could not be used: somebody may have paid without being served.';

-- For GET /api/health, which anybody may ask: no figure that is anybody's business.
create or replace function meals.health()
  returns table (status text, checked_at timestamptz, service_date date)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select case when exists (select from meals.email_thresholds as t where t.breached)
                or exists (select from meals.stripe_trouble)
              then 'degraded' else 'ok' end,
         onceward.now(), meals.service_date()
$$;
comment on function meals.health() is 'ok, or degraded when a threshold of meals.email_thresholds is breached or meals.stripe_trouble has rows.';
