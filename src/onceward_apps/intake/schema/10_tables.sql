-- Tables of the intake system.  Everything belongs to onceward_owner; programs call functions and read views.
-- The queue, the audit log and the limits have no tables of their own: they are views of the engine's.

-- Roles are shared by all databases of a server, and may be there already: Supabase has all three.
do $$
declare
  v_role text;
begin
  foreach v_role in array array['anon', 'authenticated', 'service_role'] loop
    begin
      if not exists (select from pg_catalog.pg_roles where rolname = v_role) then
        execute format('create role %I nologin', v_role);
      end if;
    exception
      when duplicate_object or unique_violation then null;  -- another installer was faster
      when insufficient_privilege then
        raise exception 'role "%" does not exist', v_role
          using errcode = 'undefined_object', hint = format('Ask an administrator to run: create role %I nologin;', v_role);
    end;
  end loop;
end;
$$;

create schema if not exists intake authorization onceward_owner;
set local role onceward_owner;

create table if not exists intake.subscription_plans (
  plan_type            text primary key,
  display_name         text not null,
  -- Null: no bound.
  files_per_month      integer,
  storage_bytes        bigint,
  ai_tokens_per_month  bigint,
  monthly_price_cents  integer not null default 0,
  is_active            boolean not null default true,
  constraint plan_bounds_positive check (files_per_month > 0 and storage_bytes > 0 and ai_tokens_per_month > 0)
);
comment on table intake.subscription_plans is 'What each plan includes.  Bounds hold only when features.plan_limits_enabled is on.';

create table if not exists intake.user_profiles (
  id               uuid primary key default gen_random_uuid(),
  account_owner_id uuid not null,
  display_name     text not null,
  date_of_birth    date,
  plan_type        text not null default 'free' references intake.subscription_plans (plan_type),
  created_at       timestamptz not null default onceward.now(),
  updated_at       timestamptz not null default onceward.now(),
  constraint profile_name_length check (length(display_name) between 1 and 200)
);
comment on table intake.user_profiles is 'One row per person whose documents are kept.  An account may own several: a parent and the children.';
create index if not exists idx_user_profiles_account_owner_id on intake.user_profiles (account_owner_id);

create table if not exists intake.profile_access (
  profile_id   uuid not null references intake.user_profiles (id) on delete cascade,
  user_id      uuid not null,
  access_level text not null default 'read',
  granted_at   timestamptz not null default onceward.now(),
  revoked_at   timestamptz,
  primary key (profile_id, user_id),
  constraint access_level_known check (access_level in ('read', 'write'))
);
comment on table intake.profile_access is 'Who else may see a profile (read), or add to it (write).';
create index if not exists idx_profile_access_user_id on intake.profile_access (user_id);

create table if not exists intake.admins (
  user_id    uuid primary key,
  granted_at timestamptz not null default onceward.now()
);
comment on table intake.admins is 'Users for whom is_admin() is true: they see limits and queues, and nobody''s documents.';

create table if not exists intake.shell_files (
  id                uuid primary key,
  patient_id        uuid not null references intake.user_profiles (id) on delete cascade,
  uploaded_by       uuid,
  filename          text not null,
  mime_type         text not null,
  file_size_bytes   bigint not null,
  content_sha256    bytea not null,
  storage_path      text not null unique,
  idempotency_key   text not null,
  status            text not null default 'uploaded',
  -- The documented structure: current_error, error_history, metrics.
  processing_error  jsonb,
  -- Why a file was refused by the security scan: a code and a sentence, never its contents.
  refusal           jsonb,
  estimated_tokens  integer not null,
  page_count        integer,
  document_kind     text,
  document_language text,
  confidence        double precision,
  needs_review      boolean not null default false,
  correlation_id    uuid not null,
  job_id            uuid,
  ai_job_id         uuid,
  created_at        timestamptz not null default onceward.now(),
  processed_at      timestamptz,
  updated_at        timestamptz not null default onceward.now(),
  constraint shell_file_status_known
    check (status in ('uploaded', 'processing', 'ocr_complete', 'completed', 'rejected', 'failed')),
  constraint shell_file_size check (file_size_bytes between 1 and 52428800),
  constraint shell_file_hash check (octet_length(content_sha256) = 32),
  constraint shell_file_key_length check (length(idempotency_key) between 1 and 200),
  -- Under the profile's own folder.
  constraint shell_file_folder check (starts_with(storage_path, patient_id::text || '/'))
);
comment on table intake.shell_files is 'One row per uploaded file.';
-- Per profile: nobody's key can stand in another one's way.
create unique index if not exists idx_shell_files_idempotency_key on intake.shell_files (patient_id, idempotency_key);
create index if not exists idx_shell_files_patient on intake.shell_files (patient_id, created_at desc);
create index if not exists idx_shell_files_open on intake.shell_files (updated_at)
  where status in ('uploaded', 'processing', 'ocr_complete');
create index if not exists idx_shell_files_created_at on intake.shell_files (created_at);

create table if not exists intake.file_pages (
  shell_file_id uuid not null references intake.shell_files (id) on delete cascade,
  patient_id    uuid not null,
  page_number   integer not null,
  width         integer not null,
  height        integer not null,
  image_path    text not null,
  word_count    integer not null,
  confidence    double precision,
  primary key (shell_file_id, page_number)
);
comment on table intake.file_pages is 'Pages of a file, as pictures, with how well they could be read.';

create table if not exists intake.ocr_words (
  shell_file_id uuid not null references intake.shell_files (id) on delete cascade,
  patient_id    uuid not null,
  page_number   integer not null,
  word_number   integer not null,
  line_number   integer not null,
  content       text not null,
  -- In pixels of the page's picture.
  x             double precision not null,
  y             double precision not null,
  width         double precision not null,
  height        double precision not null,
  confidence    double precision not null,
  primary key (shell_file_id, page_number, word_number)
);
comment on table intake.ocr_words is 'The spatial map: every word that was found, where it stands, and in which line.';

create table if not exists intake.document_entities (
  shell_file_id uuid not null references intake.shell_files (id) on delete cascade,
  patient_id    uuid not null,
  number        integer not null,
  entity        jsonb not null,
  primary key (shell_file_id, number)
);
comment on table intake.document_entities is 'What pass 1 has found in a document.';

create table if not exists intake.clinical_facts (
  id              uuid primary key default gen_random_uuid(),
  shell_file_id   uuid not null references intake.shell_files (id) on delete cascade,
  patient_id      uuid not null,
  number          integer not null,
  kind            text not null,
  name            text not null,
  value           text,
  unit            text,
  reference_low   text,
  reference_high  text,
  dose            text,
  fact_date       text,
  -- Where it stands: words of a page.
  page_number     integer,
  first_word      integer,
  last_word       integer,
  confidence      double precision not null,
  needs_review    boolean not null,
  -- Pass 3.
  code            text,
  code_system     text,
  canonical_value numeric,
  canonical_unit  text,
  canonical_low   numeric,
  canonical_high  numeric,
  interpretation  text,
  iso_date        date,
  doubts          text[] not null default '{}',
  created_at      timestamptz not null default onceward.now(),
  unique (shell_file_id, number)
);
comment on table intake.clinical_facts is 'Facts of documents, with where they stand, how sure the reading is, and their normal form.';
create index if not exists idx_clinical_facts_patient on intake.clinical_facts (patient_id, kind);

create table if not exists intake.timeline_entries (
  shell_file_id uuid primary key references intake.shell_files (id) on delete cascade,
  patient_id    uuid not null,
  entry_date    date not null,
  -- Whether the date stands in the document, or is the day of the upload.
  is_dated      boolean not null,
  kind          text not null,
  title         text not null,
  summary       text not null,
  provider      text,
  needs_review  boolean not null,
  reasons       text[] not null default '{}',
  created_at    timestamptz not null default onceward.now()
);
comment on table intake.timeline_entries is 'One entry per document on its person''s time line.';
create index if not exists idx_timeline_entries_patient on intake.timeline_entries (patient_id, entry_date desc);

create table if not exists intake.user_usage_tracking (
  profile_id            uuid not null references intake.user_profiles (id) on delete cascade,
  usage_month           date not null,
  files_uploaded        integer not null default 0,
  storage_bytes         bigint not null default 0,
  ai_tokens_used        bigint not null default 0,
  ai_processing_seconds bigint not null default 0,
  updated_at            timestamptz not null default onceward.now(),
  primary key (profile_id, usage_month),
  constraint usage_counts_up check (files_uploaded >= 0 and storage_bytes >= 0 and ai_tokens_used >= 0 and ai_processing_seconds >= 0)
);
comment on table intake.user_usage_tracking is 'What each profile has used, by calendar month (UTC).';

create table if not exists intake.usage_events (
  id            bigint generated always as identity primary key,
  profile_id    uuid not null references intake.user_profiles (id) on delete cascade,
  event_type    text not null,
  -- The file or the job; counted once.
  resource_id   uuid not null,
  bytes         bigint not null default 0,
  tokens        bigint not null default 0,
  seconds       integer not null default 0,
  created_at    timestamptz not null default onceward.now(),
  constraint usage_event_type_known check (event_type in ('shell_file_upload', 'ai_processing')),
  unique (event_type, resource_id)
);
comment on table intake.usage_events is 'What user_usage_tracking sums up: one row per upload and per job that used a model.';
create index if not exists idx_usage_events_profile on intake.usage_events (profile_id, created_at desc);

create table if not exists intake.used_links (
  id       uuid primary key,
  user_id  uuid not null,
  until    timestamptz not null,
  used_at  timestamptz not null default onceward.now()
);
comment on table intake.used_links is 'Sign-in links that were used: each holds once.  Those that are over are removed.';
create index if not exists idx_used_links_until on intake.used_links (until);

create table if not exists intake.system_configuration (
  config_key   text primary key,
  config_value jsonb not null,
  config_type  text not null default 'system',
  description  text not null,
  updated_at   timestamptz not null default onceward.now(),
  constraint config_type_known check (config_type in ('system', 'security', 'performance', 'integration'))
);
comment on table intake.system_configuration is 'Settings and feature flags that people change without a release.';

-- What the contract says about a provider's endpoint beside its limit, which is the engine's.
create table if not exists intake.api_providers (
  provider_name              text not null,
  api_endpoint               text not null,
  limit_name                 text not null unique,
  requests_per_minute        integer not null,
  tokens_per_minute          bigint,
  tokens_at_once             bigint,
  concurrent_requests        integer,
  backpressure_threshold     double precision not null default 0.8,
  backpressure_delay_seconds integer not null default 30,
  status                     text not null default 'active',
  primary key (provider_name, api_endpoint),
  constraint provider_status_known check (status in ('active', 'disabled'))
);
comment on table intake.api_providers is 'Providers that documents may be sent to, and what each allows.';

-- Calls of providers: what was reserved, and what was used.  A hold is open until it is released or its lease is over.
create table if not exists intake.api_calls (
  id               bigint generated always as identity primary key,
  provider_name    text not null,
  api_endpoint     text not null,
  estimated_tokens bigint not null,
  actual_tokens    bigint,
  -- Taken by acquire_api_capacity; release_api_capacity names none, and gets the oldest of its kind.
  hold_id          uuid unique,
  -- Or reserved by the engine for a job, when it was claimed.
  job_id           uuid,
  acquired_at      timestamptz not null default onceward.now(),
  released_at      timestamptz
);
create index if not exists idx_api_calls_open on intake.api_calls (provider_name, api_endpoint, estimated_tokens, acquired_at)
  where released_at is null;
create index if not exists idx_api_calls_acquired_at on intake.api_calls (acquired_at);

-- Jobs that a program holds through claim_next_job_v3: the epoch of its claim fences what it says later.
create table if not exists intake.job_claims (
  job_id        uuid primary key,
  epoch         bigint not null,
  engine_worker uuid not null,
  worker_id     text not null,
  claimed_at    timestamptz not null
);

-- Composite results: a function cannot have a parameter and a column of one name (H1), and the contract has.
do $$
begin
  if to_regtype('intake.enqueued_job') is null then
    create type intake.enqueued_job as (job_id uuid, scheduled_at timestamptz);
    create type intake.claimed_job as (job_id uuid, job_type text, job_payload jsonb, retry_count integer);
  end if;
end;
$$;

insert into intake.subscription_plans (plan_type, display_name, files_per_month, storage_bytes, ai_tokens_per_month, monthly_price_cents) values
  ('free', 'Free', 50, 1073741824, 200000, 0),
  ('pro', 'Pro', 500, 10737418240, 2000000, 1900),
  ('enterprise', 'Enterprise', null, null, null, 9900)
    on conflict do nothing;

insert into intake.system_configuration (config_key, config_value, config_type, description) values
  ('worker.timeout_seconds', '300', 'system', 'How long a claim lasts without a sign of life.'),
  ('worker.heartbeat_interval_seconds', '30', 'system', 'How often a worker should give one.'),
  ('worker.reclaim_jitter_max_seconds', '60', 'system', 'The most that is added at random when a job is put off.'),
  ('worker.max_retries', '6', 'system', 'Retries after the first attempt: waits of 2, 4, 8, 16, 32 and 64 seconds.'),
  ('worker.max_snoozes', '200', 'system', 'How often a job may be put off before it is a dead letter.'),
  ('worker.fast_queue_timeout_ms', '120000', 'performance', 'The longest attempt in the fast queue.'),
  ('worker.ai_queue_timeout_ms', '600000', 'performance', 'The longest attempt in the AI queue.'),
  ('worker.fast_queue_slots', '2', 'performance', 'Files that are read at once, by all workers: OCR takes whole processors.'),
  ('features.usage_tracking_enabled', 'true', 'system', 'Count uploads and tokens per profile.'),
  ('features.plan_limits_enabled', 'false', 'system', 'Refuse uploads beyond the plan.'),
  ('features.billing_enabled', 'false', 'system', 'Charge for plans.'),
  ('storage.orphan_age_hours', '24', 'system', 'How old an object without a file may get before it is swept.'),
  ('review.confidence_threshold', '0.75', 'system', 'Below this, a fact or a document is marked for a person.')
    on conflict do nothing;

insert into intake.api_providers
  (provider_name, api_endpoint, limit_name, requests_per_minute, tokens_per_minute, tokens_at_once, concurrent_requests) values
  ('openai', 'gpt-4o-mini', 'intake:openai:gpt-4o-mini', 500, 200000, 20000, 50),
  ('google_vision', 'document_text_detection', 'intake:google_vision:document_text_detection', 1800, null, null, 50),
  ('anthropic', 'claude', 'intake:anthropic:claude', 400, 100000, 12000, 40),
  -- The extractor that comes with the system, under a limit like the others, so that a demo shows what limits do.
  ('embedded', 'extractor', 'intake:embedded:extractor', 6000, 30000000, 600000, null)
    on conflict do nothing;
