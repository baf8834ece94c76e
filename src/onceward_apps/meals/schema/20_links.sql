-- Links that are used once.  One UPDATE decides; only when it refused is the reason looked up.

-- How long a link lives (FR-002-004).
create or replace function meals.link_lifetime()
  returns interval
  language sql immutable
  return interval '7 days';

create or replace function meals.add_handle_update_token(p_customer_id uuid, p_token_hash bytea)
  returns timestamptz
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  insert into meals.handle_update_tokens (customer_id, token_hash, expires_at)
  values (p_customer_id, p_token_hash, onceward.now() + meals.link_lifetime())
  returning expires_at
$$;
comment on function meals.add_handle_update_token(uuid, bytea) is
  'Stores the SHA-256 of a correction link''s token.  Returns when it expires.';

create or replace function meals.add_deep_link_token(p_customer_id uuid, p_token_hash bytea)
  returns timestamptz
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  insert into meals.telegram_deep_link_tokens (customer_id, token_hash, expires_at)
  values (p_customer_id, p_token_hash, onceward.now() + meals.link_lifetime())
  returning expires_at
$$;
comment on function meals.add_deep_link_token(uuid, bytea) is
  'Stores the SHA-256 of a Telegram deep link''s token.  Returns when it expires.';

-- For the page that shows the form.  Changes nothing.
create or replace function meals.handle_token_state(p_token_hash bytea)
  returns table (outcome text, telegram_handle text)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select case when t.used_at is not null then 'ALREADY_USED'
              when t.expires_at <= onceward.now() then 'EXPIRED'
              else 'VALID' end,
         c.telegram_handle
    from meals.handle_update_tokens as t
    join meals.customers as c on c.id = t.customer_id
   where t.token_hash = p_token_hash
$$;
comment on function meals.handle_token_state(bytea) is
  'VALID, ALREADY_USED or EXPIRED, and the present handle; no row for an unknown token.';

-- Old token used, handle changed, new link stored: all or nothing.
create or replace function meals.consume_handle_token(p_token_hash bytea, p_new_handle text, p_link_hash bytea)
  returns table (outcome text, customer_id uuid, email text, name text, expires_at timestamptz)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_customer uuid;
  v_expires  timestamptz;
  v_outcome  text := 'OK';
begin
  update meals.handle_update_tokens as t
     set used_at = onceward.now()
   where t.token_hash = p_token_hash
     and t.used_at is null
     and t.expires_at > onceward.now()
  returning t.customer_id into v_customer;
  if found then
    update meals.customers as c set telegram_handle = p_new_handle where c.id = v_customer;
    v_expires := meals.add_deep_link_token(v_customer, p_link_hash);
  else
    -- The caller who lost the answer asks again with the same new link.
    select t.customer_id, l.expires_at into v_customer, v_expires
      from meals.handle_update_tokens as t
      join meals.telegram_deep_link_tokens as l on l.customer_id = t.customer_id and l.token_hash = p_link_hash
     where t.token_hash = p_token_hash and t.used_at is not null;
    if found then
      v_outcome := 'REPEATED';
    else
      v_outcome := coalesce((select s.outcome from meals.handle_token_state(p_token_hash) as s), 'INVALID');
    end if;
  end if;
  return query
    select v_outcome, c.id, c.email, c.name, v_expires
      from (values (v_customer)) as v (id)
      left join meals.customers as c on c.id = v.id;
end;
$$;
comment on function meals.consume_handle_token(bytea, text, bytea) is
  'Uses a correction link once: changes the handle and stores a new deep link, in one transaction.  OK, or ALREADY_USED, EXPIRED or INVALID.  A call with the same new link, by a caller who lost the answer, gets REPEATED and what the first one got.';

-- One chat per customer and one customer per chat.
create or replace function meals.link_telegram(p_token_hash bytea, p_chat_id bigint)
  returns table (outcome text, name text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  v_token meals.telegram_deep_link_tokens;
begin
  begin
    update meals.telegram_deep_link_tokens as t
       set used_at = onceward.now(), used_by_chat = p_chat_id
     where t.token_hash = p_token_hash
       and t.used_at is null
       and t.expires_at > onceward.now()
    returning t.* into v_token;
    if found then
      insert into meals.telegram_links as l (customer_id, chat_id)
      values (v_token.customer_id, p_chat_id)
          on conflict (customer_id) do update set chat_id = excluded.chat_id, linked_at = excluded.linked_at;
      return query select 'LINKED', c.name from meals.customers as c where c.id = v_token.customer_id;
      return;
    end if;
  exception
    -- The chat is another customer's: the block is undone, and the token stays good for the right chat.
    when unique_violation then
      return query select 'CHAT_TAKEN', null::text;
      return;
  end;
  return query
    select case when t.used_by_chat = p_chat_id then 'ALREADY_LINKED'
                when t.used_at is not null then 'ALREADY_USED'
                else 'EXPIRED' end,
           case when t.used_by_chat = p_chat_id then c.name end
      from meals.telegram_deep_link_tokens as t
      join meals.customers as c on c.id = t.customer_id
     where t.token_hash = p_token_hash;
  if not found then
    return query select 'INVALID', null::text;
  end if;
end;
$$;
comment on function meals.link_telegram(bytea, bigint) is
  'Uses a deep link once: LINKED, or ALREADY_LINKED (by this chat), ALREADY_USED, EXPIRED, INVALID, or CHAT_TAKEN when the chat belongs to another customer.';

create or replace function meals.note_telegram_update(p_update_id bigint)
  returns boolean
  language sql security definer
  set search_path = pg_catalog, pg_temp
as $$
  with noted as (
    insert into meals.telegram_updates (update_id) values (p_update_id)
        on conflict (update_id) do nothing
    returning 1
  )
  select exists (select from noted)
$$;
comment on function meals.note_telegram_update(bigint) is
  'Whether this update is new.  Call it in the transaction that acts on it.';
