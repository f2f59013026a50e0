"""The raft actor: before recovery, the ring's account, processes that die, full rings, status."""

from __future__ import annotations

import pytest

from actors import topology
from actors.messages import (
    Identity,
    InitAnswered,
    InitRequested,
    ProcessGone,
    RecoveryDelayed,
    StopReady,
    StopRequested,
)
from actors.topology import Counter
from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import Heartbeat, HeartbeatReply, PreVoteRequest
from logstore.limits import FULL_DISK_KEPT_BYTES
from logstore.model import EntryKind, ReplicaState
from logstore.raft.effects import (
    Accepted,
    AdmissionClosed,
    Admit,
    Describe,
    Lead,
    Persist,
    ReadIndexAnswered,
    Send,
    StopLeading,
    TransferAnswered,
)
from logstore.raft.events import (
    DiskFullChanged,
    Persisted,
    ReadIndexRequested,
    TransferRequested,
)
from logstore.raft.space import most_bytes
from tests.unit.actor_stage import CLUSTER, OUR_UUID, RING_BYTES
from tests.unit.raft_stage import START_CHAIN, RaftStage
from transport.payload_ring import PayloadRingReader

REPLICATOR = topology.replicator(2)


@pytest.fixture
def raft(tmp_path):
    return RaftStage(tmp_path)


def of(kind, messages):
    return [message for message in messages if isinstance(message, kind)]


def status(raft):
    return raft.status()


def entry(term, index=1, body=b""):
    return EntryHeader(
        kind=EntryKind.DATA if body else EntryKind.NOOP, count=1 if body else 0, term=term,
        index=index, prev_term=0, first_lsn=1, timestamp_ns=0, cumulative_bytes=len(body),
        prev_chain=START_CHAIN, body_size=len(body), body_crc=7 if body else 0,
    )  # fmt: skip


# --- before recovery ---


def test_before_recovery_ring_ranges_are_settled_and_nothing_is_answered_to_peers(raft):
    """SAFETY M4: each range once, those that nobody will ever use too."""
    start, end = raft.append(entry(3, body=b"12345678"), term=3, body=b"12345678")
    raft.hear(2, PreVoteRequest(1, 0, 0))
    assert raft.free() == end > start
    assert raft.heard(topology.INGRESS) == []
    assert status(raft)["state"] == "recovering"


def test_before_recovery_our_own_processes_are_told_that_there_is_no_leader_here(raft):
    raft.say(topology.EGRESS, ReadIndexRequested(5))
    assert raft.heard(topology.EGRESS) == [ReadIndexAnswered(5, False, 0)]
    raft.say(
        topology.INGRESS, TransferRequested(6, 2), InitRequested(7, 1), channel=topology.CONTROL
    )
    transfer, init = raft.heard(topology.INGRESS)
    assert isinstance(transfer, TransferAnswered)
    assert not transfer.is_done
    assert init == InitAnswered(7, ErrorCode.NOT_READY, "the log is being recovered: ask again")


def test_a_recovery_that_waits_says_for_what_until_it_is_done(raft):
    raft.say(topology.WRITER, RecoveryDelayed("no space: free some"))
    raft.say(topology.INGRESS, InitRequested(7, 1), channel=topology.CONTROL)
    assert raft.heard(topology.INGRESS) == [
        InitAnswered(7, ErrorCode.NOT_READY, "no space: free some")
    ]
    assert status(raft)["refusal"] == "no space: free some"
    raft.recover()
    assert status(raft)["refusal"] == ""


def test_a_damaged_replica_says_why_and_takes_no_part(raft):
    """SAFETY L1."""
    raft.recover(ReplicaState.EMPTY, "meta.a and meta.b are both damaged")
    raft.hear(2, PreVoteRequest(1, 0, 0))
    raft.say(topology.INGRESS, InitRequested(7, 1), channel=topology.CONTROL)
    heard = raft.heard(topology.INGRESS)
    assert of(InitAnswered, heard) == [
        InitAnswered(
            7,
            ErrorCode.INVALID_REQUEST,
            f"the folder of node 1, {raft.stage.station(topology.RAFT).folder}, is damaged: "
            "meta.a and meta.b are both damaged",
        )
    ]
    assert status(raft)["damage"] == "meta.a and meta.b are both damaged"
    assert raft.heard(topology.WRITER) == []
    assert not raft.stage.is_busy_loop(raft.raft)


def test_a_disk_that_was_full_before_there_was_a_core_keeps_admission_closed(raft):
    """SAFETY S9: the spare of a newborn log may find no space before raft hears of the log."""
    raft.say(topology.WRITER, DiskFullChanged(True))
    raft.recover()
    raft.lead_and_commit()
    assert of(Admit, raft.heard(topology.INGRESS)) == []
    raft.say(topology.WRITER, DiskFullChanged(False))
    assert len(of(Admit, raft.heard(topology.INGRESS))) == 1


def test_s9_the_room_that_was_reported_before_there_was_a_core_counts(raft):
    """It takes TRIMs at once; what else has room is shown to ingress before the gen begins."""
    room = FULL_DISK_KEPT_BYTES + most_bytes(0) + 5_000
    raft.say(topology.WRITER, DiskFullChanged(True, room, 1_000))
    raft.recover()
    term = raft.lead_and_commit()
    raft.hear(2, HeartbeatReply(term, 1, 1, 0, 0))
    raft.pass_time(10_000_000)
    [admit] = of(Admit, raft.heard(topology.INGRESS))
    assert not admit.takes_batches
    assert raft.slots[topology.Counter.ROOM_FOR_CHANGES] == 5_000


# --- admission and the ring ---


def test_e3_a_closed_gen_is_dropped_and_its_ranges_are_free(raft):
    raft.recover()
    term = raft.lead_and_commit()
    [admit] = of(Admit, raft.heard(topology.INGRESS))
    raft.propose(0, term=term, gen=admit.gen)
    raft.say(topology.WRITER, DiskFullChanged(True))
    _, end = raft.propose(1, term=term, gen=admit.gen)
    raft.flush()
    heard = raft.heard(topology.INGRESS)
    assert [each.prop for each in of(Accepted, heard)] == [0]
    assert of(AdmissionClosed, heard) == [AdmissionClosed(admit.gen, 1, "disk_full")]
    assert raft.free() == end


def test_a_range_that_comes_twice_is_an_invariant_violated(raft):
    raft.recover()
    term = raft.lead_and_commit()
    [admit] = of(Admit, raft.heard(topology.INGRESS))
    raft.propose(0, term=term, gen=admit.gen)
    raft.stage.ring._slots[8] = raft.stage.ring._slots[16] = 0
    with pytest.raises(InvariantViolated, match="twice"):
        raft.propose(1, term=term, gen=admit.gen)


def test_v3_the_index_is_stored_before_the_visible_lsn_and_neither_before_the_flush(raft):
    raft.recover()
    term = raft.lead_and_commit()
    [admit] = of(Admit, raft.heard(topology.INGRESS))
    before = raft.slots[Counter.VISIBLE]
    raft.propose(0, term=term, gen=admit.gen)
    for peer in (2, 3):
        raft.match(peer, 2)  # committed by the followers alone (F9)
    assert raft.slots[Counter.VISIBLE] == before
    raft.flush()
    assert (raft.slots[Counter.VISIBLE_INDEX], raft.slots[Counter.VISIBLE]) == (2, 2)


def hold(raft, *, position, term=1, peer=2):
    reader = PayloadRingReader(raft.stage.regions.payload, incarnation=1)
    slot = raft.stage.station(topology.RAFT).hold_slot(topology.replicator(peer))
    reader.set_hold(slot, term=term, position=position)


def test_m4_a_hold_keeps_bytes_until_its_replicator_dies(raft):
    raft.recover()
    term = raft.lead_and_commit()
    [admit] = of(Admit, raft.heard(topology.INGRESS))
    hold(raft, position=0)
    _, end = raft.propose(0, term=term, gen=admit.gen)
    raft.flush()
    assert raft.free() == 0
    raft.say(topology.SUPERVISOR, ProcessGone(REPLICATOR))
    assert raft.free() == end


def test_m4_holds_of_another_term_or_far_behind_are_ignored(raft):
    raft.recover()
    term = raft.lead_and_commit()
    [admit] = of(Admit, raft.heard(topology.INGRESS))
    hold(raft, position=0, term=term + 1)
    body = bytes(RING_BYTES // 4)
    _, end = raft.propose(0, term=term, gen=admit.gen, body=body)
    raft.flush()
    assert raft.free() == end
    hold(raft, position=end, term=term)
    for prop in (1, 2, 3):
        _, end = raft.propose(prop, term=term, gen=admit.gen, body=body)
        raft.flush()
    assert raft.free() == end


# --- processes that die ---


def test_m3_a_new_replicator_learns_who_we_are_and_then_its_stream(raft):
    raft.recover()
    raft.lead_and_commit()
    [first] = of(Lead, raft.heard(REPLICATOR))
    raft.say(topology.SUPERVISOR, ProcessGone(REPLICATOR))
    identity, lead = raft.heard(REPLICATOR)
    assert identity == Identity(CLUSTER, OUR_UUID, 1, ReplicaState.VOTER)
    assert (lead.term, lead.next_index) == (1, 2)
    assert lead.stream > first.stream


def test_m3_a_new_replicator_of_a_follower_does_not_take_up_its_predecessors_lead(raft):
    raft.recover()
    raft.lead()
    raft.hear_heartbeat(3, term=2)
    raft.say(topology.SUPERVISOR, ProcessGone(REPLICATOR))
    heard = raft.heard(REPLICATOR)
    assert isinstance(heard[-2], Identity)
    assert heard[-1] == StopLeading(2)


def test_m3_a_replicator_that_never_reads_stops_nobody_else(tmp_path):
    """Its ring is full; what is said again anyway is dropped, orders wait, raft goes on."""
    raft = RaftStage(tmp_path, command_ring_bytes=1 << 12)
    raft.recover()
    raft.lead_and_commit()
    for _ in range(3_000):
        raft.match(3, 1)
        raft.hear(3, PreVoteRequest(1, 0, 0))
        raft.heard(topology.INGRESS)
        raft.heard(topology.replicator(3))
        raft.pass_time(20_000_000)
    assert raft.slots[Counter.SENDS_DROPPED] > 100
    replicator = raft.raft._routes._replicators[2]
    assert len(replicator.outbox._spill) < 10
    for _ in range(100):
        raft.say(topology.SUPERVISOR, ProcessGone(REPLICATOR))
    assert len(replicator.outbox._spill) < 10
    heard = raft.heard(REPLICATOR)
    raft.pass_time(1_000)
    heard += raft.heard(REPLICATOR)
    assert isinstance(heard[-1], Lead | Send)
    assert len(of(Lead, heard)) >= 2


def test_m8_of_descriptors_that_find_no_room_the_newest_is_offered_again(tmp_path):
    raft = RaftStage(tmp_path, command_ring_bytes=1 << 12)
    raft.recover()
    term = raft.lead_and_commit()
    [admit] = of(Admit, raft.heard(topology.INGRESS))
    for prop in range(120):
        raft.propose(prop, term=term, gen=admit.gen)
        raft.flush()
        raft.heard(topology.INGRESS)
    described = of(Describe, raft.heard(REPLICATOR))
    assert len(described) < 121
    raft.pass_time(1_000)
    [newest] = of(Describe, raft.heard(REPLICATOR))
    assert newest.header.index == 121


def test_a_new_egress_learns_who_we_are(raft):
    raft.recover()
    raft.heard(topology.EGRESS)
    raft.say(topology.SUPERVISOR, ProcessGone(topology.EGRESS))
    assert of(Identity, raft.heard(topology.EGRESS)) == [
        Identity(CLUSTER, OUR_UUID, 1, ReplicaState.VOTER)
    ]


# --- idle, stop, status ---


def test_an_orderly_stop_of_a_follower_is_ready_at_once_a_leaders_after_its_transfer(raft):
    raft.recover()
    raft.say(topology.SUPERVISOR, StopRequested())
    assert raft.heard(topology.SUPERVISOR) == [StopReady()]
    raft.lead_and_commit()
    raft.say(topology.SUPERVISOR, StopRequested())
    assert raft.heard(topology.SUPERVISOR) == []
    raft.hear_heartbeat(2, term=2)
    assert raft.heard(topology.SUPERVISOR) == [StopReady()]


@pytest.mark.parametrize("role", ["recovering", "newborn", "follower", "leader"])
def test_idle_is_idle_in_every_role(raft, role):
    if role == "newborn":
        raft.recover(ReplicaState.EMPTY)
    elif role != "recovering":
        raft.recover()
    if role == "leader":
        raft.lead_and_commit()
    for _ in range(50):
        raft.time_out()
        raft.stage.work(raft.raft)
        raft.stage.now_ns += 5_000_000
        raft.stage.work(raft.raft)
        assert not raft.stage.is_busy_loop(raft.raft)


def test_status_of_a_leader_tells_its_place_and_its_peers(raft):
    raft.recover()
    raft.lead_and_commit()
    raft.pass_time(20_000_000)
    raft.match(2, 1)
    facts = status(raft)
    assert (facts["role"], facts["term"], facts["leader"]) == ("leader", 1, 1)
    assert facts["match"] == {"2": 1, "3": 0}
    assert facts["silent_ms"] == {"2": 0, "3": 20}, "node 3 was not heard in this term"
    assert facts["is_ready"]
    assert facts["refusal"] == ""


def test_a_follower_writes_what_its_leader_sends_and_answers_only_after_the_flush(raft):
    raft.recover()
    raft.hear_heartbeat(2, term=3)
    body = b"12345678"
    raft.append(entry(3, body=body), term=3, body=body)
    [persist] = of(Persist, raft.heard(topology.WRITER))
    sent = [type(each.message).__name__ for each in raft.heard(topology.INGRESS)
            if hasattr(each, "peer")]  # fmt: skip
    assert "AppendPersisted" not in sent
    raft.say(topology.WRITER, Persisted(persist.seq))
    sent = [type(each.message).__name__ for each in raft.heard(topology.INGRESS)
            if hasattr(each, "peer")]  # fmt: skip
    assert "AppendPersisted" in sent


def test_heartbeats_of_a_leader_go_to_every_replicator(raft):
    raft.recover()
    raft.lead_and_commit()
    for peer in (2, 3):
        raft.heard(topology.replicator(peer))
    raft.time_out()
    raft.pass_time(raft.stage.config.raft.heartbeat_ns)
    for peer in (2, 3):
        beats = [each.message for each in of(Send, raft.heard(topology.replicator(peer)))]
        assert of(Heartbeat, beats)
