"""Consumer groups of real clients: members, what they were seen to do, and the judge of it."""
