"""A thread of each client that keeps it current with the members of its cluster.

Owns the thread. A client may do nothing for days while all machines are replaced one by one; later
none of the addresses that it knows would answer. `Routing.keep_current` says when to ask and what
an answer changes. The thread ends with the client, also with one that was dropped without `close`.
"""

from __future__ import annotations

import logging
import queue
import threading
import weakref

from logstore.client.core import routing
from logstore.client.threads import run
from logstore.errors import Closed

THREAD_NAME = "logstore-members"

_LOG = logging.getLogger(__name__)


class MembersThread:
    """Runs until it is closed, or nothing else uses `known`."""

    def __init__(self, known: routing.Routing) -> None:
        # Not an Event, which has a lock: the garbage collector may end the thread while it runs in
        # the thread itself, and a child of this process may close what is its parent's.
        self._ends = ends = queue.SimpleQueue[None]()
        weak = weakref.ref(known, lambda _: ends.put(None))
        thread = threading.Thread(
            target=_keep_current, args=(weak, ends), name=THREAD_NAME, daemon=True
        )
        thread.start()

    def close(self) -> None:
        """End the thread; one that asks at this moment ends with the sockets."""
        self._ends.put(None)


def _keep_current(weak: weakref.ref[routing.Routing], ends: queue.SimpleQueue[None]) -> None:
    wait_s = 0.0
    while not _is_ended(ends, wait_s):
        known = weak()
        if known is None:
            return
        try:
            wait_s = run(known.keep_current())
        except Closed:
            return
        except Exception as error:  # no descriptor is left, for example: later one may be
            _LOG.warning("the members of the cluster were not asked for: %r", error)
            wait_s = routing.KEEP_CURRENT_S
        del known  # while the thread waits, only others keep it


def _is_ended(ends: queue.SimpleQueue[None], wait_s: float) -> bool:
    try:
        ends.get(timeout=wait_s)
    except queue.Empty:
        return False
    return True
