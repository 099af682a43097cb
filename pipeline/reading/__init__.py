"""What is to be read, in which ranges; reading one from a cluster or a stopped directory."""
