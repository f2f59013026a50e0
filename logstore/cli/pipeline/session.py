"""Where a pipeline's Spark runs: the options for it, and the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from pyspark.sql import SparkSession

from logstore.errors import ConfigError
from logstore.spark.data_source import register
from logstore.spark.jobs import own_errors
from logstore.spark.session import start_session

_F = TypeVar("_F", bound=Callable[..., Any])

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}
# One machine, with nobody else to talk to.
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_options(command: _F) -> _F:
    """--master and --conf."""
    command = click.option(
        "--conf",
        "conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given again",
    )(command)
    return click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="where Spark runs; executors need this package and see folders under the same path",
    )(command)


@contextmanager
def spark_session(name: str, master: str, conf: Sequence[str]) -> Iterator[SparkSession]:
    """A session for one pipeline, stopped at its end.

    Raises:
      ConfigError: no Java, or a setting that is none.
    """
    local = _LOCAL_SETTINGS if master.startswith("local") else {}
    settings = _SETTINGS | local | dict(map(_setting, conf))
    spark = start_session(master=master, name=f"logstore {name}", settings=settings)
    try:
        register(spark)
        with own_errors():
            yield spark
    finally:
        spark.stop()


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"--conf {text!r}: give KEY=VALUE, like spark.driver.memory=2g")
    return key, value
