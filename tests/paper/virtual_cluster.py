"""A small virtual cluster under a seeded schedule: loss, reordering, late disks, crashes,
partitions.

After every step the promises are checked that a step could have broken: one leader a term, one
vote a term, committed entries never change, acknowledged entries are on a majority of disks,
commit and visibility only rise, every ring range is settled once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from logstore.format.configuration_body import Configuration
from logstore.format.entry import EntryHeader
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL, NEWEST_LEVEL, TRIM_LEVEL
from logstore.format.peer_messages import Append, BulkAnswer, Install, VoteReply
from logstore.model import EntryKind, NodeId, Role
from logstore.raft.core import RaftCore
from logstore.raft.events import (
    AppendReceived,
    ControlReceived,
    DiskFullChanged,
    InstallReceived,
    ReadIndexRequested,
    ReplicatorGone,
    StreamAnswer,
    TransferRequested,
)
from logstore.raft.raft_config import RaftConfig
from tests.paper.virtual_node import MS, Leaving, VirtualNode


def no_trims(_cluster: VirtualCluster, _leader: VirtualNode) -> int:
    return 0


def to_what_all_have(cluster: VirtualCluster, leader: VirtualNode) -> int:
    """Nobody is left below the log start."""
    held = [cluster.durably_committed(node) for node in cluster.nodes.values()]
    return min(leader.core.commit, *held)


def to_what_the_leader_committed(_cluster: VirtualCluster, leader: VirtualNode) -> int:
    """Whoever lags is left below the log start."""
    return leader.core.commit


class Letter(NamedTuple):
    """A message on its way, by which replica of a number it was sent, and in which incarnation."""

    sender: NodeId
    uuid: bytes
    boot: int
    leaving: Leaving


class VirtualCluster:
    """`nodes` replicas and the bag of messages between them. `trims`: how far log starts may move,
    as an index, by what the leader and all disks hold; 0 for not at all."""

    def __init__(
        self,
        nodes: int,
        seed: int,
        *,
        mode: str = "streaming",
        trims: Callable[[VirtualCluster, VirtualNode], int] = no_trims,
        joiners: int = 0,
    ) -> None:
        """`joiners`: further replicas, with the highest numbers, that are no founders."""
        self.reads = 0
        self.trims = trims
        self.random = Random(seed)
        voters = tuple(NodeId(node) for node in range(1, nodes + 1))
        level = FIRST_LEVEL if trims is no_trims else TRIM_LEVEL
        newest = max(level, NEWEST_LEVEL)
        if joiners:
            level = newest = CONFIG_LEVEL
        everybody = tuple(NodeId(node) for node in range(1, nodes + joiners + 1))
        self.contents: dict[int, Configuration] = {}
        self.nodes = {
            node: VirtualNode(
                node,
                RaftConfig(
                    node=node,
                    voters=voters,
                    has_joined=node not in voters,
                    stream_mode=mode,
                    newest_level=newest,
                    new_log_level=level,
                    replica_uuid=self.uuid_of(node),
                ),
                self.random,
                others=[each for each in everybody if each != node],
                contents=self.contents,
            )
            for node in everybody
        }
        self.now_ns = 1_000 * MS
        self.wire: list[Letter] = []
        self.cut: set[tuple[NodeId, NodeId]] = set()
        self.leaders: dict[int, tuple[NodeId, bytes]] = {}
        self.votes: dict[tuple[NodeId, bytes, int], tuple[NodeId, bytes | None]] = {}
        self.committed: dict[int, int] = {}
        self.commits: dict[NodeId, int] = dict.fromkeys(everybody, 0)
        self.loss = self.random.choice([0.0, 0.02, 0.1])
        self.turmoil = self.random.choice([0.002, 0.01, 0.03])
        self.tick_all()

    def uuid_of(self, node: NodeId) -> bytes:
        """Of a replica at the begin; empty: numbers are enough, for none is replaced."""
        return b""

    @property
    def leader(self) -> VirtualNode | None:
        """The leader of the highest term."""
        leading = [node for node in self.nodes.values() if node.core.role == Role.LEADER]
        return max(leading, key=lambda node: node.core.term, default=None)

    # --- one step ---

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.act()

    def act(self) -> None:
        """One random thing happens."""
        draw = self.random.random()
        node = self.nodes[self.random.choice(list(self.nodes))]
        if draw < 0.42:
            for _ in range(3):
                self.deliver_one()
        elif draw < 0.55:
            self.move_disk(node)
        elif draw < 0.75:
            self.move_replicators(node)
        elif draw < 0.85:
            self.offer(node)
        elif draw < 1 - self.turmoil:
            self.now_ns += self.random.randint(1, 10) * MS
            self.tick_all()
        else:
            self.disturb(node)

    def disturb(self, node: VirtualNode) -> None:
        """A rarer event: a crash, a partition or its end, an operator, a lost replicator."""
        match self.random.randrange(10):
            case 0:
                node.crash()
                self.commits[node.node] = 0
                self.feed(node, None)
                node.tick(self.now_ns)
            case 1:
                others = [each for each in self.nodes if each != node.node]
                other = self.random.choice(others or [node.node])
                self.cut |= {(node.node, other), (other, node.node)}
            case 2:  # the leader talks to nobody, and goes on taking proposals
                lonely = (self.leader or node).node
                self.cut |= {(lonely, each) for each in self.nodes}
                self.cut |= {(each, lonely) for each in self.nodes}
            case 3 | 4:
                self.cut.clear()
            case 5:
                target = self.random.choice([NodeId(0), *self.nodes])
                self.feed(node, TransferRequested(1, target))
            case 6:
                self.reads += 1  # an id that is asked twice would be answered twice
                self.feed(node, ReadIndexRequested(self.reads))
            case 7:
                self.restart_replicator(node)
            case 8:  # every process stood still: timeouts everywhere at once
                self.now_ns += self.random.randint(50, 900) * MS
                self.tick_all()
            case 9:
                node.is_disk_full = not node.is_disk_full and self.random.random() < 0.3
                room = (self.random.choice((0, 8 << 10)), self.random.randint(0, 8))
                self.feed(node, DiskFullChanged(node.is_disk_full, *room))

    def restart_replicator(self, node: VirtualNode) -> None:
        if not node.others:
            return
        peer = self.random.choice(node.others)
        node.lanes[peer].clear()
        node.streams[peer] = node._stream_to(peer)
        self.feed(node, ReplicatorGone(peer))

    def tick_all(self) -> None:
        for node in self.nodes.values():
            for leaving in node.tick(self.now_ns):
                self.post(node, leaving)
            self.check(node)

    def move_disk(self, node: VirtualNode) -> None:
        if node.to_write and self.random.random() < 0.6:
            node.write_one()
        else:
            self.feed(node, node.flush_event())
        if self.random.random() < 0.5:
            self.feed(node, node.save_event())
        if node.to_trim and self.random.random() < 0.3:
            self.feed(node, node.trim_event())

    def move_replicators(self, node: VirtualNode) -> None:
        for peer in node.others:
            node.run_lane(peer)
            for _ in range(2):
                sent = node.next_append(peer, self.now_ns)
                if sent is not None:
                    self.post(node, Leaving(peer, sent, None))

    def offer(self, node: VirtualNode) -> None:
        """Ingress offers a group, or one of an earlier offer reaches raft."""
        if node.is_admitting and (most := self.trims(self, node)) and self.random.random() < 0.3:
            node.propose_trim(self.random.choice((self.random.randint(1, most), most)))
        if node.is_admitting and node.takes_batches and len(node.proposals) < 4:
            node.propose(self.now_ns - self.random.randrange(3) * MS)
        if node.proposals and self.random.random() < 0.7:
            self.feed(node, node.proposals.popleft())

    # --- the wire ---

    def post(self, node: VirtualNode, leaving: Leaving) -> None:
        message, uuid = leaving.message, node.config.replica_uuid
        if isinstance(message, VoteReply) and message.is_granted:
            vote = (leaving.peer, leaving.to)
            known = self.votes.setdefault((node.node, uuid, message.term), vote)
            assert known == vote, f"node {node.node} voted twice in term {message.term}"
        self.wire.append(Letter(node.node, uuid, node.boot, leaving))

    def deliver_one(self) -> None:
        if not self.wire:
            return
        at = self.random.randrange(min(len(self.wire), 12))
        letter = self.wire[at]
        if self.random.random() > 0.03:  # a few come twice
            del self.wire[at]
        (target, message, to), sender = letter.leaving, letter.sender
        if (sender, target) in self.cut or self.random.random() < self.loss:
            return
        node = self.nodes[target]
        is_answer = to is not None
        if is_answer and to != node.config.replica_uuid:
            return  # the connection was another replica's
        if node.takes(sender, letter.uuid, self.now_ns, is_answer=is_answer):
            self.arrive(letter, node, message)

    def arrive(self, letter: Letter, node: VirtualNode, message: Any) -> None:
        sender, boot = letter.sender, letter.boot
        if isinstance(message, Append):
            if node.dead_stream == (message.term, message.stream):
                return  # ingress drops what raft has declared dead (W1)
            start, end = node.reserve(message.header.body_size)
            content = self.content_of(message.header)
            self.feed(node, AppendReceived(sender, boot, message, start, end, content))
        elif isinstance(message, Install):
            if node.dead_stream != (message.term, message.stream):
                self.feed(node, InstallReceived(sender, boot, message))
        elif isinstance(message, BulkAnswer):
            for fact in node.streams[sender].on_answer(boot, message, self.now_ns):
                self.feed(node, StreamAnswer(sender, boot, fact))
        else:
            self.feed(node, ControlReceived(sender, boot, message, letter.uuid))

    def content_of(self, header: EntryHeader) -> Configuration | None:
        is_config = header.kind == EntryKind.CONFIG
        return self.contents[header.body_crc] if is_config else None

    def feed(self, node: VirtualNode, event: Any) -> None:
        if event is not None:
            for leaving in node.step(event):
                self.post(node, leaving)
        self.check(node)

    # --- promises ---

    def check(self, node: VirtualNode) -> None:
        core = node.core
        if core.role == Role.LEADER:
            leads = (node.node, node.config.replica_uuid)
            known = self.leaders.setdefault(core.term, leads)
            assert known == leads, f"two leaders in term {core.term}"
        before = self.commits[node.node]
        assert core.commit >= before, f"commit of node {node.node} went back"
        start = node.durable_start.position.index
        assert start <= core.commit or core.is_installing, f"node {node.node} begins above commit"
        if core.is_installing:
            assert core.verified < core.log_start.index > core.persisted
        for index in range(max(before, start) + 1, core.commit + 1):
            row = core.row(index)
            assert row is not None
            chain = self.committed.setdefault(index, row.chain)
            assert chain == row.chain, f"entry {index} differs on node {node.node}"
        self.commits[node.node] = core.commit
        while node.acknowledged:
            _, index = node.acknowledged.pop()
            self.check_on_majority(index, core)

    def check_on_majority(self, index: int, leader: RaftCore) -> None:
        """I10: what is acknowledged is on a majority of the disks, whatever the counters say."""
        chain = self.committed[index]
        holders = {
            each.node
            for each in self.disks
            if self.is_counted(leader, each)
            and (
                each.durable_start.position.index >= index
                or (len(each.durable_rows) >= index and each.durable_rows[index - 1].chain == chain)
            )
        }
        voters = leader._state.voters
        assert voters.is_majority(holders), f"entry {index} is on {holders} of {voters}"

    @property
    def disks(self) -> list[VirtualNode]:
        return list(self.nodes.values())

    def is_counted(self, leader: RaftCore, node: VirtualNode) -> bool:
        """Whether the leader's configuration means this replica by its number."""
        return True

    def durably_committed(self, node: VirtualNode) -> int:
        """How many committed entries the node has on its disk, from the first one on."""
        count = node.durable_start.position.index
        for row in node.durable_rows[count:]:
            if self.committed.get(row.header.index) != row.chain:
                break
            count += 1
        return count

    # --- after the faults ---

    def heal_and_settle(self, limit: int = 40_000) -> None:
        """No more faults: a leader stands, everybody has its log, every ring range is given
        back."""
        self.cut.clear()
        self.loss = 0.0
        for node in self.nodes.values():
            node.is_disk_full = False
            self.feed(node, DiskFullChanged(False))
        for _ in range(limit):
            draw = self.random.random()
            node = self.nodes[self.random.choice(list(self.nodes))]
            if draw < 0.6:
                self.deliver_one()
            elif draw < 0.75:
                self.move_disk(node)
            elif draw < 0.95:
                self.move_replicators(node)
            else:
                if node.proposals:
                    self.feed(node, node.proposals.popleft())
                self.now_ns += 2 * MS
                self.tick_all()
            if self.is_level:
                return
        raise AssertionError(f"not level after {limit} steps: {self.describe()}")

    @property
    def is_level(self) -> bool:
        leader = self.leader
        if leader is None or not leader.is_admitting:
            return False
        return all(
            node.core.commit == leader.core.last_index == node.core.persisted
            and node.core.log_start == leader.core.log_start
            and node.core.last_index == leader.core.last_index
            and node.visible[1] == node.core.commit
            and not node.unsettled
            and not node.to_trim
            for node in self.nodes.values()
        )

    def describe(self) -> list[Any]:
        return [
            (node.node, node.core.role.name, node.core.term, node.core.last_index,
             node.core.commit, node.core.persisted, node.core.match, len(node.unsettled))
            for node in self.nodes.values()
        ]  # fmt: skip
