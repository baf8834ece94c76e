-- Channels: whom alerts are told, by which kind of delivery, from which severity on.

create or replace function onceward.no_such_channel(p_name text)
  returns void
  language plpgsql stable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'channel "%" does not exist', onceward.shown(p_name)
    using errcode = 'OW040',
          detail  = format('Known channels: %s.', coalesce(
            (select string_agg(c.name, ', ' order by c.name) from onceward.channel_private as c
              where coalesce(c.tenant, '*') = onceward.current_tenant() or onceward.sees_all_tenants()
                 or onceward.current_tenant() is null), '(none)')),
          hint    = 'Add it with "onceward channel add".';
end;
$$;

create or replace function onceward.add_channel(
  p_name     text,
  p_kind     text,
  p_target   jsonb,
  p_severity text default 'warning',
  p_tenant   text default null
)
  returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := coalesce(p_tenant, nullif(onceward.current_tenant(), '*'));
  v_old    onceward.channel_private;
  v_new    onceward.channel_private;
  v_moved  boolean;
begin
  if p_name is null or p_name !~ '^[A-Za-z0-9_.:-]{1,100}$' then
    perform onceward.bad_argument('name', p_name, 'must be 1 to 100 letters, digits or . _ : -');
  end if;
  perform onceward.check_severity('severity', p_severity);
  if v_tenant is not null then
    perform onceward.check_tenant(v_tenant, 'channel');
  end if;
  -- Checked now, because nobody is there to mend it when it is needed.
  if p_target is null or jsonb_typeof(p_target) <> 'object' then
    raise exception 'target must be a JSON object' using errcode = 'OW008', detail = 'Nothing was written.',
      hint = 'Email: {"to": …}; slack: {} or {"to": …}; telegram: {"chat_id": …}; webhook: {"url": …}.';
  end if;
  perform onceward.check_delivery(p_kind, onceward.alert_content(p_kind, p_target, 'subject', 'text'));
  select * into v_old from onceward.channel_private as c where c.name = p_name for update;
  if found then
    perform onceward.check_tenant(coalesce(v_old.tenant, '*'), 'channel');
  end if;
  insert into onceward.channel_private as c (name, kind, tenant, severity, created_at, created_by)
  values (p_name, p_kind, v_tenant, p_severity, onceward.now(), onceward.actor())
      on conflict (name) do update
     set kind = excluded.kind, tenant = excluded.tenant, severity = excluded.severity
  returning c.* into v_new;
  insert into onceward.channel_target_private as t (name, target) values (p_name, p_target)
      on conflict (name) do update set target = excluded.target where t.target <> excluded.target;
  v_moved := found and v_old.name is not null;
  -- Of an address only that it was changed.
  perform onceward.audit_setting('channel', p_name, onceward.channel_settings(v_old),
    onceward.channel_settings(v_new) || case when v_moved then '{"target": "another"}' else '{}' end::jsonb, v_tenant);
  return v_old.name is null;
end;
$$;
comment on function onceward.add_channel(text, text, jsonb, text, text) is
  'Adds a channel, or changes one.  p_target is the content of the delivery without its text: {"to": …} for email, {} or {"to": …} for slack, {"chat_id": …} for telegram, {"url": …, "secret": …} for webhook.  It is told of alerts of at least p_severity; with a tenant, of that tenant''s only; of those that are open already when nobody was told of them before.  Returns whether it is new.';

create or replace function onceward.unsent_kinds()
  returns table (kind text, why text, waiting integer, delivery_id uuid)
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  with newest as materialized (
    select d.id, d.kind, d.tenant from onceward.delivery_private as d
     where d.state in ('pending', 'sending') order by d.created_at desc limit 1000
  )
  select n.kind, 'the worker that took it' || substr(min(a.message), length('this worker') + 1), count(*)::integer, (array_agg(n.id order by n.id desc))[1]
    from newest as n
    join onceward.job_private as j on j.id = n.id and j.lane = 'deliveries' and j.state = 'scheduled'
    join onceward.attempt_private as a on a.job_id = j.id and a.epoch = j.epoch and a.retry_at = j.run_at
   where a.outcome = 'snoozed' and a.message like 'this worker has no provider for %' and onceward.sees_tenant(n.tenant)
   group by n.kind order by n.kind
$$;
comment on function onceward.unsent_kinds() is
  'Kinds of deliveries that were put off because the worker that took them has no provider for them: why, how many of the newest thousand wait, and the last of them.';

create or replace function onceward.drop_channel(p_name text)
  returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_old onceward.channel_private;
begin
  select * into v_old from onceward.channel_private as c where c.name = p_name for update;
  if not found then
    perform onceward.no_such_channel(p_name);
  end if;
  perform onceward.check_tenant(coalesce(v_old.tenant, '*'), 'channel');
  delete from onceward.channel_target_private as t where t.name = p_name;
  delete from onceward.channel_private as c where c.name = p_name;
  update onceward.monitor_private as m
     set channels = nullif(array_remove(m.channels, p_name), '{}')
   where p_name = any (m.channels);
  perform onceward.audit_setting('channel', p_name, onceward.channel_settings(v_old), null, v_old.tenant);
end;
$$;
comment on function onceward.drop_channel(text) is
  'Removes a channel.  A monitor that named no other tells all channels from then on.';

create or replace function onceward.test_channel(p_name text)
  returns uuid
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_channel record;
  v_session text := coalesce(current_setting('onceward.tenant', true), '');
  v_id      uuid;
begin
  select c.kind, c.tenant, t.target into v_channel
    from onceward.channel_private as c join onceward.channel_target_private as t on t.name = c.name
   where c.name = p_name;
  if not found then
    perform onceward.no_such_channel(p_name);
  end if;
  perform onceward.check_tenant(coalesce(v_channel.tenant, '*'), 'channel');
  perform set_config('onceward.tenant', '', true);
  select d.delivery_id into v_id
    from onceward.enter_delivery(
      v_channel.kind, format('alert:test:%s:%s', p_name, onceward.new_id()),
      onceward.alert_content(v_channel.kind, v_channel.target, format('Test of channel %s', p_name),
        format('This is a test of channel %s, asked for by %s.', p_name, onceward.actor())),
      coalesce(v_channel.tenant, 'onceward'), null, null, 0, null, null, null, true) as d;
  perform set_config('onceward.tenant', v_session, true);
  perform onceward.audit('channel.tested', p_tenant => v_channel.tenant, p_entity_type => 'channel', p_entity_id => p_name,
    p_meta => jsonb_build_object('delivery', v_id));
  return v_id;
end;
$$;
comment on function onceward.test_channel(text) is 'Sends a test message through a channel.  Returns the id of the delivery.';
