"""Spark from outside: Java, tasks on ranges, its checkpoints, and what its failures mean."""
