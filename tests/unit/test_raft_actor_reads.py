"""Where the raft actor sends read indexes: ingress and egress both ask for them (SAFETY V5)."""

from __future__ import annotations

from actors import topology
from actors.messages import READS_OF_INGRESS
from logstore.format.peer_messages import HeartbeatReply
from logstore.raft.effects import Admit, Committed, ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from tests.unit.raft_stage import RaftStage


def ask(raft, source, request_id):
    channel = topology.CONTROL if source == topology.INGRESS else ""
    raft.say(source, ReadIndexRequested(request_id), channel=channel)


def test_a_read_index_goes_back_to_who_asked_behind_the_commit_it_stands_for(tmp_path):
    """Ingress answers from its table, which must hold all that the index covers."""
    raft = RaftStage(tmp_path)
    raft.recover()
    term = raft.lead_and_commit()
    [admit] = [each for each in raft.heard(topology.INGRESS) if isinstance(each, Admit)]
    raft.propose(0, term=term, gen=admit.gen)
    raft.flush()
    raft.match(2, 2)
    ask(raft, topology.INGRESS, READS_OF_INGRESS + 1)
    ask(raft, topology.EGRESS, 1)
    for round_ in range(1, 4):
        raft.hear(2, HeartbeatReply(term, round_, 2, 0, 0))
    told = [
        each
        for each in raft.heard(topology.INGRESS)
        if isinstance(each, Committed | ReadIndexAnswered)
    ]
    assert told == [Committed(term, 2), ReadIndexAnswered(READS_OF_INGRESS + 1, True, 1)]
    assert raft.heard(topology.EGRESS)[-1] == ReadIndexAnswered(1, True, 1)


def test_before_recovery_each_is_told_by_itself_that_there_is_no_leader_here(tmp_path):
    raft = RaftStage(tmp_path)
    for source, request_id in ((topology.EGRESS, 5), (topology.INGRESS, READS_OF_INGRESS + 5)):
        ask(raft, source, request_id)
        assert raft.heard(source) == [ReadIndexAnswered(request_id, False, 0)]
