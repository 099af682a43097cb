"""Consumer groups and committed offsets.

State is what a replay of `__consumer_offsets` gives. An operation computes records and an answer;
the runtime writes the records as one batch, replays them into memory, and lets the answer go when
they are on the disk. The machines (`classic.group`, `consumer.group`, `offsets.committed`) are
pure: time, ids and the topics that exist are arguments, and what should happen in the world is
returned.

Top to bottom, imports go down only:

    group_coordinator                          what others use of groups, joined
    classic.requests / offset_coordinator      requests on the runtime; commits, expiry
    consumer.requests                          the newer protocol, and migration between both
    runtime, migration                         shards, timers, records and answers
    loading.loads, loading.snapshotting        shards from the disk, and to it
    shard                                      one partition at work, with its snapshots
    loading (the others), shard_state, expiry  records into groups and offsets, and back
    consumer / classic / offsets               the machines
    effects, waits, topics_view
"""
