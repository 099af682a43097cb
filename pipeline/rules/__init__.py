"""Rules for the data in topics and archives, and what breaks them."""
