"""The disk writer: both logs and META on disk, and the only process that flushes."""

from actors.writer.actor import WriterActor

__all__ = ["WriterActor"]
