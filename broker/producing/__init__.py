"""The way in: preparing sets, appends of a burst, group commit."""
