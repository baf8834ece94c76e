-- What metrics count: deliveries that are under way.
-- Locks: share on delivery_private, so that nothing is delivered meanwhile.  Duration: one read of the ledger.

-- The state is part of another index already, so no update of a delivery gets dearer than it was.
create index delivery_open_idx on onceward.delivery_private (state) where state in ('pending', 'sending');
