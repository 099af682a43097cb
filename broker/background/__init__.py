"""Work that nobody waits for: retention, compaction, scrubbing, flushing, housekeeping."""
