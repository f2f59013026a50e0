"""Waits on sockets, bells and descriptors together (SAFETY M5, M7).

Owns the order in which libzmq and the kernel are asked. Nothing else in this package waits for a
peer. Must not know what a message says, or why a bell rings.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from time import monotonic_ns

from transport.link_socket import InputHint, LinkSocket
from transport.ports import Pollable

_MILLISECOND_NS = 1_000_000


class Poller:
    """Takes one system call where no socket has input already, and registers anew only where the
    set has changed. `zmq_poll` takes two calls for each socket before it waits, and two after."""

    def __init__(self) -> None:
        self._given: Sequence[Pollable] = ()
        self._items: list[Pollable] = []
        self._writes: list[LinkSocket] = []
        self._reads: list[tuple[LinkSocket, InputHint]] = []  # the sockets among the items
        self._of_descriptor: dict[int, Pollable] = {}
        self._poll = select.poll()

    def wait(
        self,
        items: Sequence[Pollable],
        timeout_ms: int | None,
        writes: Sequence[LinkSocket] = (),
    ) -> list[Pollable]:
        """Those of `items` that can be read and those of `writes` that can be sent on, as soon as
        there is one; empty after `timeout_ms`.

        A socket's descriptor tells only of what libzmq has not looked at yet, so a socket that may
        have input is asked first, which empties the descriptor. One whose descriptor is readable is
        asked then, for it need not be a message. A signal handler runs, then the wait continues: a
        handler that must end the wait rings a bell that is waited on.

        Args:
          items: sockets of this package, descriptors, or objects with `fileno()`; a list that was
            given is not changed later.
          timeout_ms: None waits without limit.
          writes: sockets that wait for a connection, or for room.
        """
        if (items is not self._given and self._items != list(items)) or (
            (writes or self._writes) and self._writes != list(writes)
        ):
            self._register(items, writes)
        self._given = items
        ready: list[Pollable] = [
            socket for socket, hint in self._reads if hint.may_have_input and socket.look()
        ]
        if self._writes:
            ready += [socket for socket in self._writes if self._may_go_on(socket)]
        begun_ns = monotonic_ns()
        left_ms = 0 if ready else timeout_ms
        while True:
            found = self._poll.poll(left_ms)
            for descriptor, _ in found:
                item = self._of_descriptor[descriptor]
                if not isinstance(item, LinkSocket) or (item not in ready and self._is_ready(item)):
                    ready.append(item)
            if ready or not found:
                return ready
            if timeout_ms is not None:  # nothing but libzmq's own news
                left_ms = max(0, timeout_ms - (monotonic_ns() - begun_ns) // _MILLISECOND_NS)

    def _is_ready(self, socket: LinkSocket) -> bool:
        return self._may_go_on(socket) if socket in self._writes else socket.look()

    def _may_go_on(self, socket: LinkSocket) -> bool:
        """Whether one of `writes` has room, or a message if that is waited for, too: asked at once,
        for each question empties the descriptor of the other's news."""
        return socket.has_room() or (
            socket.hint.may_have_input and (socket, socket.hint) in self._reads
        )

    def _register(self, items: Sequence[Pollable], writes: Sequence[LinkSocket]) -> None:
        self._items, self._writes = list(items), list(writes)
        self._reads = [(item, item.hint) for item in items if isinstance(item, LinkSocket)]
        self._of_descriptor = {_descriptor(item): item for item in (*items, *writes)}
        self._poll = select.poll()
        for descriptor in self._of_descriptor:
            self._poll.register(descriptor, select.POLLIN)


def _descriptor(item: Pollable) -> int:
    if isinstance(item, LinkSocket):
        return item.descriptor
    return item if isinstance(item, int) else item.fileno()
