"""The doorbell: an eventfd that one process parks on and others ring.

Owns the descriptor's use. Must not know why it rings. The protocol that loses no wake-up (M7):

1. A sender publishes (ring cursor, counter), then always rings, once per receiver and do_work.
2. A receiver clears the bell, then does its work. It polls unless that was a full turn, which may
   have left some.

There is no "is parked" flag that would save a ring: a store followed by a load is reordered even on
x86-64, so sender and receiver could each miss the other
(test_no_wake_up_is_lost_over_a_million_hand_offs).

Where sender and receiver are the same thread, a flag replaces two system calls: the receiver adopts
its bells, and looks at `is_rung_locally` before it polls.

A closed bell rings nothing. The kernel gives its number to the next file that the process opens, so
a ring after the close, or one that races it, would write eight bytes into another file. So the
number is used, and given up, under one lock.
"""

from __future__ import annotations

import os
import threading

_CLOSED_FD = -1
_NO_THREAD = 0  # the ident of none


class Doorbell:
    """One receiver's bell. Poll it for reading through `fileno()`."""

    def __init__(self, fd: int) -> None:
        """Take over `fd`, a non-blocking eventfd (the supervisor created it, SAFETY M3)."""
        self._fd = fd
        self._lock = threading.Lock()  # any thread may ring while another closes; 0.1 µs a ring
        self._receiver = _NO_THREAD
        self.is_rung_locally = False  # rung by the receiver's own thread, which sets it back

    @classmethod
    def create(cls) -> Doorbell:
        """A new bell, not ringing; close-on-exec."""
        return cls(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def adopt(self) -> None:
        """The calling thread is the receiver from now on, and looks at `is_rung_locally`."""
        self._receiver = threading.get_ident()

    def ring(self) -> None:
        """Wake the receiver, now or when it next parks. No effect on a bell
        that rings or is closed."""
        if self._receiver == threading.get_ident():
            self.is_rung_locally = True
            return
        with self._lock:
            if self._fd == _CLOSED_FD:
                return
            try:
                os.eventfd_write(self._fd, 1)
            except BlockingIOError:
                return  # 2**64 - 2 rings were not cleared: it rings already

    def clear(self) -> None:
        """Stop the bell's ringing. Look for work after this, not before."""
        with self._lock:
            if self._fd == _CLOSED_FD:
                return
            try:
                os.eventfd_read(self._fd)
            except BlockingIOError:
                return

    def fileno(self) -> int:
        """The descriptor to poll; readable while the bell rings. -1: closed."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; copies in other processes stay open. May be called twice."""
        with self._lock:
            fd, self._fd = self._fd, _CLOSED_FD
            if fd != _CLOSED_FD:
                os.close(fd)
