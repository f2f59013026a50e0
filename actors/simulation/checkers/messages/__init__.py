"""Whether what a replica says to a client is right by itself, message by message."""
