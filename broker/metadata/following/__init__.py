"""Following the metadata log of a running controller (KIP-630, KIP-595), without any I/O.

effects    what the machine asks of the world, and what it is told about it
machine    which request goes next, and what its answer means
requests   the two requests of those who follow
replay     batches of records into an image; transactions whole or not at all
"""
