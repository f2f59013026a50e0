"""raft's driver: who is told of a start, and what a replica does that forgot one (SAFETY L7).

The stage's replica is node 1 with uuid OUR_UUID, boot 1; its nonce is its incarnation, 1.
"""

from __future__ import annotations

import pytest

from actors import topology
from actors.messages import ForgottenSaved, SaveForgotten, SaveStart, StartSaved, TellStart
from actors.raft.start_reports import ASK_AGAIN_MAX_NS
from logstore.errors import ReplicaLost
from logstore.format.meta import Forgotten, ForgottenWhat
from logstore.format.peer_messages import (
    Heartbeat,
    PreVoteRequest,
    StartReport,
    StartSeen,
    VoteRequest,
)
from logstore.format.peer_starts import PeerStart
from logstore.limits import PEER_STARTS_MAX
from logstore.raft.effects import Answer
from tests.unit.actor_stage import OUR_UUID
from tests.unit.raft_stage import START_CHAIN, RaftStage, recovered

PEER_UUID = bytes([2]) * 16
OURS = StartSeen(OUR_UUID, 1, 1)


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def of(kind, heard):
    return [each for each in heard if isinstance(each, kind)]


def reports(raft, peer):
    return of(TellStart, raft.heard(topology.replicator(peer)))


def answers(raft):
    return [each.message for each in of(TellStart, raft.heard(topology.INGRESS))]


def start_alone(raft):
    """Nobody has answered yet."""
    raft.say(topology.WRITER, recovered())


# --- the one that asks ---


def test_a_replica_reports_its_start_until_each_peer_has_answered(raft):
    start_alone(raft)
    report = TellStart(2, StartReport(1))
    assert reports(raft, 2) == [report]
    raft.hear_of_start(3, OURS)
    raft.heard(topology.replicator(3))
    for _ in range(3):
        raft.time_out()
        raft.flush()
    assert report in reports(raft, 2)
    assert reports(raft, 3) == []
    raft.hear_of_start(2, OURS)
    raft.pass_time(10 * ASK_AGAIN_MAX_NS)
    assert reports(raft, 2) == []


def test_a_peer_that_never_answers_is_asked_once_a_minute(raft):
    """An older version drops the message."""
    start_alone(raft)
    for _ in range(12):
        raft.pass_time(ASK_AGAIN_MAX_NS)
    raft.heard(topology.replicator(2))
    for _ in range(10):
        raft.pass_time(ASK_AGAIN_MAX_NS // 2)
    assert len(reports(raft, 2)) == 5


@pytest.mark.parametrize(
    "seen",
    [
        OURS,
        StartSeen(OUR_UUID, 0, 7),  # late word of the start before
        StartSeen(bytes(15) + b"x", 9, 9),  # of another replica: this one's number was reset
    ],
)
def test_what_says_nothing_of_a_forgotten_start_changes_nothing(raft, seen):
    start_alone(raft)
    raft.hear_of_start(2, seen)
    assert of(SaveForgotten, raft.heard(topology.WRITER)) == []
    raft.hear_of_start(2, OURS)
    raft.hear_of_start(3, OURS)
    assert raft.lead_and_commit() == 1


@pytest.mark.parametrize("seen", [StartSeen(OUR_UUID, 2, 5), StartSeen(OUR_UUID, 1, 5)])
def test_a_replica_that_has_forgotten_a_start_neither_votes_nor_acknowledges_again(raft, seen):
    raft.recover()
    raft.hear_of_start(3, seen)
    forgotten = Forgotten(ForgottenWhat.STARTS, 3, 1, seen.boot)
    assert of(SaveForgotten, raft.heard(topology.WRITER)) == [SaveForgotten(forgotten)]
    raft.heard(topology.INGRESS)
    raft.hear(2, PreVoteRequest(1, 9, 1))
    raft.hear(2, VoteRequest(1, 9, 1, False))
    raft.hear(2, Heartbeat(3, 0, 1, 0, 0, 1, START_CHAIN))
    raft.pass_time(60_000_000_000)
    assert of(Answer, raft.heard(topology.INGRESS)) == []
    assert raft.heard(topology.WRITER) == []
    assert raft.status()["role"] == "none"
    with pytest.raises(ReplicaLost, match=f"node 3 has seen (another )?start {seen.boot}"):
        raft.say(topology.WRITER, ForgottenSaved(forgotten))


def test_a_replica_that_lost_what_it_had_flushed_goes_on_no_more(raft):
    """FAULTS D14, O4: a folder put back from an older copy, as its leader's heartbeat shows."""
    raft.recover()
    raft.hear(2, Heartbeat(3, 9, 1, 9, 3, 1, START_CHAIN))
    forgotten = Forgotten(ForgottenWhat.ENTRIES, 2, 0, 9)
    assert of(SaveForgotten, raft.heard(topology.WRITER)) == [SaveForgotten(forgotten)]
    with pytest.raises(ReplicaLost, match=r"entries 1 to 9 are gone, .* its leader, node 2"):
        raft.say(topology.WRITER, ForgottenSaved(forgotten))


def test_the_heartbeat_that_shows_the_loss_is_not_answered(raft):
    """Its answer would count in a round."""
    raft.recover()
    raft.hear(2, Heartbeat(3, 0, 1, 0, 0, 1, START_CHAIN))
    raft.flush()
    assert [each.message.round for each in of(Answer, raft.heard(topology.INGRESS))] == [1]
    raft.hear(2, Heartbeat(3, 9, 2, 9, 3, 1, START_CHAIN))
    assert of(Answer, raft.heard(topology.INGRESS)) == []
    assert len(of(SaveForgotten, raft.heard(topology.WRITER))) == 1


# --- the one that is asked ---


def test_a_start_is_answered_once_it_is_durable(raft):
    raft.recover()
    raft.heard(topology.INGRESS)
    start = PeerStart(PEER_UUID, 4, 44)
    raft.hear_of_start(2, StartReport(44), boot=4)
    assert answers(raft) == []
    assert of(SaveStart, raft.heard(topology.WRITER)) == [SaveStart(start, (start,))]
    raft.say(topology.WRITER, StartSaved(start))
    assert answers(raft) == [StartSeen(PEER_UUID, 4, 44)]
    raft.hear_of_start(2, StartReport(44), boot=4)  # the answer was lost
    assert answers(raft) == [StartSeen(PEER_UUID, 4, 44)]
    assert of(SaveStart, raft.heard(topology.WRITER)) == []


def test_without_space_a_start_is_saved_when_it_is_reported_again(raft):
    raft.recover()
    raft.hear_of_start(2, StartReport(44), boot=4)
    raft.heard(topology.WRITER)
    raft.hear_of_start(2, StartReport(44), boot=4)
    start = PeerStart(PEER_UUID, 4, 44)
    assert of(SaveStart, raft.heard(topology.WRITER)) == [SaveStart(start, (start,))]
    assert answers(raft) == []


def test_starts_that_a_full_disk_never_has_are_kept_no_longer_than_they_are_known(raft):
    """Of replicas that come and go, each with a uuid of its own."""
    raft.recover()
    uuids = [number.to_bytes(16, "big") for number in range(1, 4 * PEER_STARTS_MAX)]
    for uuid in uuids:
        raft.hear_of_start(2, StartReport(44), boot=4, uuid=uuid)
    raft.heard(topology.WRITER)
    kept = raft.raft._starts._unsaved
    assert list(kept) == uuids[-PEER_STARTS_MAX:]
    raft.heard(topology.INGRESS)
    for uuid in uuids:
        raft.say(topology.WRITER, StartSaved(PeerStart(uuid, 4, 44)))
    assert answers(raft) == [StartSeen(uuid, 4, 44) for uuid in uuids[-PEER_STARTS_MAX:]]
    assert not kept


@pytest.mark.parametrize(("boot", "nonce"), [(3, 33), (4, 45)])
def test_an_older_or_another_start_is_told_the_one_that_was_seen(raft, boot, nonce):
    """At once, and whether the file could be written or not."""
    raft.recover()
    raft.hear_of_start(2, StartReport(44), boot=4)
    raft.heard(topology.INGRESS)
    raft.heard(topology.WRITER)
    raft.hear_of_start(2, StartReport(nonce), boot=boot)
    assert answers(raft) == [StartSeen(PEER_UUID, 4, 44)]
    assert of(SaveStart, raft.heard(topology.WRITER)) == []


def test_what_was_seen_before_a_restart_is_still_known(raft):
    report = recovered()
    known = PeerStart(PEER_UUID, 4, 44)
    raft.say(topology.WRITER, type(report)(**{
        **{name: getattr(report, name) for name in report.__struct_fields__}, "starts": (known,)
    }))  # fmt: skip
    raft.heard(topology.INGRESS)
    raft.hear_of_start(2, StartReport(99), boot=4)
    assert answers(raft) == [StartSeen(PEER_UUID, 4, 44)]


def test_a_peer_that_starts_anew_hears_of_this_start_again(raft):
    """It may have lost what it knew."""
    raft.recover()
    for peer in (2, 3):
        raft.heard(topology.replicator(peer))
    raft.hear_of_start(2, StartReport(44), boot=4)
    assert reports(raft, 2) == [TellStart(2, StartReport(1))]
    assert reports(raft, 3) == []


def test_a_late_word_of_an_earlier_start_is_answered_and_harms_nobody(raft):
    raft.recover()
    for boot in (4, 5):
        raft.hear_of_start(2, StartReport(10 * boot), boot=boot)
        raft.say(topology.WRITER, StartSaved(PeerStart(PEER_UUID, boot, 10 * boot)))
    raft.heard(topology.INGRESS)
    raft.hear_of_start(2, StartReport(40), boot=4)
    assert answers(raft) == [StartSeen(PEER_UUID, 5, 50)]  # which start 5 takes for its own
