"""A Spark session whose workers can read the log: Java found, the right Python.

Owns what must be right before the JVM starts. A session that other code has started works, too,
if PYSPARK_PYTHON named an interpreter that has this package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from logstore.spark.java import find_java

# A task's rows ride to the driver in its result, up to one batch of the log; what is above Spark's
# own limit of 1 MiB goes around by the block manager. The way of 16 MB to the driver took 0.10 s
# so, 0.18 otherwise (2026-11-21, best of several; whole writes varied by more). A result may not be
# above spark.rpc.message.maxSize, 128 MiB.
_SETTINGS = {"spark.task.maxDirectResultSize": "32m"}


def start_session(
    *,
    master: str = "local[*]",
    name: str = "logstore",
    settings: Mapping[str, str] | None = None,
    output: str | None = None,
) -> SparkSession:
    """A Spark session, started here or, if this process has one already, that one.

    Args:
      master: Spark's master URL.
      name: the application's name.
      settings: further Spark settings, like {"spark.driver.memory": "2g"}; they come before ours.
      output: a file to which Java, and the workers that it starts, write what they would print;
        None: they print it. Of the first session of a process.

    Raises:
      ConfigError: no Java that is new enough; the message says what to install.
    """
    find_java(os.environ)
    # Without it workers run `python3` from PATH, which need not be the one that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster(master).setAppName(name)
    conf.setAll([*{**_SETTINGS, **(settings or {})}.items()])
    if output is not None and SparkContext._gateway is None:
        with open(output, "ab") as file:
            gateway = launch_gateway(conf, {"stdout": file, "stderr": file})
        SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()
