"""The driver for threads: runs the core's steps in the thread of the caller.

Owns the place where a thread parks. Does not know what the steps do.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from logstore.client.clock import RealClock, milliseconds_until, monotonic_ns
from logstore.client.core.routing import NoReplicaAnswers
from logstore.client.core.steps import Host, Steps
from logstore.client.core.task import Task
from logstore.client.names import unknown_hosts
from logstore.errors import Closed, Unreachable
from logstore.limits import FETCH_MAX_BYTES, MESSAGE_MAX_BYTES
from transport.client_links import Context, park
from transport.doorbell import Doorbell

# A fetch may end with one whole group above its limit.
REPLY_MAX_BYTES = 2 * FETCH_MAX_BYTES + MESSAGE_MAX_BYTES
_T = TypeVar("_T")


def closed() -> Closed:
    """The error in every thread that still uses a closed client, and in a process that was forked
    after the client was made."""
    return Closed("the client was closed, or made before this process was forked: connect again")


def new_context() -> Context:
    return Context(message_size_max=REPLY_MAX_BYTES, closed=closed)


def host_on(context: Context) -> Host:
    """The core's environment on this machine. Any thread may run steps in it."""
    return Host(context, RealClock(), random.SystemRandom(), threading.Lock)


def run(
    steps: Steps[_T],
    *,
    bell: Doorbell | None = None,
    check: Callable[[], None] | None = None,
) -> _T:
    """Run the steps in this thread; what they return.

    Args:
      bell: a ring ends a wait, too; cleared before the steps check for work (SAFETY M7).
      check: called after each wait; an error of it ends the steps.

    Raises: what the steps raise, and
      Closed: the client is.
    """
    task = Task(steps)
    try:
        while True:
            if bell is not None:
                bell.clear()
            task.do_work(monotonic_ns())
            if task.is_done:
                return task.result
            try:
                # The links come from this driver's own context, which the types do not say.
                reads, writes = cast(Any, task.wait.reads), cast(Any, task.wait.writes)
                park(reads, writes, bell, milliseconds_until(task.wait.until_ns))
                if check is not None:
                    check()
            except Closed as error:
                task.fail(error)
    except NoReplicaAnswers as error:
        raise explained(error, unknown_hosts(error.hosts)) from None
    finally:
        task.close()


def explained(error: NoReplicaAnswers, unknown: list[str]) -> Unreachable:
    """Why no replica answers, as far as this machine knows."""
    if not unknown:
        return Unreachable(str(error))
    return Unreachable(
        f"no replica answers at {error.places}; unknown to this machine: {', '.join(unknown)}: "
        "check the endpoints"
    )
