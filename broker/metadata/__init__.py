"""The metadata log: its leader, settings that change, features, quotas, observers."""
