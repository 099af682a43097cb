"""What the metadata log holds: its leader, settings that change, features, quotas, observers."""
