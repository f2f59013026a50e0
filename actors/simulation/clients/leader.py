"""Who leads: asks any node, follows its hint, until a node says so of itself.

Owns one question at a time. What a node says of another one is a hint; only what it says of itself
is believed, and even that may be stale (the log decides).
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Asker
from actors.simulation.clients.host import MS_NS, NEVER_NS
from actors.simulation.clients.wire import Wire
from logstore.format.client_messages import ErrorReply, MetadataReply, MetadataRequest
from logstore.settings import PortOffset

_PAUSE_NS = (20 * MS_NS, 200 * MS_NS)
_TRUST = 0.15


class _Document(msgspec.Struct):
    node: int
    leader: int


_DECODER = msgspec.json.Decoder(_Document)


class LeaderFinder:
    """Call `poll` until it names a node; then it rests until `begin`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._asker: Asker | None = None  # of the node that is asked now
        self._askers: dict[int, Asker] = {}  # of this search, by node
        self._next_node = 0
        self._is_trusting = False
        self._resume_ns = NEVER_NS

    def begin(self, at_ns: int, *, hint: int = 0) -> None:
        """Look anew from `at_ns` on. `hint`: the node to ask first, if it is one.

        Now and then the hint, or any node, is taken for the leader unasked: it will say so itself
        if it is not.
        """
        self.close()
        host = self._wire.host
        self._next_node = hint if hint in host.nodes else host.any_node()
        self._is_trusting = host.random.random() < _TRUST
        self._resume_ns = at_ns

    def poll(self, now_ns: int) -> int:
        """The leader's node id, 0 as long as it is not found."""
        asker = self._asker
        if asker is None:
            if now_ns < self._resume_ns:
                return 0
            if self._is_trusting:
                self.close()
                return self._next_node
            self._ask(now_ns)
            return 0
        answer = asker.poll(now_ns)
        if answer is None:
            if asker.is_late(now_ns):
                asker.close()
                del self._askers[asker.node]
                self._turn_to(0, now_ns)
            return 0
        if isinstance(answer.message, ErrorReply):
            self._turn_to(0, now_ns)
            return 0
        document = self._read(answer.message.document)
        if document is None or document.leader != asker.node:
            self._turn_to(document.leader if document is not None else 0, now_ns)
            return 0
        self.close()
        return asker.node

    def sockets(self) -> list[Any]:
        return [] if self._asker is None else [self._asker.socket]

    def next_timer_ns(self) -> int:
        return self._resume_ns if self._asker is None else self._asker.next_timer_ns()

    def close(self) -> None:
        for asker in self._askers.values():
            asker.close()
        self._askers.clear()
        self._asker = None
        self._resume_ns = NEVER_NS

    def _ask(self, now_ns: int) -> None:
        node = self._next_node
        asker = self._asker = self._askers.get(node) or Asker(self._wire, node, PortOffset.CONTROL)
        self._askers[node] = asker
        asker.ask(MetadataRequest(), MetadataReply, now_ns)

    def _turn_to(self, hint: int, now_ns: int) -> None:
        """Ask the node that was named, or after a while another one."""
        host = self._wire.host
        asked = self._asker.node if self._asker is not None else 0
        self._asker = None
        if hint and hint != asked and hint in host.nodes:
            # a pause here, too: two nodes that name each other must not be asked in a circle
            self._next_node, self._resume_ns = hint, now_ns + MS_NS
        else:
            self._next_node = host.any_node(but=asked)
            self._resume_ns = now_ns + host.random.randrange(*_PAUSE_NS)

    def _read(self, document: bytes) -> _Document | None:
        try:
            return _DECODER.decode(document)
        except msgspec.DecodeError as error:
            self._wire.violated(Invariant.I11, f"metadata that does not decode: {error}")
            return None
