-- Deliveries: the ledger of outside effects.
-- Locks: none that matter, everything is new.  Duration: milliseconds.

-- One row per effect.  Its job has the same id.
create table onceward.delivery_private (
  id               uuid primary key,
  tenant           text not null,
  kind             text not null,
  key              text not null,
  state            text not null,
  tries            integer not null default 0,
  provider         text,
  provider_ref     text,
  created_at       timestamptz not null,
  first_try_at     timestamptz,
  sending_at       timestamptz,
  -- The attempt that may be sending, or was the last to.
  sending_epoch    bigint,
  -- Since then some try may have arrived, and nobody knows; through which provider.
  unclear_since    timestamptz,
  unclear_provider text,
  ended_at         timestamptz,
  last_error       jsonb,
  decided_by       text,
  note             text,
  is_alert         boolean not null,
  constraint delivery_kind_known check (kind in ('email', 'slack', 'telegram', 'webhook')),
  constraint delivery_state_known
    check (state in ('pending', 'sending', 'sent', 'uncertain', 'abandoned', 'cancelled')),
  constraint delivery_end_has_time check ((state in ('pending', 'sending')) = (ended_at is null)),
  constraint delivery_sending_has_epoch check (state <> 'sending' or sending_epoch is not null),
  constraint delivery_key_once unique (tenant, key)
);
-- What a person has to look at.
create index delivery_trouble_idx on onceward.delivery_private (state, id)
  where state in ('uncertain', 'abandoned');

-- What is sent, and to whom: apart, because whoever reads the ledger must not read this.
create table onceward.delivery_content_private (
  id        uuid primary key,
  tenant    text not null,
  content   jsonb not null,
  -- {"kind": …, "content": …}: whom to tell when the delivery ends badly.
  alerts_to jsonb
);
