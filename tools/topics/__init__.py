"""Topics of a running broker: what there is, and how they are made, changed and deleted."""
