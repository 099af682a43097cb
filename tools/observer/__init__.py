"""Following the metadata log of a running controller from outside (`broker.metadata.following` says
what to ask, and what an answer means).

files      what an observer keeps: a snapshot and the log after it, in a folder or in memory
follower   drives the machine: connects, asks, stores, replays, waits and tries again
"""
