"""The plan of a read, in ranges; reading one from a cluster or a stopped directory."""
