-- Operators, who sign in to the web pages, and tokens for programs.
-- Locks: none that matter, everything is new.  Duration: milliseconds.
-- Secrets are kept as SHA-256 of at least 128 random bits: what is stored here opens nothing.

create table onceward.operator_private (
  id          uuid primary key,
  name        text not null,
  role        text not null,
  -- null: every tenant.
  tenant      text,
  created_at  timestamptz not null,
  created_by  text not null,
  seen_at     timestamptz,
  disabled_at timestamptz,
  constraint operator_name_is_unique unique (name),
  constraint operator_role_known check (role in ('viewer', 'operator', 'admin'))
);

-- One-time links.  The update that sets used_at decides who signs in.
create table onceward.link_private (
  hash        bytea primary key,
  operator_id uuid not null,
  created_at  timestamptz not null,
  created_by  text not null,
  expires_at  timestamptz not null,
  used_at     timestamptz,
  constraint link_hash_size check (octet_length(hash) = 32)
);
create index link_operator_idx on onceward.link_private (operator_id);
create index link_expires_idx on onceward.link_private (expires_at);

create table onceward.session_private (
  hash        bytea primary key,
  operator_id uuid not null,
  created_at  timestamptz not null,
  seen_at     timestamptz not null,
  expires_at  timestamptz not null,
  constraint session_hash_size check (octet_length(hash) = 32)
) with (fillfactor = 80);
create index session_operator_idx on onceward.session_private (operator_id);
create index session_expires_idx on onceward.session_private (expires_at);

create table onceward.token_private (
  id         uuid primary key,
  hash       bytea not null,
  name       text not null,
  scopes     text[] not null,
  tenant     text,
  created_at timestamptz not null,
  created_by text not null,
  expires_at timestamptz,
  seen_at    timestamptz,
  revoked_at timestamptz,
  revoked_by text,
  constraint token_hash_is_unique unique (hash),
  constraint token_hash_size check (octet_length(hash) = 32),
  constraint token_scopes_known check (scopes <@ array['read', 'enqueue', 'operate'] and cardinality(scopes) > 0)
);
