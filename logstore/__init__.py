"""A replicated log with one global, gap-free order: the public API.

`connect` gives a `LogClient`; what it makes and raises is named here. Names of the client are
loaded on first use, so that a server's process that needs `logstore.model` alone loads neither
ZeroMQ nor numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.client.admin import Admin
    from logstore.client.client import LogClient, connect
    from logstore.client.consumer import Consumer
    from logstore.client.core.cursor_admin import Cursor
    from logstore.client.core.member_admin import MemberInfo, Members
    from logstore.client.core.operating import Watermarks
    from logstore.client.core.producer_statistics import ProducerStatistics
    from logstore.client.core.session_admin import SessionInfo
    from logstore.client.core.start import AtCursor, AtTime
    from logstore.client.core.upgrade import FormatLevels
    from logstore.client.core.verification import Verification
    from logstore.client.digest import BatchDigest
    from logstore.client.endpoint import Endpoint
    from logstore.client.future import AppendFuture, LsnRange, Provisional
    from logstore.client.producer import Producer
    from logstore.client.producer_options import ProducerOptions
    from logstore.client.reader import RangeReader
    from logstore.client.records import RawBatch, Record, RecordBatch
    from logstore.errors import LogStoreError
    from logstore.model import SequenceMode

__version__ = "0.1.0"

_HOME = {
    "connect": "logstore.client.client",
    "LogClient": "logstore.client.client",
    "Producer": "logstore.client.producer",
    "ProducerOptions": "logstore.client.producer_options",
    "SequenceMode": "logstore.model",
    "AppendFuture": "logstore.client.future",
    "LsnRange": "logstore.client.future",
    "Provisional": "logstore.client.future",
    "ProducerStatistics": "logstore.client.core.producer_statistics",
    "Consumer": "logstore.client.consumer",
    "AtTime": "logstore.client.core.start",
    "AtCursor": "logstore.client.core.start",
    "Cursor": "logstore.client.core.cursor_admin",
    "RangeReader": "logstore.client.reader",
    "Record": "logstore.client.records",
    "RecordBatch": "logstore.client.records",
    "RawBatch": "logstore.client.records",
    "BatchDigest": "logstore.client.digest",
    "Admin": "logstore.client.admin",
    "Watermarks": "logstore.client.core.operating",
    "SessionInfo": "logstore.client.core.session_admin",
    "FormatLevels": "logstore.client.core.upgrade",
    "Members": "logstore.client.core.member_admin",
    "MemberInfo": "logstore.client.core.member_admin",
    "Verification": "logstore.client.core.verification",
    "Endpoint": "logstore.client.endpoint",
    "LogStoreError": "logstore.errors",
}

__all__ = [
    "connect",
    "LogClient",
    "Producer",
    "ProducerOptions",
    "SequenceMode",
    "AppendFuture",
    "LsnRange",
    "Provisional",
    "ProducerStatistics",
    "Consumer",
    "AtTime",
    "AtCursor",
    "Cursor",
    "RangeReader",
    "Record",
    "RecordBatch",
    "RawBatch",
    "BatchDigest",
    "Admin",
    "Watermarks",
    "SessionInfo",
    "FormatLevels",
    "Members",
    "MemberInfo",
    "Verification",
    "Endpoint",
    "LogStoreError",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
