"""The command line: flags, checks, progress, reports."""
