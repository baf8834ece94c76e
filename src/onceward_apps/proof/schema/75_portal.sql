-- What the operations portal shows and changes beside the functions of the contract.

-- One row per batch, with its job.
create or replace view raw_ops.portal_batches as
select b.id, b.batch_code, b.public_batch_id, b.status, b.produced_at, b.expiry_date, b.kg_produced, b.proof_url, b.qr_image_url,
       b.label_pdf_url, b.released_at, b.created_at, b.product_id, p.name as product_name, f.version as formulation_version,
       f.name as formulation_name, j.id as job_id, j.state as job_state, j.attempts, j.max_attempts, j.last_error, j.error_category,
       j.processing_duration_ms, j.qr_generated, j.qr_uploaded, j.label_generated, j.label_uploaded, j.email_sent,
       raw_ops.fn_is_recalled(b) as recalled, b.place
  from raw_ops.batches as b
  join raw_ops.products as p on p.id = b.product_id
  join raw_ops.formulations as f on f.id = b.formulation_id
  left join raw_ops.proof_jobs as j on j.batch_id = b.id;
comment on view raw_ops.portal_batches is 'Batches with the state of their proof job, as the operations portal lists them.';

create or replace function raw_ops.fn_get_portal_batch_v1(p_batch_id uuid)
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
  set jit = off
as $$
  select to_jsonb(b) || jsonb_build_object(
    'verdict', raw_ops.fn_release_verdict(b.id),
    'missing_assets', to_jsonb(raw_ops.fn_missing_assets(b.id)),
    'email', raw_ops.fn_copacker_email_v1(b.id),
    'steps', (select coalesce(jsonb_object_agg(s.name, s.finished_at), '{}') from onceward.steps as s
               where s.job_id = b.job_id and s.state = 'done'),
    'results', (select coalesce(jsonb_agg(to_jsonb(r) || jsonb_build_object('plain_language', l.plain_language, 'is_required', l.is_required)
                                          order by l.place), '[]')
                  from raw_ops.lab_results as r join raw_ops.lab_parameters as l on l.parameter = r.parameter
                 where r.batch_id = b.id and r.superseded_at is null),
    'corrected', (select count(*) from raw_ops.lab_results as r where r.batch_id = b.id and r.superseded_at is not null),
    'history', (select jsonb_agg(to_jsonb(h) order by h.changed_at, h.id) from raw_ops.batch_status_history as h where h.batch_id = b.id),
    'events', (select coalesce(jsonb_agg(to_jsonb(e) order by e.created_at desc, e.message), '[]')
                 from (select * from raw_ops.ops_events as e where e.entity_id = b.id order by e.created_at desc limit 50) as e),
    'views', (select count(*) from raw_ops.proof_page_events as v where v.public_batch_id = b.public_batch_id and v.event in ('page_view', 'qr_scan')))
    from raw_ops.portal_batches as b where b.id = p_batch_id
$$;
comment on function raw_ops.fn_get_portal_batch_v1(uuid) is 'Everything that the portal shows of a batch; null when there is none.';

create or replace function raw_ops.fn_update_product_v1(
  p_product_id uuid, p_label_name text, p_description text, p_net_weight_g integer, p_ingredients text
)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_before  raw_ops.products;
  v_problem text := case
    when trim(coalesce(p_label_name, '')) = '' then 'label_name is required'
    when trim(coalesce(p_description, '')) = '' then 'description is required'
    when trim(coalesce(p_ingredients, '')) = '' then 'ingredients is required'
    when p_net_weight_g is null or p_net_weight_g not between 1 and 100000 then 'net_weight_g must be between 1 and 100000'
    when length(p_label_name) > 100 or length(p_description) > 500 or length(p_ingredients) > 4000 then 'the texts are too long'
  end;
begin
  if v_problem is not null then
    return raw_ops.fn_refusal(v_problem);
  end if;
  select * into v_before from raw_ops.products as p where p.id = p_product_id for update;
  if not found then
    return raw_ops.fn_refusal('Product not found');
  end if;
  update raw_ops.products as p
     set label_name = trim(p_label_name), description = trim(p_description), net_weight_g = p_net_weight_g,
         ingredients = trim(p_ingredients), updated_at = onceward.now()
   where p.id = p_product_id;
  perform raw_ops.fn_log_event('product', p_product_id, 'INFO', 'Label texts changed of product ' || v_before.sku,
    jsonb_build_object('sku', v_before.sku, 'before', to_jsonb(v_before)));
  perform raw_ops.fn_audit('proof.product_changed', v_before.sku, 'Label texts changed of product ' || v_before.sku,
    jsonb_build_object('label_name', v_before.label_name, 'net_weight_g', v_before.net_weight_g),
    jsonb_build_object('label_name', trim(p_label_name), 'net_weight_g', p_net_weight_g), 'product');
  return jsonb_build_object('success', true, 'sku', v_before.sku);
end;
$$;
comment on function raw_ops.fn_update_product_v1(uuid, text, text, integer, text) is
  'Changes what labels say of a product.  Labels that are drawn stay as they are.';
