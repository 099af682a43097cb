"""Committed offsets: the table in memory and the topic they are stored in."""
