"""The reach observer counts each situation that it names, and nothing similar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from actors.observer import FolderRecovered, PairsRemoved, RetryKnown, SpareUsed
from actors.simulation.checkers.client_facts import BatchRefused, RangeGone, TrimRefused
from actors.simulation.checkers.consequences import SessionOrdered, TrimRead
from actors.simulation.checkers.facts import (
    CoreMade,
    PowerCutAfterLie,
    RingOverwritten,
    SessionDenied,
    Stepped,
    TableRebuilt,
)
from actors.simulation.checkers.reads import Table
from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.checkers.steps import dispatch_parts
from actors.simulation.oracle.reach import MUST_REACH, Reach, ReachObserver, missing
from logstore.errors import ErrorCode
from logstore.format.entry import EntryHeader, Row
from logstore.format.meta import LogStart
from logstore.format.peer_messages import (
    AppendPersisted,
    Heartbeat,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
)
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.format.trim_entry import TrimEntry, TrimReason
from logstore.model import AckLevel, EntryKind, Index, Lsn, NodeId, Role, SequenceMode, Term
from logstore.raft.effects import (
    Answer,
    ApplyTrim,
    Committed,
    Lead,
    MoveLogStart,
    Persist,
    ReadIndexAnswered,
    SaveMeta,
    StopLeading,
    StreamAccepted,
    TransferAnswered,
    Truncate,
)
from logstore.raft.events import (
    ConnectionLost,
    ControlReceived,
    DiskFullChanged,
    EntryRotted,
    LogStartMoved,
    Persisted,
    Tick,
)
from logstore.raft.log_view import Position, RecoveredLog, WholeLogStart
from tests.paper.virtual_node import recovered


@dataclass
class FakeCore:
    role: Role = Role.FOLLOWER
    term: int = 1
    commit: int = 0
    persisted: int = 0
    faulty: tuple[tuple[Index, Index], ...] = ()


def header(index: int, term: int, kind: EntryKind = EntryKind.DATA) -> EntryHeader:
    return EntryHeader(
        kind=kind, count=1, term=Term(term), index=Index(index), prev_term=Term(0),
        first_lsn=Lsn(index), timestamp_ns=0, cumulative_bytes=8, prev_chain=0, body_size=8,
        body_crc=1,
    )  # fmt: skip


class Stage:
    """An observer with three nodes, whose cores a test moves by hand."""

    def __init__(self) -> None:
        self.observer = ReachObserver((1, 2, 3))
        self.cores = {node: FakeCore() for node in (1, 2, 3)}
        self._seq = 0
        self.heard_node = 0  # whom each replica has heard as its leader
        self._table = Table([self.observer], "reads")

    def step(self, node: int, *effects: Any, event: Any = None, **facts: Any) -> None:
        core = self.cores[node]
        for name, value in facts.items():
            setattr(core, name, value)
        step = Stepped(node, 1, core, event or Tick(0), effects)
        dispatch_parts(self._table, Replica(node, heard_node=self.heard_node), step)

    def tell(self, fact: Any) -> None:
        for read in self._table[type(fact)]:
            read(fact)

    def recover(self, node: int, log: RecoveredLog) -> None:
        self.tell(CoreMade(node, log))

    def persist(self, node: int, first: int, term: int, count: int = 1, **facts: Any) -> int:
        """Entries handed to the writer; the number that answers them."""
        for index in range(first, first + count):
            self._seq += 1
            self.step(node, Persist(self._seq, header(index, term), 0, 0, 8, Index(0)), **facts)
        return self._seq

    def flushed(self, node: int, seq: int, persisted: int) -> None:
        self.step(node, event=Persisted(seq), persisted=persisted)

    def truncate(self, node: int, first: int) -> None:
        self._seq += 1
        kept = min(self.cores[node].persisted, first - 1)
        self.step(node, Truncate(self._seq, Index(first)), persisted=kept)

    def met(self) -> set[Reach]:
        return {Reach[name] for name in self.observer.counts()}


@pytest.fixture
def stage() -> Stage:
    return Stage()


# --- logs ---


def test_one_group_truncated_is_not_two(stage: Stage) -> None:
    seq = stage.persist(1, 1, 1, count=3)
    stage.flushed(1, seq, 3)
    stage.truncate(1, 3)
    assert stage.met() == set()
    stage.truncate(1, 1)
    assert stage.met() == {Reach.TRUNCATED_BATCHES}


def test_no_ops_are_no_groups(stage: Stage) -> None:
    for index in (1, 2):
        row = header(index, 1, EntryKind.NOOP)
        stage.step(1, Persist(index, row, 0, 0, 0, Index(0)))
    stage.flushed(1, 2, 2)
    stage.truncate(1, 1)
    assert stage.met() == set()


def test_a_follower_truncates_what_it_had_acknowledged(stage: Stage) -> None:
    seq = stage.persist(2, 1, 1, count=2)
    stage.flushed(2, seq, 2)
    stage.step(2, Answer(NodeId(1), AppendPersisted(Term(1), Index(1))))
    stage.truncate(2, 2)
    assert Reach.TRUNCATED_ACKNOWLEDGED not in stage.met()
    stage.truncate(2, 1)
    assert Reach.TRUNCATED_ACKNOWLEDGED in stage.met()


def test_what_was_rewritten_is_not_acknowledged_until_it_is_again(stage: Stage) -> None:
    stage.flushed(2, stage.persist(2, 1, 1), 1)
    stage.step(2, Answer(NodeId(1), AppendPersisted(Term(1), Index(1))))
    stage.truncate(2, 1)
    before = stage.observer.counts()[Reach.TRUNCATED_ACKNOWLEDGED.name]
    stage.flushed(2, stage.persist(2, 1, 2), 1)
    stage.truncate(2, 1)
    assert stage.observer.counts()[Reach.TRUNCATED_ACKNOWLEDGED.name] == before


def test_figure_eight_needs_a_majority_in_a_later_term_and_a_truncation(stage: Stage) -> None:
    # Term 2: node 1 alone has the entry. Term 4: node 1 leads again and node 2 flushes it.
    stage.cores[1].term = 2
    stage.flushed(1, stage.persist(1, 1, 2), 1)
    stage.cores[2].term = 4
    stage.flushed(2, stage.persist(2, 1, 2), 1)
    assert Reach.FIGURE_EIGHT not in stage.met()
    stage.truncate(2, 1)  # node 3 led term 3 and leads term 5
    assert Reach.FIGURE_EIGHT in stage.met()


def test_figure_eight_counts_what_only_the_next_start_shows_to_be_flushed(stage: Stage) -> None:
    stage.cores[1].term = 2
    stage.flushed(1, stage.persist(1, 1, 2), 1)
    stage.persist(2, 1, 2)
    stage.recover(2, recovered([Row.of(header(1, 2))], term=4))
    stage.truncate(2, 1)
    assert Reach.FIGURE_EIGHT in stage.met()


@pytest.mark.parametrize("term_of_the_second", [2, 4])
def test_a_truncated_entry_of_one_node_or_of_its_own_term_is_no_figure_eight(
    stage: Stage, term_of_the_second: int
) -> None:
    stage.cores[1].term = 2
    stage.flushed(1, stage.persist(1, 1, 2), 1)
    stage.cores[2].term = term_of_the_second
    if term_of_the_second == 2:
        stage.flushed(2, stage.persist(2, 1, 2), 1)
    else:
        stage.persist(2, 1, 2)  # handed to the writer, never flushed
    stage.truncate(2, 1)
    assert Reach.FIGURE_EIGHT not in stage.met()


def test_an_entry_rewritten_while_its_flush_is_under_way(stage: Stage) -> None:
    seq = stage.persist(1, 1, 1)
    stage.truncate(1, 1)
    assert stage.met() == {Reach.REWRITTEN_IN_FLIGHT}
    stage.flushed(1, seq, 0)
    other = Stage()
    other.flushed(1, other.persist(1, 1, 1), 1)
    other.truncate(1, 1)
    assert other.met() == set()


def test_a_second_truncation_does_not_count_the_flush_of_the_first_again(stage: Stage) -> None:
    stage.persist(1, 2, 1)
    stage.truncate(1, 2)
    stage.truncate(1, 2)
    assert stage.observer.counts() == {Reach.REWRITTEN_IN_FLIGHT.name: 1}


def test_an_entry_comes_back_after_another_took_its_place(stage: Stage) -> None:
    for term in (1, 2, 1):
        assert Reach.REWRITTEN_ABA not in stage.met()
        stage.flushed(1, stage.persist(1, 1, term), 1)
        if term == 1 and Reach.REWRITTEN_ABA in stage.met():
            break
        stage.truncate(1, 1)
    assert Reach.REWRITTEN_ABA in stage.met()


def test_a_new_incarnation_forgets_what_the_last_one_truncated(stage: Stage) -> None:
    stage.flushed(1, stage.persist(1, 1, 1), 1)
    stage.truncate(1, 1)
    stage.recover(1, recovered([]))
    stage.persist(1, 1, 1)
    assert stage.met() == set()


# --- leaders and votes ---


def test_a_leader_deposed_with_and_without_a_flush_under_way(stage: Stage) -> None:
    stage.step(1, StopLeading(Term(1)), term=2)
    assert stage.met() == set()
    stage.persist(1, 1, 2)
    stage.step(1, StopLeading(Term(2)), term=3)
    assert stage.met() == {Reach.DEPOSED_WHILE_FLUSHING}


def test_a_leader_that_steps_down_in_its_term_on_a_tick_heard_no_majority(stage: Stage) -> None:
    stage.step(1, StopLeading(Term(1)), event=EntryRotted(Index(1)), term=1)
    assert Reach.DEPOSED_WITHOUT_QUORUM not in stage.met()
    stage.step(1, StopLeading(Term(1)), event=Tick(5), term=1)
    assert Reach.DEPOSED_WITHOUT_QUORUM in stage.met()


def test_a_commit_before_the_leaders_own_flush(stage: Stage) -> None:
    stage.step(1, Committed(Term(1), Index(4)), persisted=4)
    assert stage.met() == set()
    stage.step(1, Committed(Term(1), Index(5)), persisted=4)
    assert stage.met() == {Reach.COMMITTED_BEFORE_OWN_FLUSH}


def test_two_candidates_of_one_term_split_the_vote(stage: Stage) -> None:
    stage.step(1, SaveMeta(1, Term(5), NodeId(1)), role=Role.CANDIDATE, term=5)
    stage.step(2, SaveMeta(1, Term(5), NodeId(1)), role=Role.FOLLOWER, term=5)
    stage.step(1, SaveMeta(2, Term(6), NodeId(1)), term=6)
    assert stage.met() == set()
    stage.step(3, SaveMeta(1, Term(6), NodeId(3)), role=Role.CANDIDATE, term=6)
    assert stage.observer.counts() == {Reach.SPLIT_VOTE.name: 1}


def test_lost_leaders(stage: Stage) -> None:
    stage.heard_node = 1
    beat = Heartbeat(Term(4), Index(0), 1, Index(0), Term(0), Lsn(1), 0)
    lead = Lead(NodeId(1), Term(5), 1, Index(1), Index(0), 0, Index(0))
    stage.step(2, event=ConnectionLost(NodeId(3)), term=4)
    stage.step(2, event=ControlReceived(NodeId(1), 1, beat), term=4)
    assert stage.met() == set()
    for node in (2, 3):
        stage.step(node, event=ConnectionLost(NodeId(1)), term=4)
    stage.step(2, event=ControlReceived(NodeId(1), 1, beat), term=4)
    assert stage.met() == {Reach.LOST_LEADER_HEARD}
    stage.step(3, lead, term=5)
    assert stage.met() == {Reach.LOST_LEADER_HEARD, Reach.LOST_LEADER_REPLACED}


def test_votes_and_victories_of_damaged_replicas(stage: Stage) -> None:
    granted, refused = (Answer(NodeId(2), VoteReply(Term(1), each)) for each in (True, False))
    stage.step(1, granted)
    stage.step(1, refused, faulty=((3, 3),))
    assert stage.met() == set()
    stage.step(1, granted)
    lead = Lead(NodeId(2), Term(1), 1, Index(1), Index(0), 0, Index(0))
    stage.step(1, lead)
    assert stage.observer.counts() == {Reach.ELECTION_WITH_FAULTY_VOTER.name: 2}


def test_a_log_that_lacks_only_what_is_damaged_asks_for_a_vote(stage: Stage) -> None:
    stage.flushed(1, stage.persist(1, 1, 1, count=3), 3)

    def asks(last_index: int, last_term: int = 1, **facts: Any) -> None:
        request = PreVoteRequest(Term(3), Index(last_index), Term(last_term))
        refused = Answer(NodeId(2), PreVoteReply(Term(1), False))
        stage.step(1, refused, event=ControlReceived(NodeId(2), 1, request), **facts)

    asks(2)  # nothing is damaged
    asks(1, faulty=((3, 3),), persisted=2)  # it lacks a whole entry, too
    asks(3)  # it lacks nothing
    asks(2, last_term=2)  # its log is newer
    assert stage.met() == set()
    asks(2)
    assert stage.observer.counts() == {Reach.DAMAGED_TAIL_DECIDES.name: 1}


@pytest.mark.parametrize(
    ("effect", "counter", "reach"),
    [
        (
            StreamAccepted(Term(1), 1, Index(1), True),
            StreamAccepted(Term(1), 1, Index(1), False),
            Reach.STREAM_REJECTED,
        ),
        (
            TransferAnswered(1, True, ""),
            TransferAnswered(1, False, "too late"),
            Reach.TRANSFER_DONE,
        ),
        (
            ReadIndexAnswered(1, True, Lsn(1)),
            ReadIndexAnswered(1, False, Lsn(0)),
            Reach.READ_INDEX_ANSWERED,
        ),
    ],
)
def test_an_effect_counts_and_its_opposite_does_not(
    stage: Stage, effect: Any, counter: Any, reach: Reach
) -> None:
    stage.step(1, counter)
    assert stage.met() == set()
    stage.step(1, effect)
    assert stage.met() == {reach}


# --- disks and starts ---


def test_a_disk_that_was_full_and_is_not_any_more(stage: Stage) -> None:
    stage.step(1, event=DiskFullChanged(False))
    stage.step(1, event=DiskFullChanged(True))
    stage.step(2, event=DiskFullChanged(False))
    assert stage.met() == set()
    stage.step(1, event=DiskFullChanged(False))
    assert stage.met() == {Reach.DISK_FULL_OVER}


def test_a_start_that_finds_less_than_was_ordered(stage: Stage) -> None:
    stage.persist(1, 1, 1, count=2)
    both: Sequence[Row] = [Row.of(header(index, 1)) for index in (1, 2)]
    stage.recover(1, recovered(list(both)))
    assert stage.met() == set()
    stage.recover(1, recovered([both[0]]))
    assert stage.met() == {Reach.UNFLUSHED_LOST}
    stage.recover(1, recovered([both[0]]))
    assert stage.observer.counts() == {Reach.UNFLUSHED_LOST.name: 1}


def test_damage_found_at_start_or_by_a_reader(stage: Stage) -> None:
    stage.step(1, event=EntryRotted(Index(3)))
    stage.recover(2, recovered([], faulty=((Index(1), Index(1)),)))
    assert stage.observer.counts() == {Reach.FAULTY_FOUND.name: 2}


def test_a_start_after_a_lie_is_counted_once(stage: Stage) -> None:
    stage.tell(PowerCutAfterLie(2))
    stage.recover(1, recovered([]))
    assert stage.met() == set()
    stage.recover(2, recovered([]))
    stage.recover(2, recovered([]))
    assert stage.observer.counts() == {Reach.LYING_FLUSH_RECOVERED.name: 1}


def moved_to(position: Position) -> LogStartMoved:
    return LogStartMoved(WholeLogStart(position, 0, 0, 1))


def test_a_trim_that_a_start_finds_half_done_or_not_begun(stage: Stage) -> None:
    def start(index: int, last: int) -> RecoveredLog:
        row = Row.of(header(last, 1))
        return recovered([], last=row, start=Position(Index(index), Term(1), Lsn(index + 1), 0))

    stage.recover(1, start(0, 9))
    stage.step(1, ApplyTrim(Index(10)))
    stage.step(1, event=moved_to(Position(Index(3), Term(1), Lsn(4), 0)))
    assert stage.met() == set()
    stage.recover(1, start(3, 10))
    assert stage.met() == {Reach.TRIMMED_STARTED}
    stage.recover(1, start(5, 11))
    assert stage.met() == {Reach.TRIMMED_STARTED, Reach.TRIM_INTERRUPTED}
    stage.step(1, ApplyTrim(Index(11)))
    stage.step(1, event=moved_to(Position(Index(6), Term(1), Lsn(7), 0)))
    assert stage.observer.counts() == {
        Reach.TRIMMED_STARTED.name: 2,
        Reach.TRIM_INTERRUPTED.name: 1,
        Reach.TRIM_CARRIED_OUT_LATER.name: 1,
    }


def test_a_log_start_that_a_full_follower_takes_from_its_leader(stage: Stage) -> None:
    """It is no TRIM that was found at a start."""
    for is_full, index in ((False, 3), (True, 5)):
        stage.step(1, event=DiskFullChanged(is_full))
        position = Position(Index(index), Term(1), Lsn(index + 1), 0)
        stage.step(1, MoveLogStart(WholeLogStart(position, 0, 0, 2)))
        stage.step(1, event=moved_to(position))
    assert stage.observer.counts() == {Reach.START_TAKEN_WHILE_FULL.name: 1}


def test_pairs_below_a_log_start_and_a_log_start_inside_one(stage: Stage) -> None:
    stage.tell(PairsRemoved(0))
    assert stage.met() == {Reach.LOG_START_INSIDE}
    stage.tell(PairsRemoved(2))
    stage.tell(RangeGone(1, 3))
    stage.tell(TrimRefused(1))
    start = LogStart(Index(3), Term(1), 0, Lsn(3))
    stage.tell(TrimRead(4, TrimEntry(TrimReason.OPERATOR, start, 0, 0)))
    assert Reach.GIVEN_UP_BY_LEADER not in stage.met()
    stage.tell(TrimRead(4, TrimEntry(TrimReason.AGE, start, 0, 0)))
    assert stage.met() == {
        Reach.GIVEN_UP_BY_LEADER,
        Reach.LOG_START_INSIDE, Reach.PAIRS_REMOVED, Reach.READ_OF_WHAT_IS_GONE,
        Reach.TRIM_REFUSED,
    }  # fmt: skip


def test_facts_of_storage_and_rings_count(stage: Stage) -> None:
    for fact in (
        FolderRecovered(2, 0, has_torn_tail=False),
        FolderRecovered(0, 0, has_torn_tail=False),
        TableRebuilt(1, 1, ((), (), ()), 0, 0),
        BatchRefused(ErrorCode.NOT_LEADER),
    ):
        stage.tell(fact)
    assert stage.met() == set()
    for fact in (
        FolderRecovered(2, 1, has_torn_tail=False),
        FolderRecovered(2, 0, has_torn_tail=True),
        FolderRecovered(1, 0, has_torn_tail=False),
        SpareUsed(),
        TableRebuilt(1, 1, ((), (), ()), 2, 1),
        RingOverwritten(),
    ):
        stage.tell(fact)
    assert stage.met() == {
        Reach.ORPHAN_ADOPTED, Reach.TORN_TAIL, Reach.META_COPY_BAD, Reach.SPARE_ROLLED,
        Reach.SNAPSHOT_USED, Reach.SNAPSHOT_IN_PARTS, Reach.SNAPSHOT_WITHOUT_END,
        Reach.RING_OVERWRITTEN,
    }  # fmt: skip


def test_facts_of_sessions_and_clients_count(stage: Stage) -> None:
    stage.tell(RetryKnown(is_committed=False))
    assert stage.met() == {Reach.DEDUP_UNCOMMITTED}
    stage.tell(RetryKnown(is_committed=True))
    for code in (
        ErrorCode.FENCED, ErrorCode.GAP, ErrorCode.SEQUENCE_REUSED,
        ErrorCode.COMMITTED_LSN_UNKNOWN,
    ):  # fmt: skip
        stage.tell(BatchRefused(code))
    assert stage.met() == {
        Reach.DEDUP_UNCOMMITTED, Reach.DEDUP_COMMITTED, Reach.FENCED, Reach.GAP,
        Reach.SEQUENCE_REUSED, Reach.COMMITTED_LSN_UNKNOWN,
    }  # fmt: skip


def test_a_session_given_up_counts_once_and_so_does_a_producer_that_comes_back_to_it(
    stage: Stage,
) -> None:
    stage.tell(SessionOrdered(OpenEntry(7, 1, SequenceMode.DENSE, AckLevel.QUORUM, 16, 9, b"")))
    stage.tell(SessionDenied(7))  # by a replica that does not know it
    assert stage.met() == set()
    for _ in range(2):
        stage.tell(SessionOrdered(ExpireEntry(7, 1)))
    stage.tell(SessionDenied(9))
    assert stage.observer.counts() == {Reach.SESSION_EXPIRED.name: 1}
    stage.tell(SessionDenied(7))
    assert stage.observer.counts() == {
        Reach.SESSION_EXPIRED.name: 1, Reach.EXPIRED_CAME_BACK.name: 1,
    }  # fmt: skip


def test_missing_names_what_was_not_met() -> None:
    assert missing({}) == list(MUST_REACH)
    met = {each.name: 3 for each in MUST_REACH}
    assert missing(met) == []
    assert missing(met | {Reach.GAP.name: 0}) == [Reach.GAP]
