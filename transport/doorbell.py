"""The doorbell: an eventfd that one process parks on and others ring.

Owns the descriptor's use. Must not know what the news is. The protocol that loses no wake-up
(SAFETY M7):
1. a giver publishes (ring cursor, counter), then always rings, once per receiver and do_work;
2. a receiver clears the bell, then does its work once more, and only if that did nothing polls.
There is no "is parked" flag that would spare the ring: a store followed by a load reorders even on
x86-64, so giver and receiver could each miss the other
(test_no_wake_up_is_lost_over_a_million_hand_offs).

A closed bell rings nothing. The kernel gives its number to the next file that the process opens, so
a ring after the close, or one that races it, would write eight bytes into somebody else's file: the
number is given up, and used, under one lock.
"""

from __future__ import annotations

import os
import threading

_CLOSED_FD = -1


class Doorbell:
    """One receiver's bell. Poll it for reading through `fileno()`."""

    def __init__(self, fd: int) -> None:
        """Take over `fd`, an eventfd in non-blocking mode (the supervisor made it, SAFETY M3)."""
        self._fd = fd
        self._lock = threading.Lock()  # 0.1 µs a ring: any thread may ring, another one close

    @classmethod
    def create(cls) -> Doorbell:
        """A new bell, not ringing; close-on-exec, so children get it by `pass_fds` only."""
        return cls(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    def ring(self) -> None:
        """Wake the receiver, now or when it next parks. Ringing a ringing bell, or a closed one,
        changes nothing."""
        with self._lock:
            if self._fd == _CLOSED_FD:
                return
            try:
                os.eventfd_write(self._fd, 1)
            except BlockingIOError:
                return  # 2**64 - 2 rings unheard: it is ringing, which is all that is asked

    def clear(self) -> None:
        """Silence the bell; look for work after this, not before."""
        with self._lock:
            if self._fd == _CLOSED_FD:
                return
            try:
                os.eventfd_read(self._fd)
            except BlockingIOError:
                return

    def fileno(self) -> int:
        """The descriptor to poll; readable while the bell rings. -1: it is closed."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; other processes' copies live on. May be called twice."""
        with self._lock:
            fd, self._fd = self._fd, _CLOSED_FD
            if fd != _CLOSED_FD:
                os.close(fd)
