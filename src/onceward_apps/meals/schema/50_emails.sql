-- Emails: the ledger of the engine, in the words of the specification.

create or replace function meals.note_email(
  p_delivery_id uuid, p_customer_id uuid, p_template_type text, p_tags jsonb default '[]'
)
  returns void
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  insert into meals.emails (id, customer_id, template_type, tags)
  values (p_delivery_id, p_customer_id, p_template_type, p_tags)
      on conflict (id) do nothing
$$;
comment on function meals.note_email(uuid, uuid, text, jsonb) is
  'Says for whom a delivery is.  Call it in the transaction that enters the delivery.';

-- Address and text of one email of ours.  Links and codes in it are sealed: only the application has the key.
create or replace function meals.email_content(p_delivery_id uuid)
  returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_session text := coalesce(current_setting('onceward.tenant', true), '');
  v_content jsonb;
begin
  if not exists (select from meals.emails as e where e.id = p_delivery_id) then
    return null;
  end if;
  -- The reader is one of ours, whatever tenant the session says.
  perform set_config('onceward.tenant', 'meals', true);
  begin
    v_content := onceward.delivery_content(p_delivery_id);
  exception
    -- Retention takes address and text before the rest.
    when sqlstate 'OW006' then v_content := null;
  end;
  perform set_config('onceward.tenant', v_session, true);
  return v_content;
end;
$$;
comment on function meals.email_content(uuid) is 'What an email says, and to whom; links and codes are sealed.  Null when retention has taken it.';

-- Every email of ours, sent at once or after retries.  A function, because the engine's view asks for the rights of whoever
-- reads: staff see our emails, and nothing else of the ledger.  Retention keeps it to thirty days.
create or replace function meals.ledger()
  returns table (
    id uuid, customer_id uuid, template_type text, tries integer, state text, created_at timestamptz,
    sending_at timestamptz, next_try_at timestamptz, sent_at timestamptz, category text, message text, tags jsonb, key text
  )
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select d.id, e.customer_id, e.template_type, d.tries, d.state, d.created_at, d.sending_at, d.next_try_at,
         case when d.state = 'sent' then d.ended_at end, d.category, d.message, e.tags, d.key
    from meals.emails as e
    join onceward.deliveries as d on d.id = e.id
$$;
comment on function meals.ledger() is 'The rows of the view meals.email_ledger.';

create or replace view meals.email_ledger as
select l.id, l.customer_id, l.template_type, l.tries, l.state, l.created_at, l.sending_at, l.next_try_at, l.sent_at,
       l.category, l.message, l.tags, l.key
  from meals.ledger() as l;
comment on view meals.email_ledger is 'Every email and what became of it, without its address and text.';

-- The retry queue: what did not get through at the first try.
create or replace view meals.email_retry as
select l.id,
       l.customer_id,
       meals.email_content(l.id) ->> 'to' as email_to,
       meals.email_content(l.id) ->> 'subject' as subject,
       meals.email_content(l.id) ->> 'html' as html,
       l.template_type,
       -- The first send is not a retry: attempts counts what came after it.
       greatest(l.tries - 1, 0) as attempts,
       5 as max_attempts,
       coalesce(l.next_try_at, l.sending_at, l.created_at) as next_attempt_at,
       l.sending_at as last_attempt_at,
       case when l.category is not null then l.category || ': ' || l.message end as last_error,
       case when l.state in ('pending', 'sending') then 'pending'
            when l.state = 'sent' then 'sent'
            else 'abandoned' end as status,
       l.created_at,
       l.sent_at,
       l.tags,
       l.key as idempotency_key,
       -- Beyond the specification: `uncertain` may have arrived, and a person decides.
       l.state as delivery_state
  from meals.email_ledger as l
 where l.category is not null or l.state in ('uncertain', 'abandoned', 'cancelled');
comment on view meals.email_retry is 'Queue for email sending with retry logic';
comment on column meals.email_retry.status is
  'pending = not sent yet, sent = delivered, abandoned = gave up after max retries, or needs a person';
comment on column meals.email_retry.next_attempt_at is 'When to retry sending (exponential backoff)';
comment on column meals.email_retry.idempotency_key is 'Prevents duplicate queue entries for same email';

create or replace function meals.email_states(p_ids uuid[])
  returns table (id uuid, state text)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select d.id, d.state
    from meals.emails as e
    join onceward.deliveries as d on d.id = e.id
   where e.id = any (p_ids)
$$;
comment on function meals.email_states(uuid[]) is 'What became of these emails; others are left out.';

-- ------------------------------------------------------------ retention

create or replace function meals.cleanup_old_email_retry(p_limit integer default 10000)
  returns bigint
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  with old as materialized (
    select e.id
      from meals.emails as e
      join onceward.deliveries as d on d.id = e.id
     where e.created_at < onceward.now() - interval '30 days'
       and d.state not in ('pending', 'sending')
     limit p_limit
  ), removed as (
    delete from meals.emails as e using old where e.id = old.id returning 1
  )
  select count(*) from removed
$$;
comment on function meals.cleanup_old_email_retry(integer) is
  'Removes emails that ended, thirty days after they were made, at most so many.  Returns how many.';

-- Links that nobody can use any more, and calls that nobody repeats any more.
create or replace function meals.cleanup(p_limit integer default 10000)
  returns table (kind text, removed bigint)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_before constant timestamptz := onceward.now() - interval '30 days';
begin
  kind := 'email_retry';
  removed := meals.cleanup_old_email_retry(p_limit);
  return next;

  kind := 'handle_update_tokens';
  delete from meals.handle_update_tokens as t
   where t.id in (select o.id from meals.handle_update_tokens as o where o.expires_at < v_before limit p_limit);
  get diagnostics removed = row_count;
  return next;

  kind := 'telegram_deep_link_tokens';
  delete from meals.telegram_deep_link_tokens as t
   where t.id in (select o.id from meals.telegram_deep_link_tokens as o where o.expires_at < v_before limit p_limit);
  get diagnostics removed = row_count;
  return next;

  kind := 'stripe_events';
  delete from meals.stripe_events as t
   where t.event_id in (select o.event_id from meals.stripe_events as o where o.received_at < v_before limit p_limit);
  get diagnostics removed = row_count;
  return next;

  kind := 'telegram_updates';
  delete from meals.telegram_updates as t
   where t.update_id in (select o.update_id from meals.telegram_updates as o where o.received_at < v_before limit p_limit);
  get diagnostics removed = row_count;
  return next;
end;
$$;
comment on function meals.cleanup(integer) is
  'Retention of thirty days; at most so many rows of each kind.  Says what was removed.';
