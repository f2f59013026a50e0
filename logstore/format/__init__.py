"""Byte formats: client batch, group frame, Raft record, segment header, META and messages.

Each module has the ASCII map of what it encodes; PROTOCOL.md has all of them, for other languages.
"""
