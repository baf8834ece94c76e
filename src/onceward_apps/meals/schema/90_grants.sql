-- Who may do what.  The whole truth after every installation: nothing for PUBLIC, nothing on tables.
-- meals_app: the application, which is a member of onceward_worker as well.  meals_staff: reads views.

revoke all on schema meals from public;
revoke all on all tables in schema meals from public, meals_app, meals_staff;
revoke all on all functions in schema meals from public, meals_app, meals_staff;

grant usage on schema meals to meals_app, meals_staff;
grant execute on function
  meals.add_handle_update_token, meals.add_deep_link_token, meals.handle_token_state, meals.consume_handle_token,
  meals.link_telegram, meals.note_telegram_update, meals.service_date, meals.due_customers, meals.qr_count,
  meals.issue_qr_token, meals.qr_of_chat, meals.qr_state, meals.redeem_qr, meals.note_stripe_event,
  meals.register_customer, meals.set_subscription, meals.customer_of_stripe, meals.skip_day, meals.note_email,
  meals.email_states, meals.cleanup, meals.cleanup_old_email_retry, meals.health, meals.local_time, meals.zone,
  meals.customer, meals.qr_of_customer, meals.email_count, meals.unskip_day, meals.set_service_day, meals.clear_service_day,
  meals.set_service_weekday, meals.last_planned_day, meals.declare_ops_channel
   to meals_app;

grant select on
  meals.email_ledger, meals.email_retry, meals.email_queue_health, meals.stuck_emails, meals.abandoned_emails,
  meals.email_success_rate, meals.email_delivery_times, meals.email_thresholds, meals.qr_today, meals.qr_duplicates,
  meals.qr_redemption_rate, meals.redemptions_by_hour, meals.qr_missing, meals.stripe_trouble,
  meals.customer_list, meals.subscription_list, meals.link_list
   to meals_staff;
-- A view reads tables with its owner's rights, and calls functions with the reader's.
grant usage on schema onceward to meals_app, meals_staff;
grant execute on function onceward.now to meals_app, meals_staff;
grant execute on function
  meals.ledger, meals.email_content, meals.service_date, meals.zone, meals.local_time, meals.served_customers, meals.is_service_day,
  meals.bound, meals.customer_calendar, meals.service_days, meals.redemptions_of, meals.weekdays, meals.last_planned_day
   to meals_staff;

-- A second wall: should a table ever be granted by mistake, its rows stay hidden.
do $$
declare
  v_table text;
begin
  for v_table in
    select c.relname from pg_catalog.pg_class as c where c.relnamespace = 'meals'::regnamespace and c.relkind = 'r'
  loop
    execute format('alter table meals.%I enable row level security, force row level security', v_table);
    execute format('drop policy if exists owner_all on meals.%I', v_table);
    execute format('create policy owner_all on meals.%I to onceward_owner using (true) with check (true)', v_table);
  end loop;
end;
$$;
