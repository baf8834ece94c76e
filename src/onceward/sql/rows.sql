-- Rows that belong to the code: built-in monitors with their thresholds, and the kinds of data that retention knows.
select onceward.declare_builtins(), onceward.declare_retention();
