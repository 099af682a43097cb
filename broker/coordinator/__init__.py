"""Consumer groups and committed offsets.

State is what a replay of `__consumer_offsets` gives. An operation computes records and an answer;
the runtime (`coordinator`) writes the records as one batch, replays them into memory, and lets the
answer go when they are on the disk. The machines (`classic`, `consumer`, `offsets`) are pure: time,
ids and the topics that exist are arguments, and what should happen in the world is returned.
"""
