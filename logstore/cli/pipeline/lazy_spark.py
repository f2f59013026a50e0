"""Where a pipeline's Spark runs: the options for it, and the session, which is started when it is
first needed.

Owns the terminal: what Java, Spark and its workers print goes to a file. The file is kept if Spark
failed with none of our errors, and the error names it.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logstore.errors import ConfigError, LogStoreError
from logstore.spark.data_source import register
from logstore.spark.jobs import StartSpark, own_errors
from logstore.spark.startup import start_session

_F = TypeVar("_F", bound=Callable[..., Any])

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
# One machine, and no other connects to it.
_LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_WORDS_MAX = 300


class SparkFailed(LogStoreError):
    """Spark did not start, or could not do its work; the message names what it has written."""


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
def spark_session(name: str, master: str, conf: Sequence[str]) -> Iterator[StartSpark]:
    """Gives the session of one pipeline, which is stopped at its end if it was started.

    Raises:
      ConfigError: a setting that is none; when Spark is started: no Java.
      SparkFailed: what goes wrong in Spark and is no error of ours.
    """
    local = _LOCAL_SETTINGS if master.startswith("local") else {}
    settings = _SETTINGS | local | dict(map(_setting, conf))
    spark = _Spark(name, master, settings)
    try:
        with own_errors():
            yield spark.start
    except (PySparkException, Py4JError) as failure:
        raise spark.failed(failure) from failure
    except OSError as failure:
        if not spark.has_died:
            raise
        raise spark.failed(failure) from failure
    finally:
        spark.stop()


class _Spark:
    """A session that is started once, and the file that its processes write to."""

    def __init__(self, name: str, master: str, settings: dict[str, str]) -> None:
        self._name = name
        self._master = master
        self._settings = settings
        self._session: SparkSession | None = None
        self._log_path = ""
        self._handler: logging.Handler | None = None

    def start(self) -> SparkSession:
        if self._session is None:
            handle, self._log_path = tempfile.mkstemp(prefix="logstore-pipeline-", suffix=".log")
            os.close(handle)
            # py4j logs that Java is gone, and Python would print its log on the terminal.
            self._handler = logging.FileHandler(self._log_path)
            logging.getLogger().addHandler(self._handler)
            self._session = start_session(
                master=self._master,
                name=f"logstore {self._name}",
                settings=self._settings,
                output=self._log_path,
            )
            register(self._session)
        return self._session

    @property
    def has_died(self) -> bool:
        """Whether Java has ended by itself."""
        process = getattr(getattr(self._session, "_sc", None), "_gateway", None)
        process = getattr(process, "proc", None)
        return process is not None and process.poll() is not None

    def failed(self, failure: Exception) -> SparkFailed:
        """The error for a failure that is none of ours; the file stays."""
        lines = str(failure).strip().splitlines() or [type(failure).__name__]
        path, self._log_path = self._log_path, ""
        return SparkFailed(f"Spark failed: {lines[0][:_WORDS_MAX]}; what it wrote is in {path}")

    def stop(self) -> None:
        if self._session is not None:
            with suppress(Py4JError, OSError):  # it may be gone already
                self._session.stop()
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()
        if self._log_path:
            with suppress(FileNotFoundError):  # something that tidies /tmp may have removed it
                os.unlink(self._log_path)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"--conf {text!r}: give KEY=VALUE, like spark.driver.memory=2g")
    return key, value
