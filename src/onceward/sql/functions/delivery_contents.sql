-- Contents of deliveries are checked at the edge.  Errors name the field and the rule, never the value: it may be private.

create or replace function onceward.bad_content(p_field text, p_rule text, p_hint text default null)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception '% of the content %', p_field, p_rule
    using errcode = 'OW008',
          detail  = 'Nothing was written.',
          hint    = coalesce(p_hint, format('Correct %s and call again.', p_field));
end;
$$;

-- A text field: of this length, and (a header) without control characters.
create or replace function onceward.check_text(
  p_content jsonb, p_field text, p_most integer, p_required boolean, p_header boolean default false
)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_content -> p_field is null or jsonb_typeof(p_content -> p_field) = 'null' then
    if p_required then
      perform onceward.bad_content(p_field, 'is missing');
    end if;
    return;
  end if;
  if jsonb_typeof(p_content -> p_field) <> 'string' or length(p_content ->> p_field) not between 1 and p_most then
    perform onceward.bad_content(p_field, format('must be a text of 1 to %s characters', p_most));
  end if;
  if p_header and p_content ->> p_field ~ '[[:cntrl:]\u0080-\u009f\u2028\u2029]' then
    perform onceward.bad_content(p_field, 'must not contain control characters');
  end if;
end;
$$;

create or replace function onceward.check_address(p_content jsonb, p_field text, p_required boolean)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  perform onceward.check_text(p_content, p_field, 254, p_required, true);
  if p_content ->> p_field !~ '^[^][:space:][:cntrl:]@<>(),;:"\\[]+@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$' then
    perform onceward.bad_content(p_field, 'must be one address such as name@example.com',
      'Names go into a field of their own; more recipients are more deliveries.');
  end if;
end;
$$;

create or replace function onceward.check_delivery(p_kind text, p_content jsonb)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_most   constant integer := 8388608;
  v_fields text[] := case p_kind
    when 'email' then array['to', 'to_name', 'from', 'from_name', 'reply_to', 'subject', 'text', 'html', 'attachments']
    when 'slack' then array['to', 'text', 'blocks']
    when 'telegram' then array['chat_id', 'text', 'photo', 'parse_mode', 'silent']
    when 'webhook' then array['url', 'payload', 'secret'] end;
  v_field  text;
begin
  if v_fields is null then
    perform onceward.bad_argument('kind', p_kind, 'must be email, slack, telegram or webhook');
  end if;
  if p_content is null or jsonb_typeof(p_content) <> 'object' then
    raise exception 'content must be a JSON object' using errcode = 'OW008', detail = 'Nothing was written.',
      hint = format('Its fields: %s.', array_to_string(v_fields, ', '));
  end if;
  if octet_length(p_content::text) > v_most then
    raise exception 'content must be at most % bytes, got %', v_most, octet_length(p_content::text)
      using errcode = 'OW003', detail = 'Nothing was written.', hint = 'Send a link instead of large attachments.';
  end if;
  select k into v_field from jsonb_object_keys(p_content) as k where k <> all (v_fields) limit 1;
  if found then
    perform onceward.bad_content(quote_ident(left(v_field, 50)), 'is not known',
      format('Fields of %s: %s.', p_kind, array_to_string(v_fields, ', ')));
  end if;
  case p_kind
    when 'email' then perform onceward.check_email(p_content);
    when 'slack' then
      perform onceward.check_text(p_content, 'to', 100, false, true);
      perform onceward.check_text(p_content, 'text', 40000, true);
      if p_content ? 'blocks' and jsonb_typeof(p_content -> 'blocks') <> 'array' then
        perform onceward.bad_content('blocks', 'must be a list');
      end if;
    when 'telegram' then
      if coalesce(jsonb_typeof(p_content -> 'chat_id'), '') not in ('string', 'number')
         or p_content ->> 'chat_id' !~ '^(-?[0-9]{1,20}|@[A-Za-z0-9_]{1,64})$' then
        perform onceward.bad_content('chat_id', 'must be a number, or the @name of a channel');
      end if;
      -- Under a picture, Telegram shows less.
      perform onceward.check_text(p_content, 'text', case when p_content ? 'photo' then 1024 else 4096 end, true);
      if p_content ? 'photo' then
        perform onceward.check_attachment(p_content -> 'photo', 'photo');
      end if;
      if p_content ? 'parse_mode' and (p_content ->> 'parse_mode') is distinct from 'HTML'
         and (p_content ->> 'parse_mode') is distinct from 'MarkdownV2' then
        perform onceward.bad_content('parse_mode', 'must be HTML or MarkdownV2');
      end if;
      if p_content ? 'silent' and jsonb_typeof(p_content -> 'silent') <> 'boolean' then
        perform onceward.bad_content('silent', 'must be true or false');
      end if;
    when 'webhook' then
      perform onceward.check_text(p_content, 'url', 2000, true, true);
      perform onceward.check_text(p_content, 'secret', 100, false, true);
      if p_content ->> 'url' !~ '^https?://[^/?#@[:space:]]+([/?][^#[:space:]]*)?$' then
        perform onceward.bad_content('url', 'must be an https URL without user name and fragment');
      end if;
      if not p_content ? 'payload' then
        perform onceward.bad_content('payload', 'is missing');
      end if;
  end case;
end;
$$;

-- One file: its name, type and content.
create or replace function onceward.check_attachment(p_part jsonb, p_field text)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if jsonb_typeof(p_part) <> 'object' then
    perform onceward.bad_content(p_field, 'must have filename, type and content');
  end if;
  perform onceward.check_text(p_part, 'filename', 200, true, true);
  perform onceward.check_text(p_part, 'type', 100, false, true);
  if p_part ->> 'filename' ~ '[/\\]' then
    perform onceward.bad_content('filename', 'must not contain a slash');
  end if;
  if p_part ->> 'type' !~ '^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$' then
    perform onceward.bad_content('type', 'must be a media type such as application/pdf');
  end if;
  perform onceward.check_text(p_part, 'content_id', 100, false, true);
  if p_part ->> 'content_id' !~ '^[A-Za-z0-9._-]+$' then
    perform onceward.bad_content('content_id', 'must be letters, digits, dots, dashes or underscores');
  end if;
  if coalesce(jsonb_typeof(p_part -> 'content'), '') <> 'string' or p_part ->> 'content' !~ '^[A-Za-z0-9+/]*={0,2}$' then
    perform onceward.bad_content('content', 'must be base64');
  end if;
end;
$$;

create or replace function onceward.check_email(p_content jsonb)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_part jsonb;
begin
  perform onceward.check_address(p_content, 'to', true);
  perform onceward.check_address(p_content, 'from', false);
  perform onceward.check_address(p_content, 'reply_to', false);
  perform onceward.check_text(p_content, 'to_name', 200, false, true);
  perform onceward.check_text(p_content, 'from_name', 200, false, true);
  perform onceward.check_text(p_content, 'subject', 500, true, true);
  perform onceward.check_text(p_content, 'text', 2000000, false);
  perform onceward.check_text(p_content, 'html', 4000000, false);
  if p_content ->> 'text' is null and p_content ->> 'html' is null then
    perform onceward.bad_content('text', 'is missing', 'Give text, html or both.');
  end if;
  if not p_content ? 'attachments' then
    return;
  end if;
  if jsonb_typeof(p_content -> 'attachments') <> 'array' then
    perform onceward.bad_content('attachments', 'must be a list');
  end if;
  for v_part in select a from jsonb_array_elements(p_content -> 'attachments') as a
  loop
    perform onceward.check_attachment(v_part, 'attachments');
  end loop;
end;
$$;

-- Whom to tell: checked now, because nobody is there to mend it when it is needed.
create or replace function onceward.check_alerts_to(p_alerts_to jsonb)
  returns void
  language plpgsql immutable
  set search_path = pg_catalog, pg_temp
as $$
begin
  if p_alerts_to is null then
    return;
  end if;
  if jsonb_typeof(p_alerts_to) <> 'object' or jsonb_typeof(p_alerts_to -> 'content') is distinct from 'object'
     or p_alerts_to ->> 'kind' is null then
    raise exception 'alerts_to must be an object of kind and content' using errcode = 'OW008',
      detail = 'Nothing was written.', hint = 'Write it like {"kind": "slack", "content": {}}; the text is added.';
  end if;
  perform onceward.check_delivery(p_alerts_to ->> 'kind',
    onceward.alert_content(p_alerts_to ->> 'kind', p_alerts_to -> 'content', 'subject', 'text'));
end;
$$;
