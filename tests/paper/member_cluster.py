"""The virtual cluster while its members change: replicas join, become voters, leave, come back.

Three founders and three that may join. Besides the promises of `VirtualCluster`, whose majorities
are those of the configuration in force at the leader, each committed CONFIG follows the one before
it, and its majorities meet those of that one.
"""

from __future__ import annotations

from itertools import combinations

from logstore.format.configuration_body import Configuration, Member
from logstore.format.level import CONFIG_LEVEL
from logstore.model import NO_NODE, EntryKind, NodeId
from logstore.raft.configuration import Refused, by_number, finish, is_joint, members
from logstore.raft.core import RaftCore
from logstore.raft.events import ChangeKind, ChangeRequested
from logstore.raft.membership import _wanted
from logstore.raft.quorum import VoterSets
from tests.paper.virtual_cluster import VirtualCluster
from tests.paper.virtual_node import VirtualNode

FOUNDERS, JOINERS = 3, 3


def replica(number: int) -> Member:
    return Member(NodeId(number), number.to_bytes(16, "big"), f"node-{number}", 7100)


class MemberCluster(VirtualCluster):
    """The log is at the level of CONFIG entries, and has the first one, when it is made."""

    def __init__(self, seed: int) -> None:
        self.requests = 0
        super().__init__(FOUNDERS, seed, joiners=JOINERS)
        loss, self.loss = self.loss, 0.0
        self.heal_and_settle()
        leader = self.leader
        assert leader is not None
        self._ask(leader, ChangeKind.FOUND, members=tuple(map(replica, range(1, FOUNDERS + 1))))
        self.heal_and_settle()
        assert in_force_at(leader.core).id == 1
        self.loss = loss

    def act(self) -> None:
        leader = self.leader
        if leader is not None and self.random.random() < 0.02:
            self.change(leader)
        super().act()

    def change(self, leader: VirtualNode) -> None:
        """An operator asks for a change, mostly a sensible one."""
        in_force = in_force_at(leader.core)
        learners = [member.number for member in in_force.learners]
        voters = [member.number for member in in_force.voters]
        everybody = list(self.nodes)
        strangers = [node for node in everybody if node not in (*learners, *voters)]
        choose = self.random.choice
        match self.random.randrange(8):
            case 0 | 1:
                self._ask(leader, ChangeKind.ADD, members=(replica(choose(strangers or voters)),))
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
        self._know(in_force_at(node.core), event)
        self.feed(node, event)

    def _know(self, in_force: Configuration, event: ChangeRequested) -> None:
        """Give what may be proposed now a key, and what that leads to."""
        wanted = _wanted(in_force, event)
        while not isinstance(wanted, Refused):
            if wanted not in self.contents.values():
                self.contents[len(self.contents) + 1] = wanted
            wanted = finish(wanted)

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
        numbers = [member.number for member in members(in_force)]
        if leader.node not in [member.number for member in in_force.voters]:
            return False
        return all(
            node.core.commit == leader.core.last_index == node.core.persisted
            and node.core.last_index == leader.core.last_index
            and not node.unsettled
            for node in (self.nodes[number] for number in numbers)
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
