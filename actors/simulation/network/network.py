"""A virtual network: who listens where, who is connected to whom, and which wires are cut.

Owns endpoints, the making and the end of connections, and the faults between nodes. Must not know
what a message says, nor threads or clocks: a scheduler has the time, a given `Random` the chance.
It stands in for ZeroMQ over TCP and is harsher: single messages of a living connection may vanish,
come twice or overtake each other. Invariants:
- one scheduler and one `Random`, one history: nothing here iterates over a set or asks a machine;
- a connection that ended never delivers again: what its sender had queued or sent is lost, what had
  arrived at a living receiver stays there;
- faults of one lane leave the other lane of the same pair alone;
- who connected tries again for ever; who is bound waits.
Sizes of frames are checked; any address may be bound. A connection is of the lane of the socket
that connects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import zmq

from actors.simulation.network.links import VirtualLinks
from actors.simulation.network.socket import Connection, VirtualSocket, subscription
from actors.simulation.network.wire import (
    MILLISECOND_NS,
    SECOND_NS,
    Conditions,
    Flow,
    NetworkCounters,
    Owner,
    Scheduler,
    between,
)
from transport.errors import LinkError, PortInUse
from transport.link import Lane
from transport.socket_options import RECONNECT_MAX_MS, RECONNECT_MIN_MS

DEFAULT_DELAY_NS = (50_000, 500_000)
RETRY_MIN_NS = RECONNECT_MIN_MS * MILLISECOND_NS
RETRY_MAX_NS = RECONNECT_MAX_MS * MILLISECOND_NS
# How long an end takes to notice that nothing comes through: heartbeats, TCP_MAXRT or keepalive.
NOTICE_NS = (200 * MILLISECOND_NS, 4 * SECOND_NS)
LISTENER_OF: dict[int, int] = {zmq.DEALER: zmq.ROUTER, zmq.PUSH: zmq.PULL, zmq.SUB: zmq.XPUB}

Pairs = Iterable[tuple[int, int]]


class VirtualNetwork:
    """All endpoints and wires of a virtual world. Pairs are directed: (from node, to node)."""

    def __init__(
        self,
        scheduler: Scheduler,
        random: Random,
        *,
        node_of: Callable[[str], int],
        default_delay_ns: tuple[int, int] = DEFAULT_DELAY_NS,
    ) -> None:
        """Make a network without sockets.

        Args:
            scheduler: Runs every event of this network.
            random: Drawn from by nobody else.
            node_of: On which node an endpoint is, whether somebody listens there or not.
            default_delay_ns: Lowest and highest delay of every pair.
        """
        self.counters = NetworkCounters()
        # Called with each accepted message; the frames must not be changed.
        self.on_send: Callable[[Owner, str, list[bytes]], None] | None = None
        self._scheduler = scheduler
        self._random = random
        self._node_of = node_of
        self._default_delay_ns = default_delay_ns
        self._conditions: dict[tuple[int, int, Lane], Conditions] = {}
        self._listeners: dict[str, VirtualSocket] = {}
        self._sockets: dict[VirtualSocket, None] = {}  # living ones, in order of their making
        self._connections: dict[Connection, None] = {}  # those with an end that is still there
        self._names = 0

    def links(self, owner: Owner) -> VirtualLinks:
        """How `owner` opens sockets."""
        return VirtualLinks(self, owner)

    # --- faults ---

    def set_default_delay(self, links: Pairs, delay_ns: tuple[int, int]) -> None:
        """Lowest and highest delay of these pairs while no quality says otherwise."""
        for pair in links:
            for conditions in self._of(pair):
                conditions.set_default_delay(delay_ns)

    def set_quality(
        self,
        links: Pairs,
        delay_ns: tuple[int, int] | None = None,
        loss: int = 0,
        duplication: int = 0,
        reordering: int = 0,
        lane: Lane | None = None,
    ) -> None:
        """From now on, messages of these pairs meet this; without arguments, nothing.

        Args:
            links: Directed pairs.
            delay_ns: Lowest and highest; None is the pair's default.
            loss: Of 1,000 messages, so many vanish; so many
            duplication: arrive again, half of them 0.1 to 10 s later; so many
            reordering: take longer and are overtaken.
            lane: Of this lane only; None is both.
        """
        for pair in links:
            for conditions in self._of(pair, lane):
                conditions.set_quality(
                    delay_ns, loss=loss, duplication=duplication, reordering=reordering
                )

    def cut(self, links: Pairs, mode: str, lane: Lane | None = None) -> None:
        """Let nothing through over these pairs, or one lane of them, until they are healed.

        "drop" loses it and breaks every connection over a pair, whichever direction it is: each end
        notices after a time of its own, the other direction delivers until one does. "hold" keeps
        it, in order, and breaks nothing. Neither lets a new connection be made. The last cut of a
        pair says how it is cut.
        """
        if mode not in ("drop", "hold"):
            raise ValueError(f"a cut that drops or holds, not {mode!r}")
        for pair in links:
            for conditions in self._of(pair, lane):
                conditions.is_dropping = mode == "drop"
                conditions.is_holding = mode == "hold"
                if mode == "drop":
                    for connection in tuple(self._connections):
                        self._break(connection, conditions)

    def heal(self, links: Pairs, lane: Lane | None = None) -> None:
        """End every cut of these pairs, or of one lane of them; what was held back arrives now."""
        for pair in links:
            for conditions in self._of(pair, lane):
                self._release(conditions)

    def heal_all(self) -> None:
        """End every cut and give every pair its default quality."""
        for conditions in self._conditions.values():
            conditions.set_quality(None, loss=0, duplication=0, reordering=0)
        for conditions in tuple(self._conditions.values()):
            self._release(conditions)

    def disconnect(self, links: Pairs, lane: Lane | None = None) -> None:
        """End all connections between these nodes, whoever made them, at both ends at once."""
        nodes = {frozenset(pair) for pair in links}
        for connection in tuple(self._connections):
            connecting, binding = connection.connecting, connection.binding
            if lane not in (None, connecting.lane):
                continue
            if frozenset((connecting.owner.node, binding.owner.node)) in nodes:
                self._count_end(connection)
                self._part(connection, connecting)
                self._part(connection, binding)

    def close_owner(self, owner: Owner) -> None:
        """`owner` is dead: close all it has."""
        for socket in tuple(self._sockets):
            if socket.owner is owner:
                self.close(socket)

    # --- what sockets ask for ---

    def listen(self, socket: VirtualSocket) -> None:
        """Bind `socket`.

        Raises:
            PortInUse: A living socket holds the endpoint.
            LinkError: The endpoint is on another node.
        """
        endpoint = socket.endpoint
        if endpoint in self._listeners:
            raise PortInUse(f"{endpoint} in use: a living socket listens there")
        if self._node_of(endpoint) != socket.owner.node:
            raise LinkError(f"cannot listen on {endpoint}: not of node {socket.owner.node}")
        self._listeners[endpoint] = socket
        self._sockets[socket] = None

    def connect(self, socket: VirtualSocket) -> None:
        """Try to connect `socket`, now and until it is closed."""
        self._sockets[socket] = None
        self._scheduler.at(socket.owner.local_now_ns, self._begin, socket)

    def close(self, socket: VirtualSocket) -> None:
        """`socket` ends with all its connections; the peers notice."""
        if socket.is_closed:
            return
        socket.end()
        del self._sockets[socket]
        if self._listeners.get(socket.endpoint) is socket:
            del self._listeners[socket.endpoint]
        for connection in tuple(socket.connections()):
            self.hang_up(connection, socket)

    def hang_up(self, connection: Connection, socket: VirtualSocket) -> None:
        """`socket` ends `connection`: at once here, after a delay at the other end."""
        self._count_end(connection)
        self._part(connection, socket)
        is_there = socket is connection.binding
        other = connection.connecting if is_there else connection.binding
        conditions = (connection.back if is_there else connection.there).conditions
        if conditions.is_cut:
            self._notice_late(connection, other)
        else:
            at_ns = self._scheduler.now_ns + conditions.draw_delay_ns(self._random)
            self._scheduler.at(at_ns, self._part, connection, other)

    # --- the life of a connection ---

    def _begin(self, socket: VirtualSocket) -> None:
        """The first packet leaves; the answer comes a round trip later."""
        if socket.is_closed:
            return
        there, back = self._ways(socket)
        round_trip_ns = there.draw_delay_ns(self._random) + back.draw_delay_ns(self._random)
        self._scheduler.at(self._scheduler.now_ns + round_trip_ns, self._establish, socket)

    def _establish(self, socket: VirtualSocket) -> None:
        if socket.is_closed:
            return
        listener = self._listeners.get(socket.endpoint)
        there, back = self._ways(socket)
        is_cut = there.is_cut or back.is_cut
        if listener is None or is_cut or listener.kind != LISTENER_OF[socket.kind]:
            self._retry(socket)
            return
        name = socket.routing_id or self._new_name()
        older = listener.peers.get(name)
        if older is not None:  # ROUTER_HANDOVER
            self.hang_up(older, listener)
        connection = Connection(socket, listener, name)
        connection.there = self._flow(there, connection.deliver_there)
        connection.back = self._flow(back, connection.deliver_back)
        self._connections[connection] = None
        socket.connection = listener.peers[name] = connection
        socket.retry_ns = 0
        if listener.welcome and listener.welcome.startswith(socket.topics):
            connection.back.carry_safely([listener.welcome])
        for topic in socket.topics:
            connection.there.carry_safely(subscription(topic))
        if socket.on_connection is not None:
            socket.on_connection(True)

    def _retry(self, socket: VirtualSocket) -> None:
        """Wait 50 ms, and twice as long each time after that, up to 2 s."""
        socket.retry_ns = min(max(2 * socket.retry_ns, RETRY_MIN_NS), RETRY_MAX_NS)
        self._scheduler.at(self._scheduler.now_ns + socket.retry_ns, self._begin, socket)
        if socket.on_connection is not None:
            socket.on_connection(False)

    def _break(self, connection: Connection, conditions: Conditions) -> None:
        """Nothing comes through where `conditions` hold; both ends find out by themselves."""
        is_hit = False
        for flow in (connection.there, connection.back):
            if flow.conditions is conditions:
                flow.lose()
                is_hit = True
        if is_hit and not connection.is_ending:
            self._count_end(connection)
            self._notice_late(connection, connection.connecting)
            self._notice_late(connection, connection.binding)

    def _notice_late(self, connection: Connection, socket: VirtualSocket) -> None:
        at_ns = self._scheduler.now_ns + between(self._random, NOTICE_NS)
        self._scheduler.at(at_ns, self._part, connection, socket)

    def _part(self, connection: Connection, socket: VirtualSocket) -> None:
        """`socket` knows now that `connection` is over; without one of its ends it is."""
        if not socket.forget(connection):
            return
        connection.lose()
        is_connecting = socket is connection.connecting
        other = connection.binding if is_connecting else connection.connecting
        if not other.has(connection):
            del self._connections[connection]
        if is_connecting:
            self._retry(socket)

    def _count_end(self, connection: Connection) -> None:
        if not connection.is_ending:
            connection.is_ending = True
            self.counters.disconnected += 1

    # --- parts ---

    def _between(self, sender: int, receiver: int, lane: Lane) -> Conditions:
        conditions = self._conditions.get((sender, receiver, lane))
        if conditions is None:
            conditions = Conditions(self._default_delay_ns)
            self._conditions[sender, receiver, lane] = conditions
        return conditions

    def _of(self, pair: tuple[int, int], lane: Lane | None = None) -> list[Conditions]:
        """Those of one lane of the pair, or of both."""
        return [self._between(*pair, each) for each in (Lane if lane is None else (lane,))]

    def _release(self, conditions: Conditions) -> None:
        conditions.is_dropping = conditions.is_holding = False
        for connection in tuple(self._connections):
            for flow in (connection.there, connection.back):
                if flow.conditions is conditions:
                    flow.release()

    def _ways(self, socket: VirtualSocket) -> tuple[Conditions, Conditions]:
        """From a connecting socket to its listener's node, and back."""
        here, there, lane = socket.owner.node, self._node_of(socket.endpoint), socket.lane
        return self._between(here, there, lane), self._between(there, here, lane)

    def _flow(self, conditions: Conditions, deliver: Callable[[Flow, list[bytes]], None]) -> Flow:
        return Flow(
            conditions,
            deliver,
            scheduler=self._scheduler,
            random=self._random,
            counters=self.counters,
        )

    def _new_name(self) -> bytes:
        """A routing id that no connection of this world had before."""
        self._names += 1
        return b"\0" + self._names.to_bytes(4, "big")
