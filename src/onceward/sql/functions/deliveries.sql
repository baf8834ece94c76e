-- Deliveries: one row per outside effect.  A delivery is a job of the task onceward.deliver with the same id: claims, leases,
-- retries and dead letters are those of its job.  Addresses and contents stay out of the job.

-- Put an effect into the ledger, in the caller's transaction.
create or replace function onceward.deliver(
  p_kind         text,
  p_key          text,
  p_content      jsonb,
  p_tenant       text default null,
  p_run_at       timestamptz default null,
  p_expires_at   timestamptz default null,
  p_priority     integer default 0,
  p_retry        jsonb default null,
  p_max_attempts integer default null,
  p_alerts_to    jsonb default null,
  p_headers      jsonb default null,
  p_lane         text default 'deliveries',
  p_made_by      uuid default null
)
  returns table (delivery_id uuid, created boolean, state text)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_delivery(p_kind, p_content);
  perform onceward.check_alerts_to(p_alerts_to);
  if p_key is null then
    perform onceward.bad_argument('key', null, 'must name the effect',
      'Make it of what the effect is for, such as welcome:42; the same key never sends twice.');
  end if;
  select d.delivery_id, d.created into delivery_id, created
    from onceward.enter_delivery(p_kind, p_key, p_content, p_tenant, p_run_at, p_expires_at, p_priority, p_retry,
                                 p_max_attempts, p_alerts_to, false, p_headers, p_lane, p_made_by) as d;
  -- The key outlives the ledger.
  state := case when created then 'pending'
                else coalesce((select d.state from onceward.delivery_private as d where d.id = delivery_id), 'removed') end;
  return next;
end;
$$;
comment on function onceward.deliver(text, text, jsonb, text, timestamptz, timestamptz, integer, jsonb, integer, jsonb, jsonb, text, uuid) is
  'Puts an outside effect (email, slack, telegram or webhook) into the ledger, in the caller''s transaction.  The same key gives the same delivery and created = false; other content under the same key is an error (OW005).  p_alerts_to ({"kind": …, "content": …}) is told when it ends as uncertain or abandoned, through the same lane.  p_made_by names the job whose handler asks for it.';

-- The job, and beside it the two rows.  The arguments have been checked.
create or replace function onceward.enter_delivery(
  p_kind         text,
  p_key          text,
  p_content      jsonb,
  p_tenant       text,
  p_run_at       timestamptz,
  p_expires_at   timestamptz,
  p_priority     integer,
  p_retry        jsonb,
  p_max_attempts integer,
  p_alerts_to    jsonb,
  p_is_alert     boolean,
  p_headers      jsonb default null,
  p_lane         text default 'deliveries',
  p_made_by      uuid default null
)
  returns table (delivery_id uuid, created boolean)
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_retry  jsonb := coalesce(p_retry, onceward.delivery_retry(p_kind));
  v_tenant text := onceward.tenant_for(p_tenant);
begin
  perform onceward.declare_lanes(array[p_lane]);
  -- Before its parts are counted.
  perform onceward.check_retry(v_retry);
  select e.job_id, e.created into delivery_id, created
    from onceward.enqueue(
      'onceward.deliver',
      -- The hash tells a repetition from another effect; address and content are not for readers of jobs.
      jsonb_build_object('kind', p_kind,
                         'content_sha256', encode(sha256(convert_to(p_content::text, 'UTF8')), 'hex')),
      p_lane         => p_lane,
      p_priority     => p_priority,
      p_run_at       => p_run_at,
      p_expires_at   => p_expires_at,
      p_key          => p_key,
      p_key_window   => 'forever',
      p_max_attempts => coalesce(p_max_attempts, jsonb_array_length(v_retry -> 'waits') + 1, 8),
      p_retry        => v_retry,
      p_tenant       => v_tenant,
      p_headers      => p_headers) as e;
  if created then
    insert into onceward.delivery_private (id, tenant, kind, key, state, created_at, is_alert, made_by)
    values (delivery_id, v_tenant, p_kind, p_key, 'pending', onceward.now(), p_is_alert, p_made_by);
    insert into onceward.delivery_content_private (id, tenant, content, alerts_to)
    values (delivery_id, v_tenant, p_content, p_alerts_to);
  end if;
  return next;
end;
$$;

-- How long to wait after each try, in seconds; after the last wait comes the last try.
create or replace function onceward.delivery_retry(p_kind text)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select case p_kind
           when 'email' then '{"waits": [300, 900, 3600, 14400, 14400]}'
           when 'webhook' then '{"waits": [5, 300, 1800, 7200, 18000, 36000, 36000]}'
           else '{"waits": [10, 60, 300, 1800, 7200]}'
         end::jsonb
$$;

-- Say, before the effect, that it may happen from now on.  Committed before anything is sent, so that whoever comes after
-- a crash knows of it.
create or replace function onceward.begin_delivery(p_job_id uuid, p_epoch bigint, p_provider text default null)
  returns table (
    kind text, key text, tenant text, content jsonb, tries integer, first_try_at timestamptz, sending_at timestamptz,
    unclear_since timestamptz, unclear_provider text
  )
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  -- A caller's open transaction may hold the job for long; a worker has other things to do.
  set lock_timeout = '2s'
as $$
declare
  v_delivery onceward.delivery_private;
begin
  perform from onceward.job_private as j
    where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null  -- running; see finish_many
      for update;
  if not found then
    perform onceward.lease_lost(p_job_id, p_epoch);
  end if;
  select * into v_delivery from onceward.delivery_private as d where d.id = p_job_id for update;
  if not found then
    perform onceward.no_such_delivery(p_job_id);
  end if;
  if v_delivery.state not in ('pending', 'sending') then
    perform onceward.wrong_delivery_state('send', p_job_id, v_delivery.state,
      'Decide an uncertain delivery with onceward.decide_delivery.');
  end if;
  -- The repetition of this call finds its own epoch and changes nothing.
  if v_delivery.state = 'pending' or v_delivery.sending_epoch <> p_epoch then
    update onceward.delivery_private as d
       set state            = 'sending',
           tries            = d.tries + 1,
           provider         = left(p_provider, 100),
           first_try_at     = coalesce(d.first_try_at, onceward.now()),
           sending_at       = onceward.now(),
           sending_epoch    = p_epoch,
           -- An earlier attempt was going to send, and never said what became of it.
           unclear_provider = case when d.state = 'sending' and d.unclear_since is null then d.provider
                                   else d.unclear_provider end,
           unclear_since    = case when d.state = 'sending' then coalesce(d.unclear_since, d.sending_at)
                                   else d.unclear_since end
     where d.id = p_job_id
    returning * into v_delivery;
  end if;
  return query
    select v_delivery.kind, v_delivery.key, v_delivery.tenant, c.content, v_delivery.tries, v_delivery.first_try_at,
           v_delivery.sending_at, v_delivery.unclear_since, v_delivery.unclear_provider
      from onceward.delivery_content_private as c
     where c.id = p_job_id;
end;
$$;
comment on function onceward.begin_delivery(uuid, bigint, text) is
  'Marks a delivery as being sent by this attempt and returns what to send.  Call it in a transaction of its own, before the effect.  unclear_since tells that an earlier try may have arrived.  Raises OW001 when the lease was lost, OW007 when a person has to decide first.';

-- Say what became of the effect, and end the attempt of the job with it.
create or replace function onceward.settle_delivery(
  p_job_id       uuid,
  p_epoch        bigint,
  p_outcome      text,
  p_provider_ref text default null,
  p_error_type   text default null,
  p_category     text default null,
  p_message      text default null,
  p_retry_after  interval default null,
  p_unclear      boolean default false,
  p_cleared      boolean default false
)
  returns table (state text, next_try_at timestamptz)
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
  set lock_timeout = '2s'
as $$
declare
  v_type     text := coalesce(p_error_type, 'DeliveryFailed');
  v_category text := case when p_outcome = 'uncertain' then 'uncertain' else coalesce(p_category, 'error') end;
begin
  if p_outcome is null or p_outcome not in ('sent', 'retry', 'uncertain', 'abandoned') then
    perform onceward.bad_argument('outcome', p_outcome, 'must be sent, retry, uncertain or abandoned');
  end if;
  perform from onceward.job_private as j
    where j.id = p_job_id and j.epoch = p_epoch and j.worker_id is not null
      for update;
  -- When the lease was lost, or this is a repetition, what ends the job below raises or answers as before.
  if found then
    update onceward.delivery_private as d
       set state            = n.state,
           provider_ref     = case when n.state = 'sent' then left(p_provider_ref, 500) end,
           ended_at         = case when n.state = 'sent' then onceward.now() end,
           unclear_since    = n.unclear_since,
           unclear_provider = case when n.unclear_since is not null then coalesce(d.unclear_provider, d.provider) end,
           last_error       = case when p_outcome = 'sent' then d.last_error
                                   else onceward.error_record('onceward.deliver', v_type, p_message, v_category, null) end
      from (select u.unclear_since,
                   -- What may have arrived stays `sending` while it waits for its repetition.
                   case when p_outcome = 'sent' then 'sent'
                        when p_outcome = 'uncertain' or u.unclear_since is not null then 'sending'
                        else 'pending' end as state
              from (select case when p_outcome = 'sent' then null
                                when p_unclear or p_outcome = 'uncertain' then coalesce(case when not p_cleared then e.unclear_since end, e.sending_at)
                                when p_cleared then null
                                else e.unclear_since end as unclear_since
                      from onceward.delivery_private as e where e.id = p_job_id) as u) as n
     where d.id = p_job_id and d.state = 'sending' and d.sending_epoch = p_epoch;
    if not found then
      perform onceward.wrong_delivery_state('settle', p_job_id,
        coalesce((select d.state from onceward.delivery_private as d where d.id = p_job_id), 'unknown'),
        'Call onceward.begin_delivery first.');
    end if;
  end if;

  if p_outcome = 'sent' then
    perform onceward.complete(p_job_id, p_epoch, jsonb_build_object('provider_ref', left(p_provider_ref, 500)));
  else
    -- What became of the job decides about the delivery: see onceward.delivery_follows.
    select f.retry_at into next_try_at
      from onceward.fail(p_job_id, p_epoch, v_type, p_message, v_category, null,
                         p_outcome in ('uncertain', 'abandoned'),
                         -- least() would take a day for no answer.
                         case when p_retry_after > interval '1 day' then interval '1 day' else p_retry_after end) as f;
  end if;
  state := (select d.state from onceward.delivery_private as d where d.id = p_job_id);
  return next;
end;
$$;
comment on function onceward.settle_delivery(uuid, bigint, text, text, text, text, text, interval, boolean, boolean) is
  'Says what became of a delivery (sent, retry, uncertain or abandoned) and ends its attempt in the same transaction.  p_unclear: this try may have arrived, and a repetition is harmless; p_cleared: it is known that no earlier try did.  The error must name no address and no content.  Raises OW001 when the lease was lost; repeating a successful call is harmless.';

-- The job of a delivery has changed without the delivery's doing: cancelled, expired, rescued, failed, requeued, resolved.
-- Called by whatever changes it, with the job locked.
create or replace function onceward.delivery_follows(p_job_id uuid, p_job_state text, p_error jsonb)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_was onceward.delivery_private;
  v_new text;
begin
  select * into v_was from onceward.delivery_private as d where d.id = p_job_id for update;
  if not found then
    return;
  end if;
  if p_job_state in ('cancelled', 'dead_letter') and v_was.state in ('pending', 'sending') then
    -- Begun, and nobody has said that it did not arrive.
    v_new := case when v_was.state = 'sending' then 'uncertain'
                  when p_job_state = 'cancelled' then 'cancelled'
                  else 'abandoned' end;
    update onceward.delivery_private as d
       set state = v_new, ended_at = onceward.now(), last_error = coalesce(p_error - 'traceback', d.last_error)
     where d.id = p_job_id;
    perform onceward.audit('delivery.' || v_new, p_tenant => v_was.tenant, p_job_id => p_job_id,
      p_entity_type => 'delivery', p_entity_id => p_job_id::text, p_before => jsonb_build_object('state', v_was.state),
      p_after => jsonb_build_object('state', v_new), p_meta => jsonb_build_object('kind', v_was.kind));
    if v_new <> 'cancelled' then
      perform onceward.alert_delivery(p_job_id);
    end if;
  elsif p_job_state = 'requeued' then
    if v_was.state not in ('abandoned', 'cancelled', 'pending') then
      perform onceward.wrong_delivery_state('requeue', p_job_id, v_was.state,
        case v_was.state when 'uncertain' then 'It may have arrived. Decide with onceward.decide_delivery.'
                         else 'Make a new delivery under another key to send it again.' end);
    end if;
    update onceward.delivery_private as d set state = 'pending', ended_at = null where d.id = p_job_id;
  elsif p_job_state = 'resolved' and v_was.state = 'uncertain' then
    perform onceward.wrong_delivery_state('resolve', p_job_id, v_was.state,
      'Say whether it arrived, with onceward.decide_delivery.');
  end if;
end;
$$;

-- Tell somebody, once, that a delivery needs a person.  An alert about an alert would never end.
create or replace function onceward.alert_delivery(p_delivery_id uuid)
  returns void
  language plpgsql
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_delivery onceward.delivery_private;
  v_to       jsonb;
  v_subject  text;
  v_key      text := 'alert:' || p_delivery_id;
  v_session  text := coalesce(current_setting('onceward.tenant', true), '');
begin
  select * into v_delivery from onceward.delivery_private as d where d.id = p_delivery_id;
  select c.alerts_to into v_to from onceward.delivery_content_private as c where c.id = p_delivery_id;
  if v_to is null or v_delivery.is_alert
     or exists (select from onceward.delivery_private as d where d.tenant = v_delivery.tenant and d.key = v_key) then
    return;
  end if;
  v_subject := format('Delivery %s: %s %s', v_delivery.state, v_delivery.kind, p_delivery_id);
  -- Workers notice it for every tenant, whatever their session says.
  perform set_config('onceward.tenant', '', true);
  perform onceward.enter_delivery(
    v_to ->> 'kind', v_key,
    onceward.alert_content(v_to ->> 'kind', v_to -> 'content', v_subject,
      format(E'%s\nkey: %s\ntenant: %s\ntries: %s\nerror: %s: %s\n%s', v_subject, v_delivery.key, v_delivery.tenant,
             v_delivery.tries, v_delivery.last_error ->> 'type', v_delivery.last_error ->> 'message',
             case v_delivery.state
               when 'uncertain' then format('It may have arrived: onceward delivery decide %s sent|send-again|abandon', p_delivery_id)
               else format('It was not sent: onceward job requeue %s sends it again', p_delivery_id) end)),
    v_delivery.tenant, null, null, 0, null, null, null, true, null,
    -- Who sends the one sends the other: other applications of this database have other providers.
    coalesce((select j.lane from onceward.jobs as j where j.id = p_delivery_id), 'deliveries'));
  perform set_config('onceward.tenant', v_session, true);
end;
$$;

create or replace function onceward.alert_content(p_kind text, p_content jsonb, p_subject text, p_text text)
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select p_content || case p_kind
    when 'email' then jsonb_build_object('subject', p_subject, 'text', p_text)
    when 'webhook' then jsonb_build_object('payload', jsonb_build_object('type', 'onceward.delivery',
                                                                        'subject', p_subject, 'text', p_text))
    else jsonb_build_object('text', p_text)
  end
$$;
