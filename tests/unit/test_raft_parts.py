"""The small parts of the core: settings, faulty ranges, persists, META, the log in memory,
texts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from logstore.errors import ConfigError, InvariantViolated
from logstore.format.peer_messages import InitCommit, VoteReply
from logstore.limits import DEFERRED_EVENTS_MAX
from logstore.model import NO_NODE, Index, NodeId, Term
from logstore.raft import gens
from logstore.raft.bootstrap import SendInit
from logstore.raft.core import RaftCore
from logstore.raft.describe import describe, describe_core
from logstore.raft.effects import Answer, Log, Send
from logstore.raft.events import EntryRotted, Tick
from logstore.raft.faulty import FaultyEntries
from logstore.raft.log_view import EntryLog
from logstore.raft.persist import PersistQueue
from logstore.raft.raft_config import RaftConfig
from logstore.raft.term_and_vote import TermAndVote
from tests.paper.one_node import OneNode, rows_of
from tests.paper.virtual_node import Files, recovered


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"voters": (2, 3)}, "none of the voters"),
        ({"voters": (1, 1)}, "each once"),
        ({"voters": tuple(range(1, 11))}, "at most 9"),
        ({"node": 0, "voters": (0, 1)}, "begin at 1"),
        ({"voters": ()}, "none of the voters"),
        ({"has_joined": True}, "it cannot have joined them"),
        ({"heartbeat_ns": 0}, "three heartbeats"),
        ({"heartbeat_ns": 10, "election_timeout_ns": 29}, "three heartbeats"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        RaftConfig(**({"node": NodeId(1), "voters": (NodeId(1),)} | changes))


def test_no_founder_counts_for_a_replica_that_joined() -> None:
    config = RaftConfig(node=NodeId(4), voters=(), has_joined=True)
    assert (config.voters, config.peers) == ((), ())


def test_faulty_ranges_are_merged_capped_and_cut() -> None:
    faulty = FaultyEntries([(Index(7), Index(9)), (Index(2), Index(3))])
    faulty.add(Index(4))
    assert faulty.ranges == [(2, 4), (7, 9)]
    assert Index(8) in faulty
    assert Index(5) not in faulty
    assert faulty.first_range == (2, 4)
    assert [faulty.first_above(Index(at)) for at in (0, 2, 4, 7, 9)] == [2, 3, 7, 8, None]
    assert faulty.cap(Index(20), Index(4)) == 6
    assert faulty.cap(Index(5), Index(4)) == 5
    faulty.truncate(Index(8))
    assert faulty.ranges == [(2, 4), (7, 7)]
    assert not FaultyEntries([])
    assert FaultyEntries([]).first_range == (0, 0)


def test_f4_a_truncation_clips_every_outstanding_persist() -> None:
    queue = PersistQueue(Index(4))
    assert queue.oldest_ordered_ns is None
    queue.append(Index(5), ring_start=0, ring_end=9, now_ns=3)
    queue.append(Index(6), ring_start=9, ring_end=9, now_ns=4)
    assert queue.truncate(Index(5), now_ns=5) == 3
    queue.append(Index(5), ring_start=9, ring_end=12, now_ns=6)
    assert queue.oldest_ordered_ns == 3
    assert queue.on_persisted(2) == [(0, 9)]
    assert queue.persisted == 4
    assert queue.on_persisted(2) == []
    assert queue.on_persisted(4) == [(9, 12)]
    assert queue.persisted == 5


def test_f4_a_truncation_below_what_is_persisted_lowers_it() -> None:
    queue = PersistQueue(Index(9))
    queue.truncate(Index(4), now_ns=0)
    assert queue.persisted == 3


def test_what_is_withheld_is_bounded_and_released_in_order() -> None:
    meta = TermAndVote(Term(1), NO_NODE)
    meta.enter_term(Term(2))
    for term in range(DEFERRED_EVENTS_MAX + 5):
        meta.withhold(Log(str(term)))
    save = meta.save()
    assert save is not None
    assert meta.save() is None
    assert not meta.is_durable
    released = meta.on_persisted(1)
    assert released == [Log(str(term)) for term in range(DEFERRED_EVENTS_MAX)]
    assert (meta.is_durable, meta.durable_term) == (True, 2)
    meta.cast_vote(NodeId(3))
    meta.save()
    meta.cast_vote(NodeId(3))
    assert meta.save() is None


def test_a_gen_opens_once() -> None:
    node = OneNode()
    node.lead()
    state = node.core._state
    assert (node.core.open_gen, state.out) == (1, [])
    gens.open_if_allowed(state)
    assert (node.core.open_gen, state.out) == (1, [])


def test_the_log_refuses_what_does_not_follow_and_what_is_not_there() -> None:
    rows = rows_of([1, 1, 2])
    files = Files()
    files.rows = rows
    log = EntryLog(recovered(rows), files)
    with pytest.raises(InvariantViolated, match="does not follow"):
        log.append(rows[0])
    for index in (-1, 4):
        with pytest.raises(InvariantViolated):
            log.term_at(Index(index))
    with pytest.raises(InvariantViolated, match="rows in memory"):
        log.recent_position(Index(1))
    assert log.recent_position(Index(3)) == log.last
    assert EntryLog(recovered([]), Files()).last_header is None


def test_texts_name_fields_messages_times_and_chains() -> None:
    assert describe(Tick(1_500_000)) == "Tick now=1.5ms wall=0ms"
    assert describe(EntryRotted(Index(3))) == "EntryRotted index=3"
    reply = VoteReply(Term(2), True)
    assert describe(Send(NodeId(2), reply)) == "Send to 2: VoteReply term=2 is_granted=yes"
    assert describe(Answer(NodeId(2), reply)).startswith("Answer to 2: ")
    sent = SendInit(NodeId(3), InitCommit(7, bytes(range(16))))
    assert describe(sent) == "SendInit peer=3 message=(nonce=7 cluster_id=00010203 first_lsn=)"


def test_a_core_describes_itself_in_one_line() -> None:
    node = OneNode(rows=rows_of([1]), term=1, faulty=((Index(1), Index(1)),))
    assert describe_core(node.core) == (
        "FOLLOWER term=1 vote=0 leader=0 last=1 commit=0 persisted=0 verified=0 faulty=1-1"
    )
    assert node.core.peers_faulty == {}
    assert node.core.match == {}
    leader = OneNode()
    leader.lead_and_commit()
    leader.hear_reply(2, 1, faulty=1)
    assert leader.core.peers_faulty == {2: (1, 1)}
    assert leader.core.commit_lsn == 0


def test_the_commit_lsn_falls_back_to_the_visible_one_where_damage_hides_it() -> None:
    rows = rows_of([1, 1, 1])
    node = OneNode(rows=rows, term=1, commit_floor=1, faulty=((Index(2), Index(2)),))
    node.files.unreadable = {2}
    node.follow(2, 1)
    assert node.core.commit_lsn == 1
    node.hear_append(2, rows[1], commit=2)
    assert (node.core.commit, node.core.commit_lsn, node.core.visible_lsn) == (2, 1, 1)


def test_before_the_first_tick_a_tick_is_due_at_once() -> None:

    core = RaftCore(OneNode().config, recovered([]), Files(), Random(0))
    assert core.deadline_ns == 0
