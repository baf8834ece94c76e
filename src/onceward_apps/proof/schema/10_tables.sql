-- Tables of the proof system.  Everything belongs to onceward_owner; programs call functions and read views.
-- The queue has no table of its own: raw_ops.proof_jobs is a view of the engine's jobs.

-- Roles are shared by all databases of a server, and may be there already (Supabase has `anon`).
do $$
begin
  if not exists (select from pg_catalog.pg_roles where rolname = 'anon') then
    create role anon nologin;
  end if;
exception
  when duplicate_object or unique_violation then null;  -- another installer was faster
  when insufficient_privilege then
    raise exception 'role "anon" does not exist'
      using errcode = 'undefined_object', hint = 'Ask an administrator to run: create role anon nologin;';
end;
$$;

create schema if not exists raw_ops authorization onceward_owner;
set local role onceward_owner;

create table if not exists raw_ops.config (
  key        text primary key,
  value      text not null,
  updated_at timestamptz not null default onceward.now()
);
comment on table raw_ops.config is 'Settings that people change without a release.';

create table if not exists raw_ops.products (
  id           uuid primary key default gen_random_uuid(),
  sku          text not null unique,
  name         text not null,
  -- As printed on the pouch.
  label_name   text not null,
  description  text not null,
  net_weight_g integer not null,
  ingredients  text not null,
  created_at   timestamptz not null default onceward.now(),
  updated_at   timestamptz not null default onceward.now(),
  constraint product_weight_positive check (net_weight_g > 0)
);
comment on table raw_ops.products is 'What is sold; the label takes its texts from here.';

create table if not exists raw_ops.formulations (
  id                      uuid primary key default gen_random_uuid(),
  version                 text not null unique,
  name                    text not null,
  description             text,
  effective_from          date not null,
  effective_until         date,
  shopify_page_url        text not null,
  lab_certificate_pdf_url text,
  lab_name                text,
  certificate_reference   text,
  analysis_date           date,
  fediaf_verified         boolean default true,
  created_at              timestamptz not null default onceward.now(),
  updated_at              timestamptz not null default onceward.now(),
  constraint formulation_dates_in_order check (effective_until >= effective_from)
);
comment on table raw_ops.formulations is
  'Formulation versions with effective date ranges; a batch is linked to the one that holds on its production date.';

-- The last number given out for a date.  Taken in the transaction of the batch, so a failure leaves no gap.
create table if not exists raw_ops.batch_counters (
  production_date date primary key,
  last_number     integer not null
);

create table if not exists raw_ops.batches (
  id                   uuid primary key default gen_random_uuid(),
  batch_code           text not null,
  public_batch_id      text not null unique,
  produced_at          date not null,
  expiry_date          date not null,
  kg_produced          numeric not null,
  product_id           uuid not null references raw_ops.products (id),
  formulation_id       uuid not null references raw_ops.formulations (id),
  status               text not null default 'QA_HOLD',
  cogs_per_kg_gbp      numeric,
  proof_url            text,
  qr_image_url         text,
  label_pdf_url        text,
  -- Deprecated: the insert card is the same for every box.
  proof_insert_pdf_url text,
  released_at          timestamptz,
  created_at           timestamptz not null default onceward.now(),
  updated_at           timestamptz not null default onceward.now(),
  constraint batch_status_known check (status in ('QA_HOLD', 'RELEASED', 'REJECTED')),
  constraint batch_released_has_time check (status <> 'RELEASED' or released_at is not null),
  constraint batch_public_id_form check (public_batch_id ~ '^PR-[0-9A-Z]{8}$'),
  constraint batch_kg_positive check (kg_produced > 0 and kg_produced < 1e6)
);
-- What product and brand said when the label was drawn; null before.
alter table raw_ops.batches add column if not exists label_texts jsonb;
-- Among those that were created together; the moment is the same for all of them.
alter table raw_ops.batches add column if not exists place integer not null default 1;
comment on table raw_ops.batches is 'Master batch records.';
create unique index if not exists idx_batches_batch_code on raw_ops.batches (batch_code);
create index if not exists idx_batches_status on raw_ops.batches (status);
create index if not exists idx_batches_released_at on raw_ops.batches (released_at desc) where status = 'RELEASED';
create index if not exists idx_batches_created_at on raw_ops.batches (created_at);
create index if not exists idx_batches_product_id on raw_ops.batches (product_id);
create index if not exists idx_batches_formulation_id on raw_ops.batches (formulation_id);

-- Which engine job makes the proof of which batch.
create table if not exists raw_ops.proof_job_links (
  batch_id   uuid primary key references raw_ops.batches (id),
  job_id     uuid not null unique,
  created_at timestamptz not null default onceward.now()
);

-- Jobs that a program holds through fn_claim_proof_jobs_v1: the epoch of its claim fences what it says later.
create table if not exists raw_ops.proof_claims (
  job_id     uuid primary key,
  epoch      bigint not null,
  worker_id  uuid not null,
  claimed_at timestamptz not null,
  claimed_by text not null
);
create index if not exists idx_proof_claims_worker_id on raw_ops.proof_claims (worker_id);

-- What a lab may report: a line that anybody understands, and whether a batch needs it.
create table if not exists raw_ops.lab_parameters (
  parameter      text primary key,
  plain_language text not null,
  is_required    boolean not null default false,
  place          integer not null
);
insert into raw_ops.lab_parameters (parameter, plain_language, is_required, place) values
  ('Salmonella', 'The bacterium that most often makes pets and people ill. None may be found.', true, 1),
  ('Enterobacteriaceae', 'A family of gut bacteria that shows how clean the kitchen was. Few are allowed.', true, 2),
  ('Listeria monocytogenes', 'A bacterium that also grows in the fridge. None may be found.', false, 3),
  ('E. coli', 'A bacterium that shows contact with waste. Few are allowed.', false, 4)
    on conflict do nothing;

create table if not exists raw_ops.lab_results (
  id                    uuid primary key default gen_random_uuid(),
  batch_id              uuid not null references raw_ops.batches (id),
  parameter             text not null references raw_ops.lab_parameters (parameter),
  method                text not null,
  result                text not null,
  limit_value           text not null,
  passed                boolean not null,
  lab_name              text not null,
  certificate_reference text not null,
  certificate_pdf_url   text,
  analysis_date         date not null,
  recorded_by           text not null,
  recorded_at           timestamptz not null default onceward.now(),
  -- A corrected result stays; the one that counts has none.
  superseded_at         timestamptz
);
comment on table raw_ops.lab_results is 'Lab test results per batch, with those that were corrected.';
create index if not exists idx_lab_results_batch_id on raw_ops.lab_results (batch_id);
create unique index if not exists idx_lab_results_current
  on raw_ops.lab_results (batch_id, parameter) where superseded_at is null;
create index if not exists idx_lab_results_parameter on raw_ops.lab_results (parameter);

create table if not exists raw_ops.batch_status_history (
  id         uuid primary key default gen_random_uuid(),
  batch_id   uuid not null references raw_ops.batches (id),
  old_status text,
  new_status text not null,
  reason     text,
  changed_by text not null,
  changed_at timestamptz not null default onceward.now()
);
comment on table raw_ops.batch_status_history is 'Every status that a batch has had.';
create index if not exists idx_batch_status_history_batch_id on raw_ops.batch_status_history (batch_id, changed_at);

-- What people and functions did.  What became of jobs is read from the engine: raw_ops.ops_events shows both.
create table if not exists raw_ops.ops_event_log (
  id          uuid primary key default gen_random_uuid(),
  entity_type text not null,
  entity_id   uuid,
  kind        text not null,
  message     text not null,
  meta        jsonb not null default '{}',
  created_at  timestamptz not null default onceward.now(),
  constraint ops_event_kind_known check (kind in ('INFO', 'WARNING', 'EXCEPTION', 'ERROR'))
);
create index if not exists idx_ops_event_log_entity on raw_ops.ops_event_log (entity_type, entity_id, created_at);
create index if not exists idx_ops_event_log_created_at on raw_ops.ops_event_log (created_at);

create table if not exists raw_ops.monitoring_runs (
  id              uuid primary key default gen_random_uuid(),
  check_name      text not null,
  status          text not null,
  duration_ms     integer,
  alert_triggered boolean not null default false,
  result_summary  text,
  result_json     jsonb,
  error_message   text,
  created_at      timestamptz not null default onceward.now(),
  constraint monitoring_run_status_known check (status in ('running', 'success', 'error'))
);
comment on table raw_ops.monitoring_runs is 'One row per run of a monitor, also of one that failed.';
create index if not exists idx_monitoring_runs_created_at on raw_ops.monitoring_runs (check_name, created_at desc);

create table if not exists raw_ops.proof_page_events (
  id              bigint generated always as identity primary key,
  public_batch_id text,
  event           text not null,
  meta            jsonb not null default '{}',
  created_at      timestamptz not null default onceward.now()
);
comment on table raw_ops.proof_page_events is 'What visitors of proof pages did; nothing that tells who they are.';
create index if not exists idx_proof_page_events_created_at on raw_ops.proof_page_events (created_at);

-- How many events came in a window: of one visitor, of all.  Rows of past windows are removed by the next retention.
create table if not exists raw_ops.proof_event_counters (
  bucket       text not null,
  window_start timestamptz not null,
  events       integer not null,
  primary key (bucket, window_start)
);

insert into raw_ops.config (key, value) values
  ('proof_base_url', 'https://proof.protocolraw.co.uk'),
  ('transition_url', 'https://portal.protocolraw.co.uk?view=transition'),
  ('brand_name', 'PROTOCOL RAW'),
  ('brand_tagline', 'Proof, not promises'),
  ('brand_promise', 'Verified safe, batch by batch'),
  ('made_in', 'Made in the UK'),
  ('company_details', 'Protocol Raw Ltd, United Kingdom'),
  ('contact_email', 'hello@protocolraw.co.uk')
    on conflict do nothing;
