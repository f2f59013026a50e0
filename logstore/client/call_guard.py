"""Keeps the sockets of a consumer, reader or watch to one thread at a time.

A ZeroMQ socket belongs to one thread at a time. A close during another thread's call only marks the
object; that call closes the sockets when it ends. A forked child has neither the sockets nor that
thread: there nothing waits for its lock. Does not know what the sockets do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from logstore.errors import Closed, InvalidRequest
from transport.client_links import forks


class CallGuard:
    """Entered for each call that uses the sockets. `close_sockets` is called once, while no call
    runs."""

    def __init__(self, what: str, close_sockets: Callable[[], None]) -> None:
        self._what = what
        self._close_sockets = close_sockets
        self._lock = threading.Lock()
        self._forks = forks()
        self._user = 0  # the thread whose call runs
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def __enter__(self) -> None:
        me = threading.get_ident()
        self.check()
        with self._lock:
            self.check()
            if self._user:
                raise InvalidRequest(f"two threads use one {self._what}: give each its own")
            self._user = me

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._user = 0
            is_closed = self._is_closed
        if is_closed:
            self._close_sockets()

    def check(self) -> None:
        """For a call that waits: was the object closed meanwhile?

        Raises:
          Closed: it was, or this process was forked since it was made.
        """
        if self._forks != forks():
            raise Closed(f"the {self._what} was made before this process was forked: connect again")
        if self._is_closed:
            raise Closed(f"the {self._what} is closed: make another one")

    def close(self) -> None:
        """Close the sockets now, or leave it to the call that uses them. May be called twice."""
        if self._forks != forks():  # before the lock, which a thread of the parent may hold
            self._is_closed = True
            return
        with self._lock:
            is_mine = not self._is_closed and not self._user
            self._is_closed = True
        if is_mine:
            self._close_sockets()
