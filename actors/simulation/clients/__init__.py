"""Simulated clients: producers, consumers, readers and operators of the virtual world."""
