"""A compacted topic as a table that is current: one row for each key, its newest record."""
