"""Rows from other systems: one incremental connector, four kinds of sources, and the customer profiles built from them."""
