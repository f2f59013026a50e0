"""A virtual network: who listens where, who is connected to whom, and which pairs are cut.

Owns endpoints, the begin and end of connections, and the faults between nodes. Must not know what a
message says, nor threads or clocks. It plays ZeroMQ over TCP and is harsher: single messages of a
connection that works may be lost, duplicated or reordered.

Invariants:
- one scheduler and one `Random` make one history: nothing here iterates over a set;
- a connection that ended delivers nothing more: what its sender had queued or sent is lost, what
  had arrived at the receiver stays readable;
- a fault of one lane of a pair does not touch the other lane;
- a socket that connects retries for ever; a listening one waits.
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
    draw_between,
)
from transport.errors import LinkError, PortInUse
from transport.link import Lane
from transport.socket_options import RECONNECT_MAX_MS, RECONNECT_MIN_MS

DEFAULT_DELAY_NS = (50_000, 500_000)
RETRY_MIN_NS = RECONNECT_MIN_MS * MILLISECOND_NS
RETRY_MAX_NS = RECONNECT_MAX_MS * MILLISECOND_NS
# After which time a socket notices a broken connection: heartbeats, TCP_MAXRT or keepalive.
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
            random: Used for nothing else.
            node_of: The node of an endpoint, whether a socket listens there or not.
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
        self._sockets: dict[VirtualSocket, None] = {}  # those that are open
        self._connections: dict[Connection, None] = {}  # those that a socket still has
        self._names = 0

    def links(self, owner: Owner) -> VirtualLinks:
        """How `owner` opens sockets."""
        return VirtualLinks(self, owner)

    # --- faults ---

    def set_default_delay(self, links: Pairs, delay_ns: tuple[int, int]) -> None:
        """Lowest and highest delay of these pairs unless `set_quality` sets another."""
        for pair in links:
            for conditions in self._conditions_of_pair(pair):
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
        """Set the faults of these pairs; without arguments there are none.

        Args:
            links: Directed pairs.
            delay_ns: Lowest and highest; None is the pair's default.
            loss: How many of 1,000 messages are lost.
            duplication: How many arrive twice; half of the copies are 0.1 to 10 s late.
            reordering: How many are delayed and overtaken.
            lane: Of this lane only; None is both.
        """
        for pair in links:
            for conditions in self._conditions_of_pair(pair, lane):
                conditions.set_quality(
                    delay_ns, loss=loss, duplication=duplication, reordering=reordering
                )

    def cut(self, links: Pairs, mode: str, lane: Lane | None = None) -> None:
        """Let nothing through over these pairs, or one lane of them, until they are healed.

        "drop" loses messages and breaks every connection over a pair, in either direction: each end
        notices after a time of its own, and the other direction delivers until one does. "hold"
        keeps messages in order and breaks nothing. No new connection is made in either mode. The
        last cut of a pair sets its mode.
        """
        if mode not in ("drop", "hold"):
            raise ValueError(f"a cut that drops or holds, not {mode!r}")
        for pair in links:
            for conditions in self._conditions_of_pair(pair, lane):
                conditions.is_dropping = mode == "drop"
                conditions.is_holding = mode == "hold"
                if mode == "drop":
                    for connection in tuple(self._connections):
                        self._break(connection, conditions)

    def heal(self, links: Pairs, lane: Lane | None = None) -> None:
        """End every cut of these pairs, or of one lane of them; held messages arrive now."""
        for pair in links:
            for conditions in self._conditions_of_pair(pair, lane):
                self._release(conditions)

    def heal_all(self) -> None:
        """End every cut and give every pair its default quality."""
        for conditions in self._conditions.values():
            conditions.set_quality(None, loss=0, duplication=0, reordering=0)
        for conditions in tuple(self._conditions.values()):
            self._release(conditions)

    def disconnect(self, links: Pairs, lane: Lane | None = None) -> None:
        """End all connections between these nodes, at both ends at once."""
        nodes = {frozenset(pair) for pair in links}
        for connection in tuple(self._connections):
            connector, listener = connection.connector, connection.listener
            if lane not in (None, connector.lane):
                continue
            if frozenset((connector.owner.node, listener.owner.node)) in nodes:
                self._count_end(connection)
                self._notice_end(connection, connector)
                self._notice_end(connection, listener)

    def close_owner(self, owner: Owner) -> None:
        """`owner` died: close its sockets."""
        for socket in tuple(self._sockets):
            if socket.owner is owner:
                self.close(socket)

    # --- called by sockets ---

    def listen(self, socket: VirtualSocket) -> None:
        """Bind `socket`.

        Raises:
            PortInUse: A socket listens there.
            LinkError: The endpoint is on another node.
        """
        endpoint = socket.endpoint
        if endpoint in self._listeners:
            raise PortInUse(f"{endpoint} in use: a socket listens there")
        if self._node_of(endpoint) != socket.owner.node:
            raise LinkError(f"cannot listen on {endpoint}: not of node {socket.owner.node}")
        self._listeners[endpoint] = socket
        self._sockets[socket] = None

    def connect(self, socket: VirtualSocket) -> None:
        """Connect `socket`; retry until it is closed."""
        self._sockets[socket] = None
        self._scheduler.at(socket.owner.local_now_ns, self._begin, socket)

    def close(self, socket: VirtualSocket) -> None:
        """Close `socket` and end its connections; the peers notice."""
        if socket.is_closed:
            return
        socket.end()
        del self._sockets[socket]
        if self._listeners.get(socket.endpoint) is socket:
            del self._listeners[socket.endpoint]
        for connection in tuple(socket.connections()):
            self.hang_up(connection, socket)

    def hang_up(self, connection: Connection, socket: VirtualSocket) -> None:
        """`socket` ends `connection`: now at this end, after a delay at the other."""
        self._count_end(connection)
        self._notice_end(connection, socket)
        is_there = socket is connection.listener
        other = connection.connector if is_there else connection.listener
        conditions = (connection.to_connector if is_there else connection.to_listener).conditions
        if conditions.is_cut:
            self._notice_late(connection, other)
        else:
            at_ns = self._scheduler.now_ns + conditions.draw_delay_ns(self._random)
            self._scheduler.at(at_ns, self._notice_end, connection, other)

    # --- begin and end of a connection ---

    def _begin(self, socket: VirtualSocket) -> None:
        """A connection is established one round trip later."""
        if socket.is_closed:
            return
        there, back = self._both_directions(socket)
        round_trip_ns = there.draw_delay_ns(self._random) + back.draw_delay_ns(self._random)
        self._scheduler.at(self._scheduler.now_ns + round_trip_ns, self._establish, socket)

    def _establish(self, socket: VirtualSocket) -> None:
        if socket.is_closed:
            return
        listener = self._listeners.get(socket.endpoint)
        there, back = self._both_directions(socket)
        is_cut = there.is_cut or back.is_cut
        if listener is None or is_cut or listener.kind != LISTENER_OF[socket.kind]:
            self._retry(socket)
            return
        name = socket.routing_id or self._new_name()
        older = listener.peers.get(name)
        if older is not None:  # ROUTER_HANDOVER
            self.hang_up(older, listener)
        connection = Connection(socket, listener, name)
        connection.to_listener = self._flow(there, connection.deliver_to_listener)
        connection.to_connector = self._flow(back, connection.deliver_to_connector)
        self._connections[connection] = None
        socket.connection = listener.peers[name] = connection
        socket.retry_ns = 0
        if listener.welcome and listener.welcome.startswith(socket.topics):
            connection.to_connector.send_reliably([listener.welcome])
        for topic in socket.topics:
            connection.to_listener.send_reliably(subscription(topic))
        if socket.on_connection is not None:
            socket.on_connection(True)

    def _retry(self, socket: VirtualSocket) -> None:
        """Try again after 50 ms, then after twice as long each time, up to 2 s."""
        socket.retry_ns = min(max(2 * socket.retry_ns, RETRY_MIN_NS), RETRY_MAX_NS)
        self._scheduler.at(self._scheduler.now_ns + socket.retry_ns, self._begin, socket)
        if socket.on_connection is not None:
            socket.on_connection(False)

    def _break(self, connection: Connection, conditions: Conditions) -> None:
        """Drop what travels under `conditions`; each end notices by itself."""
        is_hit = False
        for flow in (connection.to_listener, connection.to_connector):
            if flow.conditions is conditions:
                flow.drop_all()
                is_hit = True
        if is_hit and not connection.is_ending:
            self._count_end(connection)
            self._notice_late(connection, connection.connector)
            self._notice_late(connection, connection.listener)

    def _notice_late(self, connection: Connection, socket: VirtualSocket) -> None:
        at_ns = self._scheduler.now_ns + draw_between(self._random, NOTICE_NS)
        self._scheduler.at(at_ns, self._notice_end, connection, socket)

    def _notice_end(self, connection: Connection, socket: VirtualSocket) -> None:
        """`socket` notices that `connection` ended; then no direction delivers any more."""
        if not socket.drop_connection(connection):
            return
        connection.lose()
        is_connecting = socket is connection.connector
        other = connection.listener if is_connecting else connection.connector
        if not other.has(connection):
            del self._connections[connection]
        if is_connecting:
            self._retry(socket)

    def _count_end(self, connection: Connection) -> None:
        if not connection.is_ending:
            connection.is_ending = True
            self.counters.disconnected += 1

    # --- parts ---

    def _conditions_of(self, sender: int, receiver: int, lane: Lane) -> Conditions:
        conditions = self._conditions.get((sender, receiver, lane))
        if conditions is None:
            conditions = Conditions(self._default_delay_ns)
            self._conditions[sender, receiver, lane] = conditions
        return conditions

    def _conditions_of_pair(
        self, pair: tuple[int, int], lane: Lane | None = None
    ) -> list[Conditions]:
        """Of one lane of the pair, or of both."""
        return [self._conditions_of(*pair, each) for each in (Lane if lane is None else (lane,))]

    def _release(self, conditions: Conditions) -> None:
        conditions.is_dropping = conditions.is_holding = False
        for connection in tuple(self._connections):
            for flow in (connection.to_listener, connection.to_connector):
                if flow.conditions is conditions:
                    flow.release()

    def _both_directions(self, socket: VirtualSocket) -> tuple[Conditions, Conditions]:
        """The conditions from a connecting socket to its listener's node, and back."""
        here, there, lane = socket.owner.node, self._node_of(socket.endpoint), socket.lane
        return self._conditions_of(here, there, lane), self._conditions_of(there, here, lane)

    def _flow(self, conditions: Conditions, deliver: Callable[[Flow, list[bytes]], None]) -> Flow:
        return Flow(
            conditions,
            deliver,
            scheduler=self._scheduler,
            random=self._random,
            counters=self.counters,
        )

    def _new_name(self) -> bytes:
        """A routing id that no connection of this network had before."""
        self._names += 1
        return b"\0" + self._names.to_bytes(4, "big")
