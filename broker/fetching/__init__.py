"""The way out: selection, conversion for older readers, waiting, fetch sessions."""
