"""Spark imports every top-level module called `pyspark_…` and takes its `DefaultSource`.

The wheel has this file at its top level. `logstore.spark.pyspark_logstore` is where it lies in the
sources.
"""

from __future__ import annotations

from logstore.spark.data_source import LogStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
