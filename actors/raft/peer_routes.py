"""Which replicator serves which member, as configurations come and go (SAFETY C5, C6).

Pure. Owns the numbers, and the replica that each replicator talks to. Must not know rings: what it
decides is returned as orders. A member of the configuration file has a replicator of its own, which
begins with the file's address and takes the first uuid that it hears; other members get a spare,
which runs once it was wanted, and so does a leader that a replica without members was told of.
Invariants: a number has at most one replicator; a number that is no member any more keeps its
replicator until raft sends it nothing more of its term (C9).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from actors import topology
from actors.messages import PeerIs
from logstore.format.configuration_body import NO_UUID, Configuration
from logstore.model import NO_NODE, NodeId
from logstore.raft.configuration import counted, present


class Address(msgspec.Struct, frozen=True):
    """Who a replicator talks to; `uuid` empty: the first one heard."""

    uuid: bytes
    host: str
    port: int


class Bind(msgspec.Struct, frozen=True):
    """Send `peer` to the replicator `actor`, which runs. Its stream must begin then."""

    actor: str
    peer: PeerIs


class Want(msgspec.Struct, frozen=True):
    """Ask the supervisor to start the spare `actor`."""

    actor: str


class Unserved(msgspec.Struct, frozen=True):
    """Every spare is taken: `node` gets nothing. Once, until it has a replicator."""

    node: NodeId


Order = Bind | Want | Unserved
_NOBODY = Address(b"", "", 0)


class _Replicator:
    """One actor. `peer` None: what the configuration file says, which it begins with."""

    __slots__ = ("actor", "address", "is_running", "number", "peer")

    def __init__(self, actor: str, number: NodeId, address: Address, *, is_running: bool) -> None:
        self.actor = actor
        self.number = number
        self.address = address
        self.is_running = is_running
        self.peer: PeerIs | None = None


class PeerRoutes:
    """Of replica `node`. `configured`: host and first port of each other node of its file."""

    def __init__(self, node: NodeId, configured: Mapping[NodeId, tuple[str, int]]) -> None:
        self._node = node
        self._configured = {
            number: Address(b"", host, port) for number, (host, port) in configured.items()
        }
        self._told: dict[NodeId, Address] = {}  # the leader, as the others named it last
        self._wanted = dict(self._configured)
        self.members = tuple(self._wanted)  # the numbers that are to have a replicator
        self._replicators = {
            topology.replicator(number): _Replicator(
                topology.replicator(number), number, address, is_running=True
            )
            for number, address in self._configured.items()
        }
        for spare in topology.SPARE_NAMES:
            self._replicators[spare] = _Replicator(spare, NO_NODE, _NOBODY, is_running=False)
        self._led: set[NodeId] = set()  # was ordered to lead, and not to stop
        self._unserved: set[NodeId] = set()
        self._counted = frozenset(self._wanted)  # a spare that one of these needs no learner keeps
        self._has_configuration = False
        self._seq = 0

    def serving(self) -> dict[NodeId, str]:
        """The actor that runs for each number that has one."""
        return {
            each.number: each.actor
            for each in self._replicators.values()
            if each.number != NO_NODE and each.is_running
        }

    def number_of(self, actor: str) -> NodeId:
        """Whom it serves, or is to serve once it runs; NO_NODE: none."""
        return self._replicators[actor].number

    def take_members(self, configuration: Configuration) -> list[Order]:
        """`configuration` is in force now."""
        self._has_configuration = configuration.id > 0
        self._wanted = (
            _addresses(configuration, self._node)
            if self._has_configuration
            else self._configured | self._told
        )
        self.members = tuple(self._wanted)
        self._counted = frozenset(each.number for each in counted(configuration))
        return self._settle()

    def take_leader(self, number: NodeId, host: str, port: int) -> list[Order]:
        """Another replica says that `number` leads, at this address. Where no configuration names
        the members it is served, too, in place of the leader that was named before."""
        told = {number: Address(b"", host, port)}
        if self._has_configuration or number == self._node or told == self._told:
            return []
        self._told = told
        self._wanted = self._configured | told
        self.members = tuple(self._wanted)
        return self._settle()

    def on_lead(self, number: NodeId) -> None:
        """The replicator of `number` is ordered to lead."""
        self._led.add(number)

    def on_stop(self, number: NodeId) -> list[Order]:
        """Nothing more of the term goes to `number`; NO_NODE: to no number."""
        if number == NO_NODE:
            self._led.clear()
        else:
            self._led.discard(number)
        return self._settle()

    def begin(self, actor: str) -> PeerIs | None:
        """`actor` is started, for the first time or again, and knows its configuration file: what
        it is to be sent; None: nothing."""
        replicator = self._replicators[actor]
        replicator.is_running = True
        if replicator.peer is not None:
            replicator.peer = msgspec.structs.replace(replicator.peer, seq=self._next_seq())
        return replicator.peer

    # --- who serves whom ---

    def _settle(self) -> list[Order]:
        orders: list[Order] = []
        for replicator in self._replicators.values():
            number = replicator.number
            if number != NO_NODE and number not in self._wanted and number not in self._led:
                orders += self._bind(replicator, NO_NODE, _NOBODY)
        for number, address in self._wanted.items():
            found = self._find(number)
            if found is None:
                if number not in self._unserved:
                    orders.append(Unserved(number))
                self._unserved.add(number)
            elif (found.number, found.address) != (number, address):
                orders += self._bind(found, number, address)
        served = {each.number for each in self._replicators.values()}
        self._unserved = {each for each in self._unserved if each in self._wanted} - served
        return orders

    def _find(self, number: NodeId) -> _Replicator | None:
        """Who serves `number`, or may: its own, or a spare, rather one that runs already; for a
        voter also one that serves a learner, unless that gets the log from here. Voters that this
        replica cannot talk to could not elect it."""
        replicators = self._replicators.values()
        for each in replicators:
            if each.number == number:
                return each
        own = self._replicators.get(topology.replicator(number))
        if own is not None:
            return own
        idle = [each for each in replicators if _is_idle_spare(each)]
        if not idle and number in self._counted:
            idle = [each for each in replicators if self._serves_learner(each)]
        return next((each for each in idle if each.is_running), idle[0] if idle else None)

    def _serves_learner(self, replicator: _Replicator) -> bool:
        number = replicator.number
        is_spare = replicator.actor in topology.SPARE_NAMES
        return is_spare and number not in self._counted and number not in self._led

    def _bind(self, replicator: _Replicator, number: NodeId, address: Address) -> list[Order]:
        is_wanted = not replicator.is_running and replicator.peer is None
        replicator.number, replicator.address = number, address
        replicator.peer = PeerIs(number, address.uuid, address.host, address.port, self._next_seq())
        if replicator.is_running:
            return [Bind(replicator.actor, replicator.peer)]
        return [Want(replicator.actor)] if is_wanted else []

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq


def _is_idle_spare(replicator: _Replicator) -> bool:
    return replicator.number == NO_NODE and replicator.actor in topology.SPARE_NAMES


def _addresses(configuration: Configuration, node: NodeId) -> dict[NodeId, Address]:
    """The members that there are replicas of, voters first: not those for which a place is reserved
    only."""
    return {
        each.number: Address(each.uuid if each.uuid != NO_UUID else b"", each.host, each.port)
        for each in present(configuration)
        if each.number != node
    }
