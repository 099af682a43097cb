"""The way in: preparing sets, appends of a turn, group commit."""
