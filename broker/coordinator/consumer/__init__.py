"""Groups of the consumer protocol (KIP-848): their machine and its requests."""
