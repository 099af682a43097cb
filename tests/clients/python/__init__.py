"""Programs that make old Python clients, each in a process of its own, do what a test says."""
