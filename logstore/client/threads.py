"""The driver for threads: it goes through the core's steps in the thread of the caller.

Owns where a thread parks. Knows nothing of what the steps do.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from logstore.client.clock import RealClock, milliseconds_until, monotonic_ns
from logstore.client.core.routing import NobodyAnswered
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
    """What is raised in every thread that still uses a client that was closed, and in a process
    that was forked off since the client was made."""
    return Closed("the client was closed, or made before this process was forked: connect again")


def new_context() -> Context:
    return Context(message_size_max=REPLY_MAX_BYTES, closed=closed)


def host_on(context: Context) -> Host:
    """This machine, for the core: any thread may go through steps on it."""
    return Host(context, RealClock(), random.SystemRandom(), threading.Lock)


def run(
    steps: Steps[_T],
    *,
    bell: Doorbell | None = None,
    check: Callable[[], None] | None = None,
) -> _T:
    """Go through the steps in this thread; what they return.

    Args:
      bell: wakes them, too; cleared before each look at what there is (SAFETY M7).
      check: called after each wait; what it raises ends the steps.

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
                # links of this driver's own making, which only a cast can say
                reads, writes = cast(Any, task.wait.reads), cast(Any, task.wait.writes)
                park(reads, writes, bell, milliseconds_until(task.wait.until_ns))
                if check is not None:
                    check()
            except Closed as error:
                task.fail(error)
    except NobodyAnswered as error:
        raise _explained(error) from None
    finally:
        task.close()


def _explained(error: NobodyAnswered) -> Unreachable:
    """Why nobody answers, as far as this machine knows."""
    unknown = unknown_hosts(error.hosts)
    if not unknown:
        return Unreachable(str(error))
    return Unreachable(
        f"no replica answers at {error.places}; unknown to this machine: {', '.join(unknown)}: "
        "check the endpoints"
    )
