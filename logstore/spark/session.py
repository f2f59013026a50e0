"""A Spark session whose workers can read the log: Java found, the right Python.

Owns what must be right before the JVM starts. A session that somebody else has started works, too,
if PYSPARK_PYTHON named an interpreter that has this package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from logstore.spark.java import find_java


def start_session(
    *, master: str = "local[*]", name: str = "logstore", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session, started here or, if this process has one already, that one.

    Args:
      master: Spark's master URL.
      name: the application's name.
      settings: further Spark settings, like {"spark.driver.memory": "2g"}.

    Raises:
      ConfigError: no Java that is new enough; the message says what to install.
    """
    find_java(os.environ)
    # Without it workers run `python3` from PATH, which need not be the one that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
