"""The raft actor among rings; the test is the writer, ingress, egress, the peers and the clock."""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors import topology
from actors.messages import LogRecovered, StartReceived, StatusReported, StatusRequested
from actors.raft import RaftActor
from actors.topology import Counter
from logstore.format.entry import EntryHeader, chain_start
from logstore.format.peer_messages import (
    Append,
    AppendPersisted,
    Heartbeat,
    PreVoteReply,
    StartSeen,
    VoteReply,
)
from logstore.model import EntryKind, ReplicaState
from logstore.raft.effects import Persist, SaveMeta, Truncate
from logstore.raft.events import (
    AppendReceived,
    ControlReceived,
    MetaPersisted,
    Persisted,
    Proposed,
    StreamAnswer,
)
from tests.unit.actor_stage import CLUSTER, OUR_UUID, ActorStage

START_CHAIN = chain_start(CLUSTER)


def recovered(state=ReplicaState.VOTER, damage="") -> LogRecovered:
    """An empty log."""
    return LogRecovered(
        cluster_id=CLUSTER if state == ReplicaState.VOTER else bytes(16),
        replica_uuid=OUR_UUID, boot=1, state=state, nonce=0, term=0, vote=0, start_index=0,
        start_term=0, start_chain=START_CHAIN, start_next_lsn=1, last_row=None, term_runs=(),
        commit_floor=0, persisted=0, faulty=(), damage=damage,
    )  # fmt: skip


class RaftStage:
    def __init__(self, folder: Path, **options) -> None:
        self.stage = ActorStage(folder, **options)
        (folder / "data").mkdir(exist_ok=True)
        self.slots = self.stage.slots
        self.raft = RaftActor(self.stage.station(topology.RAFT))
        self.raft.on_start()

    # --- what others say ---

    def say(self, source: str, *messages, channel: str = "") -> None:
        self.stage.send(source, topology.RAFT, *messages, channel=channel)
        self.stage.work(self.raft)

    def recover(self, *args, **kwargs) -> None:
        report = recovered(*args, **kwargs)
        self.say(topology.WRITER, report)
        if report.state == ReplicaState.VOTER and not report.damage:
            for peer in (2, 3):  # they have seen no other start
                self.hear_of_start(peer, StartSeen(OUR_UUID, 1, 1))

    def hear_of_start(self, peer: int, message, *, boot: int = 1, uuid: bytes = b"") -> None:
        told = StartReceived(peer, uuid or bytes([peer]) * 16, boot, message)
        self.say(topology.INGRESS, told, channel=topology.CONTROL)

    def hear(self, peer: int, message) -> None:
        self.say(topology.INGRESS, ControlReceived(peer, 1, message), channel=topology.CONTROL)

    def hear_heartbeat(self, peer: int, term: int, commit: int = 0) -> None:
        self.hear(peer, Heartbeat(term, commit, 1, 0, 0, 1, START_CHAIN))
        self.flush()

    def match(self, peer: int, index: int) -> None:
        answer = StreamAnswer(peer, 1, AppendPersisted(self.slots[Counter.TERM], index))
        self.say(topology.replicator(peer), answer)

    def flush(self) -> list:
        """Carry out what the writer was told; returns it."""
        told = self.heard(topology.WRITER)
        for order in told:
            match order:
                case SaveMeta():
                    self.say(topology.WRITER, MetaPersisted(order.seq))
                case Persist() | Truncate():
                    self.say(topology.WRITER, Persisted(order.seq))
        return told

    def propose(self, prop: int, *, term: int, gen: int, body: bytes = b"12345678") -> tuple:
        start, end = self.stage.write_body(body)
        proposed = Proposed(term, gen, prop, EntryKind.DATA, 1, 7, start, end, 0)
        self.say(topology.INGRESS, proposed, channel=topology.BULK)
        return start, end

    def append(self, header: EntryHeader, *, term: int, body: bytes = b"", peer: int = 2) -> tuple:
        start, end = self.stage.write_body(body)
        received = AppendReceived(peer, 1, Append(term, 1 << 32, 0, header), start, end)
        self.say(topology.INGRESS, received, channel=topology.BULK)
        return start, end

    def lead(self) -> int:
        """Win the first election; the term."""
        self.time_out()
        self.hear(2, PreVoteReply(1, True))
        self.flush()
        self.hear(2, VoteReply(1, True))
        assert self.slots[Counter.IS_LEADER] == 1
        return 1

    def lead_and_commit(self) -> int:
        """Win, and commit the no-op: admission is open after this."""
        term = self.lead()
        self.flush()
        self.match(2, 1)
        return term

    def time_out(self) -> None:
        """The next timer, or ten seconds without any."""
        timer_ns = min(self.raft.next_timer_ns(), self.stage.now_ns + 10_000_000_000)
        self.pass_time(max(0, timer_ns - self.stage.now_ns))

    def pass_time(self, ns: int, *, is_ingress_alive: bool = True) -> None:
        self.stage.now_ns += ns
        self.slots[self.stage.station(topology.RAFT).slot("ingress.loops")] += is_ingress_alive
        self.stage.work(self.raft)

    def heard(self, target: str) -> list:
        """Everything that `target` was sent meanwhile."""
        found = []
        while some := self.stage.heard(topology.RAFT, target):
            found += some
        return found

    def status(self) -> dict:
        """Raft's part of what `logstore status` shows."""
        self.say(topology.INGRESS, StatusRequested(9), channel=topology.CONTROL)
        heard = self.heard(topology.INGRESS)
        [reported] = [each for each in heard if isinstance(each, StatusReported)]
        return msgspec.json.decode(reported.document)

    def free(self) -> int:
        """FREE after the next housekeeping."""
        self.pass_time(10_000_000)
        return self.stage.freer.free
