"""Groups of the classic protocol (JoinGroup, SyncGroup): their machine and its requests."""
