"""SAFETY G5, G5a: a follower that ends below the leader's log start, or has another entry there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from logstore.errors import InvariantViolated, ReplicaLost
from logstore.format.level import NEWEST_LEVEL, TRIM_LEVEL
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
)
from logstore.model import EntryKind, Index, Lsn, Role, Term
from logstore.raft.effects import (
    ApplyTrim,
    InstallLog,
    Log,
    MoveLogStart,
    Persist,
    SaveLevel,
    Truncate,
    Visible,
)
from logstore.raft.events import DiskFullChanged, LogStartMoved, Persisted
from logstore.raft.log_view import Position
from logstore.raft.persist import PersistQueue
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.virtual_node import whole_start

TERMS = [1, 1, 1, 2, 2, 3, 3, 3]
ROWS = rows_of(TERMS)
STREAM = 1 << 32


def follower(terms: list[int], **state: Any) -> OneNode:
    """Node 1 follows node 2 in term 4."""
    node = OneNode(rows=rows_of(terms), term=max([3, *terms]), **state)
    node.follow(2, 4)
    return node


def install(node: OneNode, index: int, **named: Any) -> list[Any]:
    return node.hear_install(2, ROWS[index - 1], term=4, **named)


# --- which of the two: it has the entry at log start, or drops its log ---


@pytest.mark.parametrize("index", [1, 3, 5, 8])
@pytest.mark.parametrize("commit", [0, 4])
def test_g5_a_log_that_has_the_entry_goes_on_from_there(index: int, commit: int) -> None:
    """FAULTS R21."""
    node = follower(TERMS, commit_floor=commit)
    effects = install(node, index)
    assert not of_type(effects, InstallLog)
    assert node.core.last_index == 8
    assert node.core.verified == node.core.commit == max(index, commit)
    (accepted,) = [answer for _, answer in sent(effects, AppendAccepted)]
    assert (accepted.stream, accepted.index) == (STREAM, node.core.verified)
    assert sent(effects, AppendPersisted)


def test_g5_a_log_that_begins_above_has_all_that_is_below() -> None:
    node = OneNode(rows=ROWS, trimmed_to=5, term=3)
    node.follow(2, 4)
    for index in (3, 5):
        assert not of_type(install(node, index, stream=STREAM + index), InstallLog)
    assert node.core.log_start == Position.after(ROWS[4])


@pytest.mark.parametrize("ends_at", [0, 1, 4])
def test_g5_a_log_that_ends_below_is_dropped(ends_at: int) -> None:
    node = follower(TERMS[:ends_at])
    assert of_type(install(node, 5), InstallLog) == [InstallLog(1, whole_start(ROWS[4]))]


def test_g5_a_log_that_has_another_entry_there_is_dropped() -> None:
    node = follower([1, 1, 1, 1, 1, 1, 1, 1, 1])
    assert of_type(install(node, 5), InstallLog)
    node = follower([1, 1, 1, 3, 3])  # of a later term, which no majority had
    assert of_type(install(node, 5), InstallLog)


def test_g5_another_entry_at_or_below_the_commit_index_is_a_broken_invariant() -> None:
    node = follower([1, 1, 1, 1, 1, 1], commit_floor=5)
    with pytest.raises(InvariantViolated, match="begins its log after"):
        install(node, 5)
    node = OneNode(rows=rows_of([1] * 8), trimmed_to=5, term=3)
    node.follow(2, 4)
    with pytest.raises(InvariantViolated):
        install(node, 5)


def test_s3_the_same_entry_of_another_log_is_a_broken_invariant() -> None:
    node = OneNode(rows=rows_of(TERMS, noops=[2]), term=3)
    node.follow(2, 4)
    with pytest.raises(InvariantViolated, match="begins its log after"):
        install(node, 5)


# --- it has the entry: its own log start moves, and what follows is kept ---


def trimming(terms: list[int], **state: Any) -> OneNode:
    """A follower whose log is at the format level of TRIMs."""
    return follower(terms, level=TRIM_LEVEL, **state)


def moved_to(index: int, level: int = TRIM_LEVEL) -> MoveLogStart:
    return MoveLogStart(replace(whole_start(ROWS[index - 1]), level=level))


@pytest.mark.parametrize("commit", [0, 4, 8])
@pytest.mark.parametrize("index", [1, 5, 8])
def test_g5_a_log_that_has_the_entry_begins_there_and_keeps_what_follows(
    index: int, commit: int
) -> None:
    """As InstallSnapshot of the Raft paper does. The TRIM may lie far beyond what a full disk
    takes."""
    node = trimming(TERMS, commit_floor=commit)
    node.step(DiskFullChanged(True))
    effects = install(node, index)
    assert of_type(effects, MoveLogStart) == [moved_to(index)]
    assert node.core.log_start.index == 0  # until the writer has done it
    assert sent(effects, AppendAccepted)
    node.move_start(index)
    assert node.core.log_start == Position.after(ROWS[index - 1])
    assert node.core.last_index == 8
    assert (node.core.row(Index(8)) is None) == (index == 8)
    assert not of_type(install(node, index, stream=STREAM + 1), MoveLogStart)


def test_g5_a_log_start_that_is_reached_or_passed_moves_nothing() -> None:
    node = OneNode(rows=ROWS, trimmed_to=5, term=3, level=TRIM_LEVEL)
    node.follow(2, 4)
    for index in (3, 5):
        assert not of_type(install(node, index, stream=STREAM + index), MoveLogStart)
    assert of_type(install(node, 6, stream=STREAM + 6), MoveLogStart) == [moved_to(6)]


def test_g5_a_log_with_another_entry_there_keeps_nothing() -> None:
    node = trimming([1, 1, 1, 1, 1, 1, 1, 1, 1])
    effects = install(node, 5)
    assert of_type(effects, InstallLog)
    assert not of_type(effects, MoveLogStart)


def test_g5_the_log_start_waits_until_its_entry_is_flushed_here() -> None:
    """META would name what a crash takes, and the next start find the log lost."""
    node = trimming(TERMS[:4])
    for row in ROWS[4:7]:
        node.hear_append(2, row, stream=STREAM)
    for seq, stream in ((None, STREAM + 1), (1, STREAM + 2)):
        if seq is not None:
            node.flush(seq)
        effects = install(node, 6, stream=stream)
        assert not of_type(effects, MoveLogStart)
        assert not sent(effects, AppendAccepted)  # so that it comes again
        assert node.core.commit == 6
    node.flush(2)
    effects = install(node, 6, stream=STREAM + 3)
    assert of_type(effects, MoveLogStart) == [moved_to(6)]
    assert sent(effects, AppendAccepted)


def test_s11_no_log_start_moves_below_the_level_of_trims() -> None:
    """A version that does not read TRIMs may be started on this folder yet."""
    node = follower(TERMS)
    effects = install(node, 5)
    assert not of_type(effects, MoveLogStart)
    assert sent(effects, AppendAccepted)
    rows = rows_of(TERMS, raises={Index(4): 2})
    node = OneNode(rows=rows, term=3)
    node.follow(2, 4)
    effects = node.hear_install(2, rows[4], term=4)
    assert of_type(effects, SaveLevel) == [SaveLevel(2)]
    assert [move.start.level for move in of_type(effects, MoveLogStart)] == [2]


def test_s11_the_level_that_comes_with_the_log_start_is_known_from_then_on() -> None:
    """The leader sends that of its TRIM. The entry that raised the log may lie above log start, and
    above all that this replica has."""
    rows = rows_of([*TERMS, 3, 3], raises={Index(9): 3})
    node = trimming(TERMS, newest_level=3)
    assert of_type(install(node, 5, level=3), MoveLogStart) == [moved_to(5, level=3)]
    assert node.core.level == 2  # META does not have it yet
    assert of_type(node.move_start(5, level=3), SaveLevel) == [SaveLevel(3)]
    assert node.core.level == 3
    for row in rows[8:]:
        assert not of_type(node.hear_append(2, row, stream=STREAM, commit=10), SaveLevel)
    assert (node.core.commit, node.core.level) == (10, 3)


def test_g5_what_follows_may_still_be_truncated() -> None:
    """A full follower whose newest entries no leader has gets the space for it."""
    node = trimming([1, 1, 1, 2, 2, 2, 2])
    node.step(DiskFullChanged(True))
    assert not of_type(node.hear_append(2, ROWS[5], stream=STREAM), Truncate)
    assert of_type(install(node, 5, stream=STREAM + 1), MoveLogStart)
    node.move_start(5)
    node.step(DiskFullChanged(False))
    effects = node.hear_append(2, ROWS[5], stream=STREAM + 1)
    assert [each.first_index for each in of_type(effects, Truncate)] == [6]
    assert of_type(effects, Persist)


def test_g1_a_log_that_began_there_leads_only_once_it_has_what_is_committed() -> None:
    """It may have no snapshot of the sessions left: the committed one lies below the TRIM that it
    lacks, and those that have the TRIM elect it only with that."""
    rows = rows_of([*TERMS, 3, 3], trims=[10])
    node = trimming(TERMS)
    install(node, 7)
    node.move_start(7)
    for granted, missing in ((False, rows[8:]), (True, [])):
        voter = OneNode(node=3, rows=rows, term=3)
        ((_, request), *_) = sent(node.time_out(), PreVoteRequest)
        ((_, reply),) = sent(voter.hear(1, request), PreVoteReply)
        assert reply.is_granted == granted
        node.follow(2, 5)
        for row in missing:
            node.hear_append(2, row, stream=STREAM + row.header.index)
        node.flush()


@pytest.mark.parametrize("hidden", [(5,), (4, 5, 6), (5, 6, 7, 8)])
def test_g5_damage_there_does_not_keep_the_log_start_back(hidden: tuple[int, ...]) -> None:
    """The leader's message holds all that is known of the entry, as a TRIM does."""
    node = damaged(TERMS, *hidden, commit=5, level=TRIM_LEVEL)
    assert of_type(install(node, 5), MoveLogStart) == [moved_to(5)]
    node.move_start(5)
    left = [index for index in hidden if index > 5]
    assert node.core.faulty == (((left[0], left[-1]),) if left else ())


# --- damage at log start ---


def damaged(terms: list[int], *indexes: int, commit: int = 0, **state: Any) -> OneNode:
    """Nothing is left of these entries, which follow each other."""
    rows = rows_of(terms)
    node = OneNode(
        rows=rows, term=3, commit_floor=commit,
        faulty=((Index(indexes[0]), Index(indexes[-1])),), **state,
    )  # fmt: skip
    node.files.unreadable.update(indexes)
    node.follow(2, 4)
    return node


def test_g5_where_damage_hides_the_record_the_next_whole_one_says() -> None:
    node = damaged(TERMS, 5)
    assert not of_type(install(node, 5), InstallLog)
    assert (node.core.last_index, node.core.commit) == (8, 5)
    node = damaged([1, 1, 1, 1, 1, 1, 3, 3], 5)
    assert of_type(install(node, 5), InstallLog)


def test_g5_at_or_below_the_commit_index_it_has_the_entry_whatever_is_left_of_it() -> None:
    node = damaged([1, 1, 1, 3, 3, 3, 3, 3], 4, 5, 6, commit=6)
    assert not of_type(install(node, 5), InstallLog)
    assert node.core.commit == 6


@pytest.mark.parametrize(("term", "is_dropped"), [(1, False), (3, True)])
def test_g5_where_two_are_hidden_their_terms_say(term: int, *, is_dropped: bool) -> None:
    """All of one term, before and after."""
    node = damaged([1] * 8, 5, 6)
    header = replace(ROWS[4].header, term=Term(term))
    effects = node.hear_install(2, replace(ROWS[4], header=header), term=4)
    assert bool(of_type(effects, InstallLog)) == is_dropped


def test_g5_an_entry_of_a_term_that_nobody_can_know_is_not_guessed() -> None:
    """Taken for the same, what was never committed would be shown; taken for another, what was
    acknowledged would be dropped."""
    node = damaged([1, 1, 1, 1, 2, 3, 3, 3], 5, 6)
    with pytest.raises(ReplicaLost, match="replace this replica"):
        install(node, 5)


def test_g5_the_stream_goes_on_over_damage_that_is_committed_now() -> None:
    rows = rows_of(TERMS)
    node = damaged(TERMS, 5, 6, commit=5)
    assert not of_type(install(node, 5), InstallLog)
    assert sent(node.hear_append(2, rows[5], stream=STREAM), AppendAccepted)


# --- dropping it ---


def installing(ends_at: int = 3, **state: Any) -> OneNode:
    node = follower(TERMS[:ends_at], **state)
    install(node, 5)
    assert node.core.is_installing
    return node


def test_g5a_nothing_claims_the_log_start_before_the_answer() -> None:
    node = follower(TERMS[:2])
    node.hear_append(2, ROWS[2], stream=STREAM)  # its Persist is outstanding
    effects = install(node, 5, stream=STREAM + 1)
    assert not sent(effects, AppendAccepted)
    for effects in (node.flush(1), node.hear_heartbeat(2, term=4, commit=8, prev=ROWS[4])):
        assert not sent(effects, AppendPersisted)
        assert node.core.persisted < 5
        assert node.core.verified < 5
        assert node.core.commit < 5
        assert not of_type(effects, Visible)
    assert not node.unsettled
    effects = node.flush(2)
    assert [answer.index for _, answer in sent(effects, AppendPersisted)] == [5]
    assert (node.core.persisted, node.core.verified, node.core.commit) == (5, 5, 5)
    assert of_type(effects, Visible) == [Visible(ROWS[4].header.next_lsn - 1, Index(5))]
    assert not node.core.is_installing
    assert node.core.log_start == Position.after(ROWS[4])


def test_g5a_requests_that_were_outstanding_never_reach_it() -> None:
    """Numbered like a truncation: an answer to a Persist of the log that goes proves nothing."""
    queue = PersistQueue(Index(3))
    for index in (4, 5, 6):
        queue.append(Index(index), ring_start=0, ring_end=0, now_ns=0)
    seq = queue.start_over(Index(5), now_ns=0)
    queue.on_persisted(seq - 1)
    assert queue.persisted == 4
    queue.on_persisted(seq)
    assert queue.persisted == 5


def test_g5a_then_the_stream_goes_on_as_ever() -> None:
    node = installing()
    node.flush()
    for row in ROWS[5:]:
        effects = node.hear_append(2, row, stream=STREAM, commit=7)
        assert of_type(effects, Persist)
    node.flush()
    assert (node.core.last_index, node.core.commit) == (8, 7)
    assert node.core.last_bytes == ROWS[7].header.cumulative_bytes


def test_g5a_while_it_is_under_way_no_entry_and_no_other_log_start_is_taken() -> None:
    node = installing()
    for effects in (
        node.hear_append(2, ROWS[5], stream=STREAM),
        install(node, 5, stream=STREAM + 1),
        install(node, 7, stream=STREAM + 2),
        node.step(LogStartMoved(whole_start(ROWS[1]))),  # the writer had begun to move it
    ):
        assert not of_type(effects, InstallLog)
        assert not of_type(effects, Persist)
        assert not sent(effects, AppendReject)
    assert not node.unsettled
    assert node.core.last_index == 5
    effects = node.flush()
    assert [answer.index for _, answer in sent(effects, AppendPersisted)] == [5]


def test_g5a_in_a_newer_term_the_log_start_is_committed_all_the_same() -> None:
    node = installing()
    node.hear_heartbeat(3, term=5)
    node.flush_meta()
    assert node.core.verified < 5
    node.flush()
    assert (node.core.verified, node.core.commit) == (5, 5)


def test_g5a_a_replica_that_drops_its_log_votes_but_does_not_campaign() -> None:
    node = installing()
    for _ in range(3):
        effects = node.time_out()
        assert not sent(effects, PreVoteRequest)
    assert node.core.role == Role.FOLLOWER
    (reply,) = sent(node.hear_heartbeat(2, term=4), HeartbeatReply)
    assert reply[1].last_index == 5
    node.flush()
    assert sent(node.time_out(), PreVoteRequest)


def test_g5a_a_late_request_to_take_over_finds_no_candidate() -> None:
    """Its leader had seen the whole log here, wrote more, and moved its log start past that."""
    node = installing()
    assert not node.hear(2, TimeoutNow(Term(4)))
    assert (node.core.term, node.core.role) == (4, Role.FOLLOWER)


def test_g5a_what_the_log_held_is_forgotten() -> None:
    rows = rows_of([1, 1, 1, 1, 1, 1, 1], trims=[3, 6])
    node = OneNode(
        rows=rows, term=3, commit_floor=2, faulty=((Index(2), Index(2)), (Index(7), Index(7)))
    )
    node.follow(2, 4)
    install(node, 5)
    assert node.core.faulty == ()
    assert not of_type(node.flush(), ApplyTrim)
    assert node.core.row(Index(6)) is None
    log = node.core._state.log
    assert log.term_at(Index(5)) == 2
    assert log.run_first(Index(5)) == 5


def test_s9_a_full_disk_does_not_keep_a_log_start_away() -> None:
    """What is dropped is space."""
    node = follower(TERMS[:2])
    node.step(DiskFullChanged(True))
    assert of_type(install(node, 5), InstallLog)


def test_s11_the_level_comes_with_the_log_start() -> None:
    node = follower(TERMS[:2], newest_level=2)
    install(node, 5, level=2)
    assert node.core.level == 1
    assert of_type(node.flush(), SaveLevel) == [SaveLevel(2)]
    assert node.core.level == 2


def test_s11_a_log_start_of_a_level_that_is_too_new_is_not_taken() -> None:
    node = follower(TERMS[:2])
    effects = install(node, 5, level=NEWEST_LEVEL + 1)
    assert not of_type(effects, InstallLog)
    assert node.core.refused_level == NEWEST_LEVEL + 1
    assert "start a newer version" in of_type(effects, Log)[0].text


# --- whose log start ---


def test_c1_a_log_start_waits_until_its_term_is_durable_and_is_sent_again() -> None:
    node = OneNode(rows=ROWS[:2], term=1)
    assert not of_type(node.hear_install(2, ROWS[4], term=4), InstallLog)
    node.flush_meta()
    effects = node.hear_install(2, ROWS[4], term=4, stream=STREAM + 1)
    assert of_type(effects, InstallLog)


def test_a_log_start_of_an_older_term_is_answered_with_ours() -> None:
    node = follower(TERMS[:2])
    effects = node.hear_install(3, ROWS[4], term=3)
    assert [answer.term for _, answer in sent(effects, AppendReject)] == [4]
    assert not of_type(effects, InstallLog)


def test_w1_a_log_start_of_an_older_stream_is_dropped() -> None:
    node = follower(TERMS[:2])
    node.hear_append(2, ROWS[2], stream=STREAM + 5)
    assert not install(node, 5, stream=STREAM + 4)


def test_a_log_start_that_cannot_be_is_dropped() -> None:
    node = follower(TERMS[:2])
    header = replace(ROWS[4].header, term=Term(9))
    assert not node.hear_install(2, replace(ROWS[4], header=header), term=4)
    assert not node.hear_install(node.node, ROWS[4], term=4)
    header = replace(ROWS[4].header, first_lsn=Lsn(0), count=0)  # META refuses it
    assert not node.hear_install(2, replace(ROWS[4], header=header), term=4)
    assert node.core.dropped == 3


def test_g5_a_trim_in_what_follows_acts_as_ever() -> None:
    rows = rows_of([1] * 7, trims=[7])
    node = OneNode(rows=[], term=1)
    node.follow(2, 4)
    node.hear_install(2, rows[4], term=4)
    node.flush()
    node.hear_append(2, rows[5], stream=STREAM)
    node.hear_append(2, rows[6], stream=STREAM, commit=7)
    assert of_type(node.step(Persisted(node.persist_seq)), ApplyTrim) == [ApplyTrim(Index(7))]
    assert rows[6].header.kind == EntryKind.TRIM
