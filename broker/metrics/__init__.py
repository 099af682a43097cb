"""What the broker tells of itself at `metrics.port`: its numbers, and whether it is well."""
