"""Spark reads and writes the log. Needs `logstore[spark]` and Java 17 or newer.

Names are loaded on first use, so that what needs no Spark (`logstore.spark.java`) starts without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logstore.spark.data_source import register
    from logstore.spark.json_rows import json_payloads
    from logstore.spark.listener import Lag, LagListener
    from logstore.spark.seam import read_log
    from logstore.spark.sink_commit import last_commit
    from logstore.spark.startup import start_session

_HOME = {
    "register": "logstore.spark.data_source",
    "json_payloads": "logstore.spark.json_rows",
    "last_commit": "logstore.spark.sink_commit",
    "Lag": "logstore.spark.listener",
    "LagListener": "logstore.spark.listener",
    "read_log": "logstore.spark.seam",
    "start_session": "logstore.spark.startup",
}

__all__ = [
    "register",
    "json_payloads",
    "last_commit",
    "Lag",
    "LagListener",
    "read_log",
    "start_session",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
