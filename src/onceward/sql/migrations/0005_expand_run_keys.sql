-- Runs: what has to happen once per window, and who does it.
-- Locks: none that matter, everything is new.  Duration: milliseconds.

create table onceward.run_private (
  tenant      text not null,
  key         text not null,
  state       text not null,
  holder      text not null,
  -- Names one call of begin_run, so that a call whose reply was lost can be repeated.
  token       uuid,
  epoch       bigint not null,
  attempt     integer not null,
  created_at  timestamptz not null,
  since       timestamptz not null,
  expires_at  timestamptz,
  finished_at timestamptz,
  result      jsonb,
  error       text,
  primary key (tenant, key),
  constraint run_state_known check (state in ('running', 'completed', 'failed')),
  constraint run_running_has_lease check ((state = 'running') = (expires_at is not null)),
  constraint run_ended_has_time check ((state = 'running') = (finished_at is null))
);
create index run_old_idx on onceward.run_private (since);
