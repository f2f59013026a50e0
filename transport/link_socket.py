"""A ZeroMQ socket that knows whether it may have input, so that few are asked (SAFETY M5, M7).

Asking a socket for its events costs two system calls, and a process of a replica has up to five
sockets, most of them silent. libzmq makes a descriptor readable when something came that the socket
has not looked at. So a socket may have input:
  - at first;
  - when its descriptor was found readable;
  - after a send, which may look at what came, and then the descriptor is not readable any more.
It has none from when it was asked and said so. Whoever polls the descriptor must ask first a socket
that may have input.
"""

from __future__ import annotations

from typing import Any

import zmq

_POLLIN = int(zmq.POLLIN)
_POLLOUT = int(zmq.POLLOUT)
_EVENTS = int(zmq.EVENTS)


class InputHint:
    """Apart from its socket, because pyzmq takes 3 µs to set an attribute of a socket."""

    __slots__ = ("has_message", "may_have_input")

    def __init__(self) -> None:
        self.may_have_input = True
        self.has_message = False  # a poll has just seen one; a receive need not ask again


class LinkSocket(zmq.Socket[Any]):
    """Created by `transport.link` and `transport.client_links`, which send, receive and poll."""

    # pyzmq takes an attribute of a socket for an option unless its class has it
    hint: InputHint = InputHint()
    descriptor: int = -1

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.hint = InputHint()
        self.descriptor = int(self.getsockopt(zmq.FD))

    def may_receive(self) -> bool:
        """For a receive: whether a message waits. Asks libzmq, 1.6 µs and two system calls, only
        where it may. Hot."""
        hint = self.hint
        if hint.has_message:
            hint.has_message = False
            return True
        return hint.may_have_input and self.has_input()

    def look(self) -> bool:
        """For a poll: whether a message waits; the next receive need not ask."""
        hint = self.hint
        if not hint.has_message:
            hint.has_message = self.has_input()
        return hint.has_message

    def has_input(self) -> bool:
        """Ask libzmq whether a message waits, and remember what it said: the descriptor is not
        readable any more."""
        return bool(self._events() & _POLLIN)

    def has_room(self) -> bool:
        """Ask libzmq whether a message can be sent: there is a connection, and room."""
        return bool(self._events() & _POLLOUT)

    def _events(self) -> int:
        events = int(self.getsockopt(_EVENTS))
        self.hint.may_have_input = bool(events & _POLLIN)
        return events
