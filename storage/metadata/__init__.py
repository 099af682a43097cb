"""The metadata log of a cluster, its snapshots, and the state that they give."""
