"""`triglot acls`: access rules, and which of them decides."""
