"""From the log, or a snapshot of it, to groups and offsets in memory, and back to a snapshot."""
