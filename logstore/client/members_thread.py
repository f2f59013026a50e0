"""A thread of each client that keeps it current with the members of its cluster.

Owns the thread. A client may do nothing for days while all machines are replaced one by one; later
none of the addresses that it knows would answer. `Routing.keep_current` says when to ask and what
an answer changes. The thread ends with the client, also with one that was dropped without `close`.
"""

from __future__ import annotations

import threading
import weakref

from logstore.client.core.routing import Routing
from logstore.client.threads import run
from logstore.errors import Closed

THREAD_NAME = "logstore-members"


class MembersThread:
    """Runs until it is closed, or nothing else uses `routing`."""

    def __init__(self, routing: Routing) -> None:
        self._ends = ends = threading.Event()
        known = weakref.ref(routing, lambda _: ends.set())
        thread = threading.Thread(
            target=_keep_current, args=(known, ends), name=THREAD_NAME, daemon=True
        )
        thread.start()

    def close(self) -> None:
        """End the thread; one that asks at this moment ends with the sockets."""
        self._ends.set()


def _keep_current(known: weakref.ref[Routing], ends: threading.Event) -> None:
    wait_s = 0.0
    while not ends.wait(wait_s):
        routing = known()
        if routing is None:
            return
        try:
            wait_s = run(routing.keep_current())
        except Closed:
            return
        del routing  # while the thread waits, only others keep it
