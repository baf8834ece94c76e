-- How many jobs of a lane may run at once, over all workers.
-- Locks: lane_private for a moment, to add a column without a default.  Duration: milliseconds.

-- null: as many as workers take.
alter table onceward.lane_private
  add column max_running integer,
  add constraint lane_cap_is_positive check (max_running > 0);
