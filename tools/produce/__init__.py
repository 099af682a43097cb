"""Records from lines, JSON and files, written to a topic."""
