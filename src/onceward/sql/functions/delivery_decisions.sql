-- Deliveries and people: deciding about those whose outcome is unclear or that were given up, and reading what was sent.

create or replace function onceward.no_such_delivery(p_delivery_id uuid)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'delivery % does not exist', p_delivery_id
    using errcode = 'OW006',
          hint    = 'Look for it with "onceward delivery list".';
end;
$$;

create or replace function onceward.wrong_delivery_state(p_action text, p_delivery_id uuid, p_state text, p_hint text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'cannot % delivery %', p_action, p_delivery_id
    using errcode = 'OW007', detail = format('Delivery %s is in state "%s".', p_delivery_id, p_state), hint = p_hint;
end;
$$;

-- A person has found out, or takes the risk.  Delivery and job are settled together.
create or replace function onceward.decide_delivery(p_delivery_id uuid, p_decision text, p_note text)
  returns text
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_delivery onceward.delivery_private;
  v_job      text;
  v_state    text := case p_decision when 'sent' then 'sent' when 'send_again' then 'pending' when 'abandon' then 'abandoned' end;
begin
  if v_state is null then
    perform onceward.bad_argument('decision', p_decision, 'must be sent, send_again or abandon');
  end if;
  if p_note is null or length(trim(p_note)) = 0 then
    perform onceward.bad_argument('note', p_note, 'must say why');
  end if;
  -- The job before the delivery, whatever its state: everybody locks them in this order, and a worker may be settling.
  select j.state into v_job from onceward.job_private as j where j.id = p_delivery_id for update;
  if not found then
    perform from onceward.archive_private as a where a.id = p_delivery_id for update;
  end if;
  select * into v_delivery from onceward.delivery_private as d where d.id = p_delivery_id for update;
  if not found then
    perform onceward.no_such_delivery(p_delivery_id);
  end if;
  perform onceward.check_tenant(v_delivery.tenant);
  -- One that was given up did not arrive; and nobody has decided about it as long as its job is a dead letter.
  if v_delivery.state <> 'uncertain'
     and not (v_delivery.state = 'abandoned' and v_job is not distinct from 'dead_letter' and p_decision <> 'sent') then
    perform onceward.wrong_delivery_state('decide about', p_delivery_id, v_delivery.state,
      case when v_delivery.state = 'abandoned' and v_job = 'dead_letter' then 'It did not arrive: send it again, or abandon it.'
           else 'Only an uncertain delivery, or one that was given up, is decided; requeue the job of an abandoned or cancelled one to send it.'
           end);
  end if;
  update onceward.delivery_private as d
     set state            = v_state,
         ended_at         = case when v_state = d.state then d.ended_at when v_state <> 'pending' then onceward.now() end,
         unclear_since    = null,
         unclear_provider = null,
         decided_by       = onceward.actor(),
         note             = left(trim(p_note), 2000)
   where d.id = p_delivery_id;
  perform onceward.audit('delivery.decided', p_tenant => v_delivery.tenant, p_job_id => p_delivery_id,
    p_entity_type => 'delivery', p_entity_id => p_delivery_id::text, p_before => jsonb_build_object('state', v_delivery.state),
    p_after => jsonb_build_object('state', v_state), p_message => trim(p_note), p_meta => jsonb_build_object('decision', p_decision));
  if v_state = 'pending' then
    perform onceward.requeue(p_delivery_id);
  elsif v_job = 'dead_letter' then
    perform onceward.archive_one(p_delivery_id, 'resolved',
      format('%s: %s (by %s)', v_state, trim(p_note), onceward.actor()));
  end if;
  return v_state;
end;
$$;
comment on function onceward.decide_delivery(uuid, text, text) is
  'Settles an uncertain delivery and its job: sent (it arrived), send_again (it did not, or the risk is taken) or abandon.  One that is abandoned already and whose job is a dead letter is sent again, or left (abandon), which resolves the job.  The note is required.  Returns the new state.';

create or replace function onceward.delivery_content(p_delivery_id uuid)
  returns jsonb
  language plpgsql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant  text;
  v_content jsonb;
begin
  select c.tenant, c.content into v_tenant, v_content
    from onceward.delivery_content_private as c where c.id = p_delivery_id;
  if not found then
    perform onceward.no_such_delivery(p_delivery_id);
  end if;
  perform onceward.check_tenant(v_tenant);
  return v_content;
end;
$$;
comment on function onceward.delivery_content(uuid) is 'What a delivery sends, and to whom.';
