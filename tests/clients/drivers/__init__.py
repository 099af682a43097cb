"""Drivers of client programs: each makes one do what a test says, in the same words for all."""
