"""The client for asyncio: the names of `logstore`, to be awaited.

`connect` gives a `LogClient`. Everything is used in the event loop that connected. What is returned
and raised is that of `logstore`.
"""

from __future__ import annotations

from logstore.aio.admin import Admin
from logstore.aio.client import LogClient, connect
from logstore.aio.consumer import Consumer
from logstore.aio.producer import Producer
from logstore.aio.reader import RangeReader
from logstore.aio.watch import Watch

__all__ = ["connect", "LogClient", "Producer", "Consumer", "RangeReader", "Watch", "Admin"]
