"""The virtual world that the same storage and actors run in for tests: so far, its disk."""
