"""The virtual cluster while its members change: replicas join, become voters, leave, come back.

Three founders and three that may join. Besides the promises of `VirtualCluster`, whose majorities
are those of the configuration in force at the leader, each committed CONFIG follows the one before
it, and its majorities meet those of that one.
"""

from __future__ import annotations

from itertools import combinations

import msgspec

from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.format.level import CONFIG_LEVEL
from logstore.model import NO_NODE, EntryKind, NodeId
from logstore.raft.configuration import PROMOTE_LABEL, by_number, is_joint, members, present
from logstore.raft.core import RaftCore
from logstore.raft.events import ChangeKind, ChangeRequested
from logstore.raft.quorum import VoterSets
from tests.paper.virtual_cluster import VirtualCluster
from tests.paper.virtual_node import VirtualNode

FOUNDERS, JOINERS = 3, 3


def replica(number: int, age: int = 0) -> Member:
    """The `age`-th replica that bears the number, at the one address of that number."""
    uuid = age.to_bytes(8, "big") + number.to_bytes(8, "big")
    return Member(NodeId(number), uuid, f"node-{number}", 7100)


class MemberCluster(VirtualCluster):
    """The log is at the level of CONFIG entries, and has the first one, when it is made."""

    def __init__(self, seed: int) -> None:
        self.requests = 0
        self.lost: list[VirtualNode] = []
        self.parked: dict[NodeId, VirtualNode] = {}  # down, while an old disk is in its machine
        super().__init__(FOUNDERS, seed, joiners=JOINERS)
        loss, self.loss = self.loss, 0.0
        self.heal_and_settle()
        leader = self.leader
        assert leader is not None
        self._ask(leader, ChangeKind.FOUND, members=tuple(map(replica, range(1, FOUNDERS + 1))))
        self.heal_and_settle()
        assert in_force_at(leader.core).id == 1
        self.loss = loss

    def uuid_of(self, node: NodeId) -> bytes:
        return replica(node).uuid

    def act(self) -> None:
        leader = self.leader
        if leader is not None and self.random.random() < 0.02:
            self.change(leader)
        if leader is not None and self.random.random() < 0.001:
            self.lose_a_disk(leader)
        if self.random.random() < 0.002:
            self.exchange_disks()
        super().act()

    def heal_and_settle(self, limit: int = 40_000) -> None:
        for number in list(self.parked):
            self._run_instead(self.parked.pop(number))
        super().heal_and_settle(limit)

    def exchange_disks(self) -> None:
        """A disk that was taken for lost is back, under the number and at the address of the
        replica that took its place, which is down meanwhile; or it is taken away again."""
        if self.parked:
            self._run_instead(self.parked.popitem()[1])
        elif self.lost:
            old = self.random.choice(self.lost)
            self.parked[old.node] = self.nodes[old.node]
            self._run_instead(old)

    def _run_instead(self, node: VirtualNode) -> None:
        self.nodes[node.node] = node
        self.commits[node.node] = 0
        node.crash()
        node.tick(self.now_ns)

    def tick_all(self) -> None:
        """Now and then replicas ask to join, and an operator lets a new one take a lost one's
        place."""
        super().tick_all()
        leader = self.leader
        if leader is None or self.random.random() > 0.1:
            return
        in_force = in_force_at(leader.core)
        for number in self.lost_voters(in_force):
            event = ChangeRequested(0, ChangeKind.REPLACE, number, is_forced=True)
            self.feed(leader, event)
        for node in self.nodes.values():
            asks = node.config.has_joined and in_force.id > 0
            if asks and not any(
                member.uuid != NO_UUID and self.is_replica(member)
                for member in members(in_force)
                if member.number == node.node
            ):
                uuid = node.config.replica_uuid
                joining = msgspec.structs.replace(replica(node.node), uuid=uuid)
                self.feed(leader, ChangeRequested(0, ChangeKind.JOIN, members=(joining,)))

    def is_replica(self, member: Member) -> bool:
        """Whether the member's replica is the one that has its number now."""
        node = self.parked.get(member.number, self.nodes[member.number])
        return member.uuid in (NO_UUID, node.config.replica_uuid)

    def lost_voters(self, in_force: Configuration) -> list[NodeId]:
        return [each.number for each in in_force.voters if not self.is_replica(each)]

    def lose_a_disk(self, leader: VirtualNode) -> None:
        """A voter other than the leader loses its disk, and an empty replica starts in its place.
        Never before the last lost one is whole again: no promise would hold."""
        state = leader.core._state
        in_force = state.configurations.in_force
        is_changing = state.leading is None or state.leading.change is not None
        newest = max(in_force_at(node.core).id for node in self.nodes.values())
        is_settled = state.configurations.newest_index <= leader.core.commit
        if is_joint(in_force) or is_changing or newest > in_force.id or not is_settled:
            return
        if self.lost_voters(in_force):
            return
        is_one_missing = any(PROMOTE_LABEL in each.labels for each in in_force.learners)
        if is_one_missing or self.parked or len(in_force.voters) < 3:
            return
        numbers = [each.number for each in in_force.voters if each.number != leader.node]
        number = self.random.choice(numbers)
        old = self.nodes[number]
        self.lost.append(old)
        age = len(self.lost)
        voters = tuple(each for each in old.config.voters if each != number)
        config = msgspec.structs.replace(
            old.config, voters=voters, has_joined=True, replica_uuid=replica(number, age).uuid
        )
        self.nodes[number] = node = VirtualNode(
            number, config, self.random, others=old.others, contents=self.contents
        )
        self.commits[number] = 0
        node.tick(self.now_ns)

    def is_counted(self, leader: RaftCore, node: VirtualNode) -> bool:
        in_force = in_force_at(leader)
        if not in_force.id:
            return True
        uuid = node.config.replica_uuid
        return any((each.number, each.uuid) == (node.node, uuid) for each in members(in_force))

    @property
    def disks(self) -> list[VirtualNode]:
        """An entry that a replica had flushed when it said so may be acknowledged after it lost its
        disk."""
        return [*self.nodes.values(), *self.lost, *self.parked.values()]

    def change(self, leader: VirtualNode) -> None:
        """An operator asks for a change, mostly a sensible one, but not while a voter is lost."""
        in_force = in_force_at(leader.core)
        if self.lost_voters(in_force):
            return
        learners = [member.number for member in in_force.learners]
        voters = [member.number for member in in_force.voters]
        everybody = list(self.nodes)
        strangers = [node for node in everybody if node not in (*learners, *voters)]
        choose = self.random.choice
        match self.random.randrange(8):
            case 0 | 1:
                number = choose(strangers or voters)
                uuid = choose((NO_UUID, self.nodes[number].config.replica_uuid))
                added = msgspec.structs.replace(replica(number), uuid=uuid)
                self._ask(leader, ChangeKind.ADD, members=(added,))
            case 2 | 3:
                self._ask(leader, ChangeKind.PROMOTE, choose(learners or strangers or voters))
            case 4 | 5:
                self._ask(leader, ChangeKind.REPLACE, choose(voters), choose(learners or voters))
            case 6:
                self._ask(leader, ChangeKind.REMOVE, choose(voters + learners))
            case 7:
                self._ask(self.nodes[choose(everybody)], ChangeKind.REMOVE, choose(everybody))

    def _ask(
        self,
        node: VirtualNode,
        kind: ChangeKind,
        of: int = NO_NODE,
        by: int = NO_NODE,
        members: tuple[Member, ...] = (),
    ) -> None:
        self.requests += 1
        is_forced = self.random.random() < 0.2
        event = ChangeRequested(self.requests, kind, NodeId(of), NodeId(by), members, is_forced)
        self.feed(node, event)

    def committed_configurations(self) -> list[Configuration]:
        """Every CONFIG that is committed, in order, as the disks of all replicas have them."""
        found: dict[int, Configuration] = {}
        for node in self.nodes.values():
            for row in node.durable_rows:
                index = row.header.index
                is_config = row.header.kind == EntryKind.CONFIG
                if is_config and self.committed.get(index) == row.chain:
                    found[index] = self.contents[row.header.body_crc]
        return [found[index] for index in sorted(found)]

    @property
    def is_level(self) -> bool:
        """The members of the newest configuration have the leader's log, and no change is left."""
        leader = self.leader
        if leader is None or not leader.core.is_admitting or leader.core.level < CONFIG_LEVEL:
            return False
        in_force = in_force_at(leader.core)
        if is_joint(in_force) or leader.core._state.leading is None:
            return False
        if leader.core._state.leading.change is not None:
            return False
        if self.lost_voters(in_force):
            return False
        numbers = [member.number for member in present(in_force)]
        if leader.node not in [member.number for member in in_force.voters]:
            return False
        return all(
            node.core.commit == leader.core.last_index == node.core.persisted
            and node.core.last_index == leader.core.last_index
            and not node.unsettled
            for node in (self.nodes[number] for number in numbers)
        )


def by_uuid(configuration: Configuration) -> VoterSets[bytes]:
    """The voters as replicas. The product counts numbers, which must come to the same."""
    return VoterSets(
        tuple(member.uuid for member in configuration.voters),
        tuple(member.uuid for member in configuration.incoming),
    )


def in_force_at(core: RaftCore) -> Configuration:
    return core._state.configurations.in_force


def majorities(sets: VoterSets[NodeId]) -> list[frozenset[NodeId]]:
    """Every smallest set of replicas that has a majority of each set of voters."""
    everyone = sorted({*sets.voters, *sets.incoming})
    return [
        frozenset(some)
        for size in range(1, len(everyone) + 1)
        for some in combinations(everyone, size)
        if sets.is_majority(some)
    ]


def majorities_meet(one: Configuration, other: Configuration) -> bool:
    return all(
        first & second
        for first in majorities(by_number(one))
        for second in majorities(by_number(other))
    )
