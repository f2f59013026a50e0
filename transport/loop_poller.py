"""Waits on sockets for an event loop, which watches one descriptor for it (SAFETY M5, M7).

Owns an epoll of the sockets' descriptors, and what each one wakes. Must not know the loop, or what
a message says. For one thread.

A socket's descriptor tells only of what libzmq has not looked at, so a socket that may have input
is asked before its owner waits. The kernel tells of each descriptor's news once (edge-triggered);
the socket remembers it. So no system call is needed when a wait begins or ends, and a socket that
is not waited on does not keep the loop awake.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterable, Sequence

from transport.client_links import Feed, Pusher, Requester
from transport.link_socket import LinkSocket

_EVENTS_MAX = 64


class LoopPoller:
    """`fileno()` is readable when a socket has news; call `dispatch` then."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._sockets: dict[int, LinkSocket] = {}
        self._wakers: dict[int, Callable[[], None]] = {}

    def fileno(self) -> int:
        return self._epoll.fileno()

    def close(self) -> None:
        self._epoll.close()
        self._sockets.clear()
        self._wakers.clear()

    def wait(
        self,
        reads: Sequence[Requester | Pusher | Feed],
        writes: Sequence[Requester | Pusher],
        wake: Callable[[], None],
    ) -> list[int] | None:
        """Have `wake` called once one of `reads` may have a message, or one of `writes` a
        connection and room. None: one has already, and nothing will be called.

        Returns: what `leave` takes, to wait no longer.
        """
        sources = [source for link in reads for source in link.sources]
        sends = [link.socket for link in writes]
        for socket in (*sources, *sends):
            self._register(socket)
        # One question for both: each empties the descriptor of the other's news.
        for socket in sends:
            if socket.has_room() or (socket.hint.may_have_input and socket in sources):
                return None
        for socket in sources:
            if socket.hint.may_have_input and socket not in sends and socket.look():
                return None
        waited = [socket.descriptor for socket in (*sources, *sends)]
        for descriptor in waited:
            self._wakers[descriptor] = wake
        return waited

    def leave(self, waited: Iterable[int]) -> None:
        for descriptor in waited:
            self._wakers.pop(descriptor, None)

    def dispatch(self) -> None:
        """Wake those that wait on a socket with news."""
        for descriptor, _ in self._epoll.poll(0, _EVENTS_MAX):
            socket = self._sockets.get(descriptor)
            if socket is not None:
                socket.hint.may_have_input = True
            wake = self._wakers.get(descriptor)
            if wake is not None:
                wake()

    def _register(self, socket: LinkSocket) -> None:
        """Once for each socket. The kernel forgets a descriptor that is closed, and gives its
        number to another socket."""
        descriptor = socket.descriptor
        if self._sockets.get(descriptor) is not socket:
            self._sockets[descriptor] = socket
            socket.hint.may_have_input = True  # what came before is not told again
            with contextlib.suppress(FileExistsError):
                self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)
