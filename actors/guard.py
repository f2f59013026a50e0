"""How many connections an actor takes, and how much memory each may cost (SAFETY W6).

Owns the bounds on the connections of an actor's listening sockets, and ends connections beyond
them. Must not know what messages say. Ingress and egress in one process share its descriptors, and
see the memory of both. It ends:

- the newest connections beyond the number that the actor takes, at once: older ones go on, and
  libzmq never runs out of descriptors, in which state it would spin, trying to accept;
- a connection that sent more than the largest message without ending one, or more than a client may
  have under way: no other count shows what libzmq keeps of a message without an end;
- a connection that subscribes to more topics, or to a longer one, than a client needs;
- when the process' own memory has grown beyond its bound nevertheless: the connection with most
  unread, or else the one that has longest received nothing of what is sent to it.

A look at a connection costs 5 µs. So the guard looks only after memory has grown, and for a quarter
of the time at most: batches that come and go let memory grow each time. A connection that is ended
loses what is queued on it, as any broken one does; an honest client makes another.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from actors import topology
from actors.station import Station
from logstore.limits import (
    CONNECTION_MEMORY_BYTES,
    CONNECTIONS_MAX,
    DESCRIPTORS_RESERVED,
    KIB,
    MIB,
    PEER_CONNECTIONS_MAX,
    TOPIC_MAX_BYTES,
    TOPICS_MAX,
    TOPICS_PER_CONNECTION_MAX,
)
from transport.listening import Connection, ListeningSocket
from transport.poller import Poller
from transport.process_memory import (
    descriptor_limit,
    give_back_memory,
    open_descriptors,
    private_bytes,
)

LOOK_EVERY_NS = 20_000_000  # where the process works anyway
# Where the process does not work anyway, it is woken at each multiple of this, once for all of its
# guards. A link of 10 Gbit/s sends 250 MB meanwhile.
LOOK_IDLE_NS = 200_000_000
LOOK_AGAIN_NS = 5_000_000  # while memory grows
LOG_EVERY_NS = 10_000_000_000
# How long a look at one connection takes. One of so many parts of the time is spent on looking.
LOOK_COST_NS = 5_000
LOOK_SHARE = 4
# libzmq's thread frees the memory of an ended connection when it gets to it. On a busy machine that
# may be seconds later, and no event tells when: so memory is given back to the system several
# times, each time after twice the wait, which is at most this.
GIVE_BACK_LAST_NS = 5_000_000_000
# How long giving memory back takes at most, for each MiB that the process has. LOOK_SHARE holds for
# it as well.
GIVE_BACK_COST_NS = 40_000
# Memory must grow by so much before the guard looks.
GROWTH_BYTES = 8 * MIB
# A message that is being received may be larger than the largest by what libzmq read at once.
INCOMPLETE_SLACK_BYTES = 256 * KIB
# Of those that are ended because memory is short.
UNREAD_WORTH_BYTES = 1 * MIB
STALLED_NS = 2_000_000_000
LISTENING = (topology.INGRESS, topology.EGRESS)  # the actors with a guard
CONNECTIONS_MIN = 16
NEVER_NS = 1 << 62
SUBSCRIBED, CANCELLED = 1, 0

_log = logging.getLogger(__name__)


class Guarded(msgspec.Struct, frozen=True):
    """A listening socket. `message_max_bytes`: of its largest message, all frames together;
    `unread_max_bytes`: what one connection may have sent ahead of being read; `is_for_peers`: it is
    not counted among the clients'; `spare`: what it takes beyond the process' number."""

    name: str
    socket: Any
    message_max_bytes: int
    unread_max_bytes: int
    is_for_peers: bool = False
    spare: int = 0


class CounterSlots(msgspec.Struct, frozen=True):
    """The counters that show what the guard does."""

    open: int
    most: int
    refused: int
    ended: int


def guards_beside(station: Station) -> int:
    """How many actors have a guard in the process of `station`."""
    return sum(actor in LISTENING for actor in station.layout[station.process])


def memory_max_bytes(station: Station) -> int:
    """What the process of `station` may take for clients: connections, and what a leader's ingress
    has read of them."""
    lent_bytes = station.config.limits.client_memory_bytes
    is_lending = topology.INGRESS in station.layout[station.process]
    return guards_beside(station) * CONNECTION_MEMORY_BYTES + is_lending * lent_bytes


class ConnectionGuard:
    """Guards the sockets of one actor. Those of the simulator have no connections to guard.
    `guards`: how many there are in this process."""

    def __init__(
        self,
        guarded: Sequence[Guarded],
        slots: memoryview,
        counters: CounterSlots,
        *,
        memory_max_bytes: int,
        guards: int,
    ) -> None:
        self._guarded = [each for each in guarded if isinstance(each.socket, ListeningSocket)]
        self._slots = slots
        self._counters = counters
        self._memory_max_bytes = memory_max_bytes
        self._poller = Poller()
        self._is_behind = False  # monitors have more events than were read
        self._due_ns = 0
        self._look_due_ns = 0
        self._log_ns = 0
        self._topics = 0
        self._give_back_ns = NEVER_NS
        self._give_back_wait_ns = 0
        self._give_back_rest_ns = 0  # memory is not given back again before then
        if not self._guarded:
            self._due_ns = NEVER_NS
            return
        self._base_bytes = self._seen_bytes = private_bytes()
        free = descriptor_limit() - open_descriptors() - DESCRIPTORS_RESERVED
        self.connections_max = max(CONNECTIONS_MIN, min(CONNECTIONS_MAX, free // guards))
        slots[counters.most] = self.connections_max
        slots[counters.open] = 0  # a predecessor's, which died with them (M3)

    def watch(self, guarded: Guarded) -> None:
        """Guard one more socket, which was opened later than the others."""
        if isinstance(guarded.socket, ListeningSocket):
            self._guarded.append(guarded)
            self._is_behind = True  # its monitor may have events already

    def forget(self, socket: Any) -> None:
        """`socket` is about to be closed."""
        self._guarded = [each for each in self._guarded if each.socket is not socket]
        clients = (each for each in self._guarded if not each.is_for_peers)
        count = sum(len(each.socket.account.connections) for each in clients)
        self._slots[self._counters.open] = count

    @property
    def next_timer_ns(self) -> int:
        """When to look, or to give memory back. An endless message grows without a wake-up."""
        if self._is_behind:
            return min(self._give_back_ns, self._due_ns)
        idle_ns = (self._due_ns // LOOK_IDLE_NS + 1) * LOOK_IDLE_NS
        return min(self._give_back_ns, idle_ns)

    def do_work(self, now_ns: int) -> None:
        """Every 20 ms: count the connections, and look at what they cost if memory has grown."""
        if now_ns >= self._give_back_ns:
            self._give_back(now_ns)
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + LOOK_EVERY_NS
        self._count(now_ns)
        memory_bytes = self._memory_bytes()
        if memory_bytes < self._seen_bytes:
            self._seen_bytes = memory_bytes
        elif memory_bytes - self._seen_bytes >= GROWTH_BYTES and now_ns >= self._look_due_ns:
            self._seen_bytes = memory_bytes
            looked_at = self._look(now_ns, memory_bytes)
            self._look_due_ns = now_ns + looked_at * LOOK_COST_NS * LOOK_SHARE
            self._due_ns = now_ns + LOOK_AGAIN_NS

    def subscribed(self, socket: Any, frame: bytes, now_ns: int) -> bool:
        """Count a subscription that was just received from `socket`. False: its topic is too long,
        or there are too many, and its connection was ended."""
        if not isinstance(socket, ListeningSocket):
            return True
        connection = self._source(socket, now_ns)
        if connection is None:
            return True
        topic = frame[1:]
        if frame[:1] == bytes((CANCELLED,)):
            self._topics -= topic in connection.topics
            connection.topics.discard(topic)
            return True
        if frame[:1] != bytes((SUBSCRIBED,)) or topic in connection.topics:
            return True
        if self._topics >= TOPICS_MAX:
            every = [each for guarded in self._guarded for each in _connections(guarded)]
            self._topics = sum(len(each.topics) for each in every)
        if (
            len(topic) > TOPIC_MAX_BYTES
            or len(connection.topics) >= TOPICS_PER_CONNECTION_MAX
            or self._topics >= TOPICS_MAX
        ):
            self._end(connection, "of its subscriptions", now_ns)
            return False
        connection.topics.add(topic)
        self._topics += 1
        return True

    # --- numbers ---

    def _count(self, now_ns: int) -> None:
        changed = self._poller.wait([guarded.socket.monitor_end for guarded in self._guarded], 0)
        self._is_behind = False
        if not changed:
            return
        count = 0
        fresh: list[tuple[int, Connection]] = []  # and how many may be there for it to stay
        for guarded in self._guarded:
            new = guarded.socket.refresh(now_ns) if guarded.socket.monitor_end in changed else []
            if guarded.is_for_peers:
                self._end_beyond_peers(guarded, now_ns)
                continue
            most = self.connections_max + guarded.spare
            fresh += [(most, each) for each in new]
            count += len(guarded.socket.account.connections)
        self._is_behind = any(guarded.socket.has_more_events for guarded in self._guarded)
        self._slots[self._counters.open] = count
        if count <= self.connections_max:
            return
        left = count
        for most, connection in reversed(fresh):
            if left > most:
                connection.end()
                self._slots[self._counters.refused] += 1
                left -= 1
        self._warn(
            now_ns,
            f"{count} connections, and {self.connections_max} are taken (at most "
            f"{CONNECTIONS_MAX}, and {descriptor_limit()} descriptors): the newest are refused",
        )

    def _end_beyond_peers(self, guarded: Guarded, now_ns: int) -> None:
        """End connections beyond PEER_CONNECTIONS_MAX, so that strangers do not keep peers out:
        first those that never said anything, without a handshake before those with one, the oldest
        first, then the newest of the others. A follower that loses its connection counts its leader
        as gone (C1), and says nothing in the first second of a new one."""
        found = _connections(guarded)
        beyond = len(found) - PEER_CONNECTIONS_MAX
        if beyond <= 0:
            return
        found.sort(key=_peer_rank)
        for connection in found[:beyond]:
            connection.end()
            self._slots[self._counters.refused] += 1
        self._warn(now_ns, f"{len(found)} connections to the {guarded.name} port: some were ended")

    # --- memory ---

    def _look(self, now_ns: int, memory_bytes: int) -> int:
        """Look at what each connection has unread; returns how many there are. A connection within
        its bound goes on, unless all of them together are too much."""
        most: tuple[int, Connection | None] = (UNREAD_WORTH_BYTES, None)
        stalled: tuple[int, Connection | None] = (STALLED_NS, None)
        is_ended = False
        looked_at = 0
        for guarded in self._guarded:
            for connection in _connections(guarded):
                looked_at += 1
                unread_bytes, stalled_ns = connection.measure(now_ns)
                if self._is_too_much(guarded, connection, unread_bytes):
                    text = f"of {unread_bytes >> 20} MiB unread on the {guarded.name} port"
                    self._end(connection, text, now_ns)
                    is_ended = True
                    continue
                if unread_bytes > most[0]:
                    most = unread_bytes, connection
                if stalled_ns > stalled[0]:
                    stalled = stalled_ns, connection
        if is_ended or memory_bytes - self._base_bytes <= self._memory_max_bytes:
            return looked_at
        costly = most[1] or stalled[1]
        if costly is not None:
            self._end(costly, f"of the process' memory, {memory_bytes >> 20} MiB", now_ns)
        return looked_at

    def _is_too_much(self, guarded: Guarded, connection: Connection, unread_bytes: int) -> bool:
        if unread_bytes > guarded.unread_max_bytes:
            return True
        whole_max = guarded.message_max_bytes + INCOMPLETE_SLACK_BYTES
        if unread_bytes <= whole_max:
            return False
        # The socket has no whole message, so what libzmq has of this connection is one message that
        # has not ended. Bytes that came since the look only make it seem shorter.
        return unread_bytes - connection.kernel_bytes() > whole_max and not (
            guarded.socket.is_readable
        )

    def _end(self, connection: Connection, why: str, now_ns: int) -> None:
        connection.end()
        self._topics -= len(connection.topics)
        connection.topics.clear()
        self._slots[self._counters.ended] += 1
        # The end of another connection must not put these off: strangers could repeat it for ever.
        soon_ns = now_ns + LOOK_AGAIN_NS
        self._due_ns = min(self._due_ns, soon_ns)
        self._give_back_wait_ns = LOOK_AGAIN_NS
        self._give_back_ns = min(self._give_back_ns, max(soon_ns, self._give_back_rest_ns))
        self._warn(now_ns, f"a connection was ended because {why}")

    def _memory_bytes(self) -> int:
        """The process' own memory; as much as was seen last where no descriptor is free to look.
        More strangers may have come since the last count than DESCRIPTORS_RESERVED, and libzmq has
        not closed yet what this count ended."""
        try:
            return private_bytes()
        except OSError:
            return self._seen_bytes

    def _give_back(self, now_ns: int) -> None:
        cost_ns = self._memory_bytes() // MIB * GIVE_BACK_COST_NS
        give_back_memory()
        self._give_back_rest_ns = now_ns + cost_ns * LOOK_SHARE
        self._give_back_wait_ns *= 2
        is_last = self._give_back_wait_ns > GIVE_BACK_LAST_NS
        next_ns = max(now_ns + self._give_back_wait_ns, self._give_back_rest_ns)
        self._give_back_ns = NEVER_NS if is_last else next_ns

    def _source(self, socket: ListeningSocket, now_ns: int) -> Connection | None:
        """The connection of the message that was just taken."""
        account = socket.account
        found = account.connections.get(account.source)
        if found is None:
            self._count(now_ns)
            found = account.connections.get(account.source)
        return found

    def _warn(self, now_ns: int, text: str) -> None:
        if now_ns >= self._log_ns:
            self._log_ns = now_ns + LOG_EVERY_NS
            _log.warning("%s", text)


def _peer_rank(connection: Connection) -> tuple[int, int]:
    """The lowest is ended first."""
    if connection.has_spoken():
        return 2, -connection.accepted_ns
    return int(connection.has_shaken_hands()), connection.accepted_ns


def _connections(guarded: Guarded) -> list[Connection]:
    return list(guarded.socket.account.connections.values())
