"""What makes one client program do what a test says, the same words for every client."""
