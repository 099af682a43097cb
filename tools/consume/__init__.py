"""Records of topics, read and printed."""
