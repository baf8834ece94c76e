-- Monitors of the engine over the views: the thresholds of 7.3.7, and what no email would show.  Alerts name no customer.

create or replace function meals.check_emails(p_thresholds jsonb)
  returns table (key text, summary text, value numeric, severity text, tenant text)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  -- The view reads the same bounds.
  select t.metric, format('%s of the email retries is %s %s, threshold %s %s', t.metric, t.value, t.unit, trim_scale(t.threshold), t.unit),
         t.value, case when t.breached then 'warning' end, 'meals'
    from meals.email_thresholds as t
   where t.value is not null
$$;

create or replace function meals.check_service(p_thresholds jsonb)
  returns table (key text, summary text, value numeric, severity text, tenant text)
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select 'missing codes', format('customers who eat today and have no QR code: %s', count(*)), count(*),
         case when count(*) > (p_thresholds ->> 'missing')::numeric then 'critical' end, 'meals'
    from meals.qr_missing
   -- Before the schedule has begun its day, everybody is without.
   where extract(hour from onceward.now() at time zone meals.zone()) >= 6
  union all
  select 'stripe', format('events of Stripe that could not be used, so that somebody may have paid without being served: %s', count(*)), count(*),
         case when count(*) > (p_thresholds ->> 'stripe')::numeric then 'warning' end, 'meals'
    from meals.stripe_trouble
  union all
  select 'duplicates', format('customers who have more than one QR code today: %s', count(*)), count(*),
         case when count(*) > 0 then 'critical' end, 'meals'
    from meals.qr_duplicates
$$;

select onceward.add_monitor('meals_emails', 'meals.check_emails(jsonb)', p_every => '1 minute',
  p_description => 'the retry queue of meals against the thresholds of its specification',
  p_thresholds => '[
    {"name": "queue_depth", "unit": "count", "value": 100, "description": "more emails wait for a retry"},
    {"name": "abandoned_rate", "unit": "share", "value": 0.01, "description": "more of the retried emails of a day were given up"},
    {"name": "success_rate", "unit": "share", "value": 0.95, "description": "less of the retried emails of a day got through"},
    {"name": "time_to_send", "unit": "seconds", "value": 3600, "description": "retried emails of a week took longer on average"},
    {"name": "oldest_pending", "unit": "seconds", "value": 21600, "description": "an email has waited longer"}]');

select onceward.add_monitor('meals_service', 'meals.check_service(jsonb)', p_every => '5 minutes', p_hold_for => '30 minutes',
  p_description => 'customers of meals without a code, events of Stripe that could not be used, codes that exist twice',
  p_thresholds => '[
    {"name": "missing", "unit": "count", "value": 0, "description": "more customers have no code for half an hour"},
    {"name": "stripe", "unit": "count", "value": 0, "description": "more events of Stripe could not be used"}]');

-- Whom the alerts are told: a channel of the engine, for the chat that the application's settings name.  From which severity on
-- is for people to say; a channel of this name that they have made something else is left alone.
create or replace function meals.declare_ops_channel(p_chat_id text)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_session  text := coalesce(current_setting('onceward.tenant', true), '');
  v_found    record;
  v_declared boolean := true;
begin
  perform set_config('onceward.tenant', 'meals', true);
  select c.kind, c.severity into v_found from onceward.channels as c where c.name = 'meals-ops';
  begin
    if v_found.kind <> 'telegram' then
      v_declared := false;
    else
      perform onceward.add_channel('meals-ops', 'telegram', jsonb_build_object('chat_id', p_chat_id),
                                   coalesce(v_found.severity, 'warning'), 'meals');
    end if;
  exception
    when sqlstate 'OW011' then v_declared := false;  -- it belongs to others now
  end;
  perform set_config('onceward.tenant', v_session, true);
  return v_declared;
end;
$$;
comment on function meals.declare_ops_channel(text) is
  'Makes the channel meals-ops tell this Telegram chat of the alerts of meals, and keeps its severity.  False when people have made it something else.';
