"""The writer: both logs and META on disk; the only process that flushes."""

from actors.writer.actor import WriterActor

__all__ = ["WriterActor"]
