-- Batches: codes without gaps, public ids that tell nothing, and a record of every failure.

-- A line of the audit trail, with who acts.
create or replace function raw_ops.fn_log_event(
  p_entity_type text, p_entity_id uuid, p_kind text, p_message text, p_meta jsonb default '{}'
)
  returns void
  language sql volatile
  set search_path = pg_catalog, pg_temp
as $$
  insert into raw_ops.ops_event_log (entity_type, entity_id, kind, message, meta)
  values (p_entity_type, p_entity_id, p_kind, p_message, p_meta || jsonb_build_object('by', onceward.actor()))
$$;

-- What people decide is in the engine's audit log as well, which is sealed.
create or replace function raw_ops.fn_audit(
  p_kind text, p_entity_id text, p_message text, p_before jsonb default null, p_after jsonb default null, p_entity_type text default 'batch'
)
  returns void
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_tenant text := raw_ops.fn_be_tenant('default');
begin
  perform onceward.record_event(p_kind, left(p_message, 2000), p_entity_type, p_entity_id, p_before, p_after, p_tenant => 'default');
  perform raw_ops.fn_be_tenant(v_tenant);
end;
$$;

create or replace function raw_ops.fn_refusal(p_error text, p_more jsonb default '{}')
  returns jsonb
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('success', false, 'error', p_error) || p_more
$$;

create or replace function raw_ops.fn_config(p_key text)
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select c.value from raw_ops.config as c where c.key = p_key
$$;

-- What labels and pages say of the brand today.
create or replace function raw_ops.fn_brand()
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_object_agg(c.key, c.value)
    from raw_ops.config as c
   where c.key in ('brand_name', 'brand_tagline', 'brand_promise', 'made_in', 'company_details')
$$;

-- The proof system is one tenant of the engine.  Sets it for what follows and returns what it was, to be put back: the
-- caller's session may act for another one.
create or replace function raw_ops.fn_be_tenant(p_tenant text)
  returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_before text := coalesce(current_setting('onceward.tenant', true), '');
begin
  perform set_config('onceward.tenant', p_tenant, true);
  return v_before;
end;
$$;

-- PR- and eight letters or digits: 40 random bits.  The letters I, L, O and U are left out, because people copy these by hand.
create or replace function raw_ops.fn_new_public_batch_id()
  returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  -- The first five bytes of a random UUID are random throughout.
  v_bits text := ('x' || encode(substring(uuid_send(gen_random_uuid()) from 1 for 5), 'hex'))::bit(40)::text;
  v_id   text := 'PR-';
begin
  for v_place in 0 .. 7 loop
    v_id := v_id || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                           substr(v_bits, v_place * 5 + 1, 5)::bit(5)::integer + 1, 1);
  end loop;
  return v_id;
end;
$$;

create or replace function raw_ops.fn_set_public_batch_id()
  returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  while new.public_batch_id is null loop
    new.public_batch_id := raw_ops.fn_new_public_batch_id();
    if exists (select from raw_ops.batches as b where b.public_batch_id = new.public_batch_id) then
      new.public_batch_id := null;
    end if;
  end loop;
  return new;
end;
$$;
create or replace trigger trigger_set_public_batch_id
  before insert on raw_ops.batches
  for each row execute function raw_ops.fn_set_public_batch_id();

-- Every status is in the history, whoever changes it and however.
create or replace function raw_ops.fn_record_batch_status()
  returns trigger
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  insert into raw_ops.batch_status_history (batch_id, old_status, new_status, reason, changed_by)
  values (new.id, case when tg_op = 'UPDATE' then old.status end, new.status,
          nullif(current_setting('raw_ops.reason', true), ''), onceward.actor());
  return new;
end;
$$;
create or replace trigger trigger_record_batch_status
  after insert or update of status on raw_ops.batches
  for each row execute function raw_ops.fn_record_batch_status();

-- The next code of a date.  The row of the date is locked until the batch is committed: that is what makes numbers without
-- gaps, and two who create for one date wait for each other.
create or replace function raw_ops.fn_next_batch_code(p_production_date date)
  returns text
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_stem   text := 'PR-' || to_char(p_production_date, 'YYMMDD') || '-';
  v_number integer;
begin
  insert into raw_ops.batch_counters as c (production_date, last_number)
  -- The first one of a date goes on after codes that were brought along from elsewhere.
  values (p_production_date, 1 + coalesce(
    (select max(substring(b.batch_code from '\d+$')::integer) from raw_ops.batches as b
      where b.produced_at = p_production_date and b.batch_code ~ ('^' || v_stem || '\d{1,9}$')), 0))
      on conflict (production_date) do update set last_number = c.last_number + 1
  returning c.last_number into v_number;
  -- Not lpad alone, which would cut the thousandth.
  return v_stem || case when v_number < 1000 then lpad(v_number::text, 3, '0') else v_number::text end;
end;
$$;

-- What is wrong with the input, or null.
create or replace function raw_ops.fn_check_batch_input(p_production_date date, p_kg_produced numeric)
  returns text
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select case
    when p_production_date is null then 'production_date is required'
    when p_production_date not between date '2000-01-01' and date '2099-12-31'
      then format('production_date must lie between 2000-01-01 and 2099-12-31, got %s', p_production_date)
    -- NaN is larger than every number.
    when p_kg_produced is null or p_kg_produced = 'NaN' or p_kg_produced <= 0 then 'kg_produced must be positive'
    when p_kg_produced >= 1e6 then format('kg_produced must be less than 1000000, got %s', p_kg_produced)
  end
$$;

create or replace function raw_ops.fn_create_batch_v1(p_production_date date, p_kg_produced numeric)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_error  text := raw_ops.fn_check_batch_input(p_production_date, p_kg_produced);
  v_answer jsonb;
begin
  if v_error is null then
    begin
      v_answer := raw_ops.fn_insert_batch(p_production_date, p_kg_produced);
    exception
      when others then
        -- Conflicts and an ailing server are not the caller's fault: whoever repeats the call may succeed.
        if left(sqlstate, 2) in ('40', '53', '55', '57', '58', 'XX') then
          raise;
        end if;
        v_error := sqlerrm;
    end;
  end if;
  if v_error is null then
    return v_answer;
  end if;
  -- Outside the block that failed, so that it stays.
  perform raw_ops.fn_log_event('batch', null, 'ERROR', 'Batch creation failed: ' || v_error,
    jsonb_build_object('production_date', p_production_date, 'kg_produced', p_kg_produced::text));
  return raw_ops.fn_refusal(v_error);
end;
$$;
comment on function raw_ops.fn_create_batch_v1(date, numeric) is
  'Creates a batch in QA_HOLD with its code, public id and proof job, in one transaction.  Returns {success, batch_id, batch_code, public_batch_id, proof_url, expiry_date}, or {success: false, error}; a refusal is in ops_events.';

create or replace function raw_ops.fn_insert_batch(p_production_date date, p_kg_produced numeric)
  returns jsonb
  language plpgsql volatile
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_batch       raw_ops.batches;
  v_formulation uuid;
  v_product     uuid;
begin
  select f.id into v_formulation
    from raw_ops.formulations as f
   where f.effective_from <= p_production_date
     and (f.effective_until is null or f.effective_until >= p_production_date)
   order by f.effective_from desc, f.version desc
   limit 1;
  if not found then
    raise exception 'No active formulation found for date %', p_production_date;
  end if;
  select p.id into v_product
    from raw_ops.products as p
   order by p.sku = raw_ops.fn_config('default_product_sku') desc nulls last, p.created_at, p.sku
   limit 1;
  if not found then
    raise exception 'No product found';
  end if;

  insert into raw_ops.batches as b
    (batch_code, produced_at, expiry_date, kg_produced, product_id, formulation_id, status, cogs_per_kg_gbp)
  values
    (raw_ops.fn_next_batch_code(p_production_date), p_production_date, p_production_date + interval '12 months',
     p_kg_produced, v_product, v_formulation, 'QA_HOLD', raw_ops.fn_config('default_cogs_per_kg')::numeric)
  returning * into v_batch;
  update raw_ops.batches as b
     set proof_url = rtrim(raw_ops.fn_config('proof_base_url'), '/') || '/batch/' || b.public_batch_id
   where b.id = v_batch.id
  returning * into v_batch;

  perform raw_ops.fn_log_event('batch', v_batch.id, 'INFO', 'Batch created via Ops Portal',
    jsonb_build_object('batch_code', v_batch.batch_code, 'public_batch_id', v_batch.public_batch_id,
      'kg_produced', p_kg_produced, 'production_date', p_production_date, 'formulation_id', v_formulation));
  perform raw_ops.fn_audit('proof.batch_created', v_batch.batch_code, format('Batch %s created', v_batch.batch_code),
    p_after => jsonb_build_object('production_date', p_production_date, 'kg_produced', p_kg_produced, 'status', 'QA_HOLD'));
  return jsonb_build_object('success', true, 'batch_id', v_batch.id, 'batch_code', v_batch.batch_code,
    'public_batch_id', v_batch.public_batch_id, 'proof_url', v_batch.proof_url, 'expiry_date', v_batch.expiry_date);
end;
$$;

-- Several at once: all of them, or none and what is wrong with which.
create or replace function raw_ops.fn_create_batches_v1(p_batches jsonb)
  returns jsonb
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  v_answer  jsonb;
  v_created jsonb := '[]';
  v_errors  jsonb := '[]';
  v_item    record;
begin
  if jsonb_typeof(p_batches) is distinct from 'array' or jsonb_array_length(p_batches) not between 1 and 500 then
    return raw_ops.fn_refusal('batches must be a list of 1 to 500 batches');
  end if;
  begin
    -- In the order of the dates, whose counters are locked; two who create for the same dates wait, and not in a circle.
    for v_item in
      select b.production_date, b.kg_produced, b.place
        from rows from (jsonb_to_recordset(p_batches) as (production_date date, kg_produced numeric)) with ordinality
             as b (production_date, kg_produced, place)
       order by b.production_date, b.place
    loop
      v_answer := raw_ops.fn_create_batch_v1(v_item.production_date, v_item.kg_produced);
      if (v_answer -> 'success')::boolean then
        update raw_ops.batches as b set place = v_item.place where b.id = (v_answer ->> 'batch_id')::uuid;
        v_created := v_created || (v_answer || jsonb_build_object('row', v_item.place));
      else
        v_errors := v_errors || jsonb_build_object('row', v_item.place, 'error', v_answer ->> 'error');
      end if;
    end loop;
    if jsonb_array_length(v_errors) > 0 then
      raise exception 'some rows are wrong' using errcode = 'P0PRB';
    end if;
  exception
    -- Undoes what the others have made.
    when sqlstate 'P0PRB' then
      return raw_ops.fn_refusal(format('%s of %s rows cannot be created; nothing was', jsonb_array_length(v_errors),
                                       jsonb_array_length(p_batches)), jsonb_build_object('errors', v_errors));
    when datetime_field_overflow or invalid_datetime_format or invalid_text_representation or numeric_value_out_of_range then
      return raw_ops.fn_refusal('batches must have a production_date and kg_produced each: ' || sqlerrm);
  end;
  return jsonb_build_object('success', true, 'created', v_created);
end;
$$;
comment on function raw_ops.fn_create_batches_v1(jsonb) is
  'Creates batches from [{production_date, kg_produced}], all or none: {success, created}, or {success: false, error, errors: [{row, error}]}.';

-- Rejected after it was on sale.  The contract has three statuses; this is the third, with the moment of a release.
create or replace function raw_ops.fn_is_recalled(p_batch raw_ops.batches)
  returns boolean
  language sql immutable
  set search_path = pg_catalog, pg_temp
as $$
  select p_batch.status = 'REJECTED' and p_batch.released_at is not null
$$;

-- What stands on the label of a batch, of its product and of the brand: what it was drawn with, and as long as there is none,
-- what product and brand say today.
create or replace function raw_ops.fn_label_texts(p_batch raw_ops.batches)
  returns jsonb
  language sql stable
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object('sku', p.sku, 'name', p.name, 'label_name', p.label_name, 'description', p.description,
                            'net_weight_g', p.net_weight_g, 'ingredients', p.ingredients, 'brand', raw_ops.fn_brand())
         || coalesce(p_batch.label_texts, '{}')
    from raw_ops.products as p where p.id = p_batch.product_id
$$;

-- Labels of earlier versions, which kept less: from here on, what they do not say does not change any more either.
update raw_ops.batches as b
   set label_texts = raw_ops.fn_label_texts(b)
 where (b.label_pdf_url is not null and b.label_texts is null)
    or not b.label_texts ? 'brand';

-- Everything that label and email say about a batch.
create or replace function raw_ops.fn_get_batch_v1(p_batch_id uuid)
  returns jsonb
  language sql stable security definer
  set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'batch_id', b.id, 'batch_code', b.batch_code, 'public_batch_id', b.public_batch_id, 'status', b.status,
    'produced_at', b.produced_at, 'expiry_date', b.expiry_date, 'kg_produced', b.kg_produced::text,
    'proof_url', b.proof_url, 'qr_image_url', b.qr_image_url, 'label_pdf_url', b.label_pdf_url,
    'product', raw_ops.fn_label_texts(b) - 'brand',
    'formulation', jsonb_build_object('version', f.version, 'name', f.name),
    'brand', raw_ops.fn_label_texts(b) -> 'brand')
    from raw_ops.batches as b
    join raw_ops.formulations as f on f.id = b.formulation_id
   where b.id = p_batch_id
$$;
comment on function raw_ops.fn_get_batch_v1(uuid) is 'What label and email say about a batch; null when there is none.';
