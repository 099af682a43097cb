"""The content of the records of the logs that the broker keeps for itself, and of the bytes
that classic groups of consumers leave with it.

offsets      keys and values of `__consumer_offsets`
commits      the batch of one offset commit, made in one go
commit_runs  such batches read again, many at a time
membership   what consumers say to each other in a classic group
metadata     records and batches of `__cluster_metadata`; in parts, metadata_*
plain        what any of these says, for people and JSON

Importing this package imports none of them.
"""
