-- What claims hand on: the columns that a worker needs of a job.  Each function that takes part in a claim copies its rows once,
-- and with all columns of the table that was a good part of the claim.
-- Locks: none that anybody waits for.  Duration: none.
create type onceward.claimed as (
  -- `claimed`; `line` for the row in which claim_shares says where the turn is.
  outcome      text,
  job_id       uuid,
  epoch        bigint,
  task         text,
  payload      jsonb,
  lane         text,
  priority     smallint,
  ready_seq    bigint,
  attempt      integer,
  max_attempts integer,
  tenant       text,
  timeout      interval,
  headers      jsonb,
  key          text,
  line         text,
  uses         jsonb
);

-- They come back with this type.
drop function if exists
  onceward.claim_lane(uuid, text, text, integer, jsonb, timestamptz),
  onceward.claim_overdue(uuid, text, text, integer, timestamptz, smallint),
  onceward.claim_lanes(uuid, text[], integer),
  onceward.claim_limited(uuid, text, text, integer, jsonb, jsonb),
  onceward.claim_weighed(uuid, text, text, integer, jsonb),
  onceward.claim_shares(uuid, text, integer, integer, jsonb, jsonb, timestamptz),
  onceward.claim_turns(boolean, uuid, text, integer, integer, jsonb, jsonb, timestamptz);
