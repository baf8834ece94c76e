-- What the public sees: released batches, without anything that is the company's own.

create or replace view raw_ops.public_batches with (security_barrier = true) as
select b.public_batch_id, b.status, coalesce(b.label_texts ->> 'name', p.name) as product_name, b.expiry_date as best_before, b.released_at,
       f.version as formulation_version, f.name as formulation_name, f.shopify_page_url as formulation_url
  from raw_ops.batches as b
  join raw_ops.products as p on p.id = b.product_id
  join raw_ops.formulations as f on f.id = b.formulation_id
 where b.status = 'RELEASED';
comment on view raw_ops.public_batches is 'Released batches as customers see them.';

create or replace view raw_ops.public_lab_results with (security_barrier = true) as
select b.public_batch_id, r.parameter, l.plain_language, r.method, r.result, r.limit_value, r.passed, r.lab_name,
       r.certificate_reference, r.analysis_date
  from raw_ops.lab_results as r
  join raw_ops.lab_parameters as l on l.parameter = r.parameter
  join raw_ops.batches as b on b.id = r.batch_id
 where b.status = 'RELEASED' and r.superseded_at is null;
comment on view raw_ops.public_lab_results is 'The results of released batches, with a line for everybody.';

create or replace function raw_ops.fn_get_latest_released_batch_v1()
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select coalesce(
    (select jsonb_build_object('found', true, 'public_batch_id', b.public_batch_id, 'released_at', b.released_at)
       from raw_ops.batches as b where b.status = 'RELEASED' order by b.released_at desc, b.id limit 1),
    jsonb_build_object('found', false))
$$;
comment on function raw_ops.fn_get_latest_released_batch_v1() is 'The batch that was released last: {found, public_batch_id, released_at}.';

-- By the code on the pouch or by the public id; upper and lower case, spaces and dashes do not matter, nor whether PR- stands
-- before the public id.  A recalled batch was on sale, and who has a pouch of it must get to its warning: it is named, and not found.
-- What was never released looks like what does not exist.
create or replace function raw_ops.fn_search_batch_v1(p_code text)
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  with given as (
    select upper(regexp_replace(left(coalesce(p_code, ''), 60), '\s', '', 'g')) as code,
           upper(regexp_replace(left(coalesce(p_code, ''), 60), '[\s‐‑–—−-]', '', 'g')) as bare
  ), wanted as (
    select array[g.code, regexp_replace(g.bare, '^PR(\d{6})(\d{3,})$', 'PR-\1-\2')] as codes,
           'PR-' || case when length(g.bare) = 10 and g.bare like 'PR%' then substr(g.bare, 3) else g.bare end as public_id
      from given as g
  )
  select coalesce(
    (select jsonb_build_object('found', b.status = 'RELEASED', 'status', b.status, 'public_batch_id', b.public_batch_id)
       from raw_ops.batches as b, wanted as w
      where (b.status = 'RELEASED' or raw_ops.fn_is_recalled(b)) and (b.batch_code = any (w.codes) or b.public_batch_id = w.public_id)
      limit 1),
    jsonb_build_object('found', false, 'status', null, 'public_batch_id', null))
$$;
comment on function raw_ops.fn_search_batch_v1(text) is
  'Looks a batch up by batch code or public id: {found, status, public_batch_id}.  Found are released ones only; a recalled one is not found and has its status and public_batch_id, so that its warning can be shown.';

-- For the program that serves the page: it tells apart what is tested, rejected, recalled and unknown.  Nobody outside learns a reason.
create or replace function raw_ops.fn_get_proof_page_v1(p_public_batch_id text)
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('found', true, 'status', b.status, 'public_batch_id', b.public_batch_id,
    'brand', raw_ops.fn_label_texts(b) -> 'brand') || case b.status
    when 'RELEASED' then jsonb_build_object('proof_url', b.proof_url, 'batch', to_jsonb(v),
      'product', raw_ops.fn_label_texts(b) - array['sku', 'label_name', 'brand'],
      'formulation', (select jsonb_build_object('version', f.version, 'name', f.name, 'description', f.description,
                                                'url', f.shopify_page_url, 'fediaf_verified', f.fediaf_verified)
                        from raw_ops.formulations as f where f.id = b.formulation_id),
      'results', (
        select coalesce(jsonb_agg(to_jsonb(r) - 'public_batch_id' order by l.place), '[]')
          from raw_ops.public_lab_results as r join raw_ops.lab_parameters as l on l.parameter = r.parameter
         where r.public_batch_id = b.public_batch_id),
      'certificate_path', (select r.certificate_pdf_url from raw_ops.lab_results as r
        where r.batch_id = b.id and r.superseded_at is null and r.certificate_pdf_url is not null order by r.recorded_at desc limit 1))
    when 'QA_HOLD' then jsonb_build_object('message', 'This batch is undergoing safety testing. Results will be published once verified.')
    else case when raw_ops.fn_is_recalled(b)
      then jsonb_build_object('recalled', true, 'message', 'We have recalled this batch. Do not feed it.', 'recalled_at', (
        select h.changed_at from raw_ops.batch_status_history as h
         where h.batch_id = b.id and h.new_status = 'REJECTED' order by h.changed_at desc limit 1))
      else jsonb_build_object('message', 'This batch did not pass our safety requirements.')
      end
    end
    from raw_ops.batches as b
    left join raw_ops.public_batches as v on v.public_batch_id = b.public_batch_id
   where b.public_batch_id = p_public_batch_id
  union all
  select jsonb_build_object('found', false, 'status', null, 'message', 'Batch not found.')
   where not exists (select from raw_ops.batches as b where b.public_batch_id = p_public_batch_id)
$$;
comment on function raw_ops.fn_get_proof_page_v1(text) is 'Everything that the page of a batch shows, by its status.';

-- What every public page needs, and the home page shows: the brand, its address, the batch that was released last.
create or replace function raw_ops.fn_get_proof_home_v1()
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'brand', raw_ops.fn_brand(),
    'contact_email', nullif(trim(raw_ops.fn_config('contact_email')), ''),
    'base_url', rtrim(raw_ops.fn_config('proof_base_url'), '/'),
    'released', (select count(*) from raw_ops.batches as b where b.status = 'RELEASED'),
    'latest', (select to_jsonb(v) from raw_ops.public_batches as v order by v.released_at desc, v.public_batch_id limit 1))
$$;
comment on function raw_ops.fn_get_proof_home_v1() is 'What the home page of the public host shows: {brand, contact_email, base_url, released, latest}.';

-- One more in a window, unless it is full.
create or replace function raw_ops.fn_take_event_place(p_bucket text, p_window interval, p_most integer)
  returns boolean
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into raw_ops.proof_event_counters as c (bucket, window_start, events)
  values (p_bucket, date_bin(p_window, onceward.now(), timestamptz '2000-01-01 00:00:00+00'), 1)
      on conflict (bucket, window_start) do update set events = c.events + 1 where c.events < p_most;
  return found;
end;
$$;

-- The only way in.  p_visitor is a hash that the page's server makes, new every day; it is counted and not kept.
create or replace function raw_ops.fn_record_proof_page_event_v1(
  p_event text, p_public_batch_id text default null, p_meta jsonb default '{}', p_visitor text default null
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_problem text := case
    when p_event is null or p_event not in
      ('page_view', 'qr_scan', 'search', 'share_whatsapp', 'share_email', 'share_copy', 'share_native', 'certificate_click', 'formulation_click')
      then 'event is not known'
    when p_public_batch_id is not null and p_public_batch_id <> 'sample'
         and not exists (select from raw_ops.batches as b where b.public_batch_id = p_public_batch_id and b.status = 'RELEASED')
      then 'batch is not known'
    when jsonb_typeof(p_meta) is distinct from 'object' or octet_length(p_meta::text) > 500
         or exists (select from jsonb_each(p_meta) as m where jsonb_typeof(m.value) in ('object', 'array'))
      then 'meta must be a flat object of at most 500 bytes'
    when length(p_visitor) > 100 then 'visitor is too long'
  end;
begin
  if v_problem is not null then
    return jsonb_build_object('accepted', false, 'reason', v_problem);
  end if;
  -- In one order for everybody, so that nobody waits in a circle; a full bucket takes nothing from the others that matters.
  if not raw_ops.fn_take_event_place('visitor:' || md5(coalesce(p_visitor, 'unknown')), interval '1 minute', 30)
     or not raw_ops.fn_take_event_place('all by minute', interval '1 minute', 600)
     or not raw_ops.fn_take_event_place('all by day', interval '1 day', 50000) then
    return jsonb_build_object('accepted', false, 'reason', 'too many events');
  end if;
  insert into raw_ops.proof_page_events (public_batch_id, event, meta) values (p_public_batch_id, p_event, p_meta);
  return jsonb_build_object('accepted', true);
end;
$$;
comment on function raw_ops.fn_record_proof_page_event_v1(text, text, jsonb, text) is
  'Records what a visitor did on a proof page: {accepted}.  At most 30 a minute per visitor, 600 a minute and 50000 a day in all; nobody outside can read them.';

-- Codes follow each other, so whoever could ask without end would learn which there are.
create or replace function raw_ops.fn_take_search_place_v1(p_visitor text)
  returns boolean
  language sql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
  select raw_ops.fn_take_event_place('search:' || md5(coalesce(p_visitor, 'unknown')), interval '1 minute', 10)
     and raw_ops.fn_take_event_place('search by hour:' || md5(coalesce(p_visitor, 'unknown')), interval '1 hour', 40)
     and raw_ops.fn_take_event_place('searches by minute', interval '1 minute', 300)
$$;
comment on function raw_ops.fn_take_search_place_v1(text) is
  'Whether a visitor may search once more: at most 10 a minute and 40 an hour each, 300 a minute in all.';
