"""Record sets into a partition, each once: what mirror and replay have in common."""
