"""Topics, their partitions, and the state of the disk below them."""
