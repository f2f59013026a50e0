"""A pipeline's work as tasks of Spark: one function over values, results in their order.

Owns what becomes of errors: an error of ours comes back as it was raised, without the traceback of
a worker, and is not worth Spark's trying again, for tasks try other replicas by themselves. What
else goes wrong, an executor that dies for example, is Spark's to repeat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from logstore import errors
from logstore.errors import LogStoreError

_T = TypeVar("_T")
_R = TypeVar("_R")
_OURS = re.compile(r"^logstore\.errors\.(\w+): (.*)$", re.MULTILINE)


# Gives the session; one that is not there yet is started. So what is found to be nothing to do is
# found out in no time.
StartSpark = Callable[[], SparkSession]


def run_tasks(spark: StartSpark, work: Callable[[_T], _R], tasks: Sequence[_T]) -> list[_R]:
    """`work` of every task, one Spark task each; it must pickle, and so must values and results.
    Without tasks Spark is not started.

    Raises:
      LogStoreError: what the first failed one raised, once all have ended.
    """
    if not tasks:
        return []
    context = spark().sparkContext
    rows = context.parallelize(tasks, len(tasks)).map(partial(_guarded, work)).collect()
    found: list[_R] = []
    for row in rows:
        if isinstance(row, LogStoreError):
            raise row
        found.append(row)
    return found


def _guarded(work: Callable[[_T], _R], task: _T) -> _R | LogStoreError:
    try:
        return work(task)
    except LogStoreError as error:
        return error


@contextmanager
def own_errors() -> Iterator[None]:
    """What a query of Spark fails with becomes the error of ours that is named in its traceback.

    Raises:
      LogStoreError: of the kind and with the text that it had in a worker; without fields.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        error = error_in(str(failure))
        if error is None:
            raise
        raise error from failure


def error_in(text: str) -> LogStoreError | None:
    """The last error of ours that a traceback names; None: it names none."""
    for name, words in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, LogStoreError):
            return kind.__new__(kind, words)
    return None
