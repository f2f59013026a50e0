"""Checks each message that a replica sends to a client, by itself."""
