"""Several processes that serve one data directory, and the one that keeps them running."""
