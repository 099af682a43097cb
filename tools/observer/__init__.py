"""Following the metadata log of a running controller (KIP-630, KIP-595).

effects    what the machine asks of the world, and what it is told about it
machine    which request goes next, and what its answer means; no I/O at all
replay     batches of records into an image; transactions whole or not at all
files      what an observer keeps: a snapshot and the log after it, in a folder or in memory
follower   drives the machine: connects, asks, stores, replays, waits and tries again
"""
