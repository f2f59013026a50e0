"""Stamps of sampled entries: which entries, at which points, in which order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from actors import topology
from actors.topology import SPARES, Counter
from actors.trace import OF_REPLICATORS, TracePoint, is_sampled, row_names, sampled_in
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import AppendPersisted
from logstore.model import EntryKind
from logstore.raft import effects
from tests.unit.actor_stage import NODE, NODES, ActorStage
from tests.unit.ingress_stage import Stage as IngressStage
from tests.unit.raft_stage import START_CHAIN, RaftStage
from tests.unit.replicator_stage import ReplicatorStage
from tests.unit.test_ingress_peers import append
from tests.unit.writer_stage import WriterStage
from transport.stamp_table import STAMPED_EVERY, STAMPS_KEPT

SAMPLED = STAMPED_EVERY  # the first entry that is sampled


class Ticking:
    """A clock that is 1 later each time."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def wall_ns(self) -> int:
        return 0


@pytest.fixture
def stage(tmp_path: Path) -> ActorStage:
    return ActorStage(tmp_path)


def stamper(stage, point=TracePoint.APPENDED, process=topology.RAFT):
    return stage.station(process, SimpleNamespace(clock=Ticking())).stamper(point)


def test_a_process_that_is_started_again_stamps_nothing_that_passed_before(
    stage: ActorStage,
) -> None:
    """A replicator may be; its table stays. What it confirms next was not confirmed just now."""
    stamper(stage).stamp_through(10 * SAMPLED)
    before = stamped(stage, TracePoint.APPENDED)
    again = stamper(stage)
    again.stamp_through(10 * SAMPLED)
    assert stamped(stage, TracePoint.APPENDED) == before
    again.stamp_through(11 * SAMPLED)
    assert stamped(stage, TracePoint.APPENDED).keys() - before.keys() == {11 * SAMPLED}


def stamped(stage: ActorStage, point: str) -> dict[int, int]:
    return stage.station(topology.SUPERVISOR).read_stamps()[point]


def test_every_point_has_a_row_and_each_replicator_its_own() -> None:
    names = row_names(NODE, NODES)
    assert len(set(names)) == len(names) == len(TracePoint) - 2 + 2 * (2 + SPARES)
    assert {"sent.2", "sent.3", "confirmed.2", "confirmed.3"} <= set(names)
    assert not set(names) & set(OF_REPLICATORS)


def test_the_stamps_of_a_spare_are_of_the_member_that_it_serves(stage: ActorStage) -> None:
    station = stage.station("spare-3")
    station.stamper(TracePoint.SENT).stamp(SAMPLED)
    assert "sent.7" not in station.read_stamps()
    stage.slots[station.slot(topology.served_slot("spare-3"))] = 7
    assert station.read_stamps()["sent.7"].keys() == {SAMPLED}
    assert not [name for name in station.read_stamps() if "spare" in name]


def test_only_every_so_many_entries_are_stamped(stage: ActorStage) -> None:
    appended = stamper(stage)
    for index in range(1, 3 * SAMPLED):
        appended.stamp(index)
    appended.stamp_at(3 * SAMPLED, 77)
    assert stamped(stage, "appended") == {SAMPLED: 1, 2 * SAMPLED: 2, 3 * SAMPLED: 77}


def test_what_passes_together_has_one_time_and_passes_once(stage: ActorStage) -> None:
    committed = stamper(stage, TracePoint.COMMITTED)
    committed.stamp_through(2 * SAMPLED + 1)
    committed.stamp_through(3 * SAMPLED - 1)
    assert stamped(stage, "committed") == {SAMPLED: 1, 2 * SAMPLED: 1}
    committed.stamp_through(3 * SAMPLED)
    assert stamped(stage, "committed")[3 * SAMPLED] == 2


def test_entries_that_take_the_place_of_truncated_ones_are_stamped_anew(stage: ActorStage) -> None:
    answered = stamper(stage, TracePoint.ANSWERED)
    answered.stamp_through(3 * SAMPLED)
    answered.stamp_through(SAMPLED)
    answered.stamp_through(2 * SAMPLED)
    assert stamped(stage, "answered") == {SAMPLED: 1, 2 * SAMPLED: 2, 3 * SAMPLED: 1}


def test_a_follower_that_catches_up_costs_no_more_stamps_than_are_kept(stage: ActorStage) -> None:
    confirmed = stamper(stage, TracePoint.CONFIRMED, topology.replicator(2))
    confirmed.stamp_through(SAMPLED * 1_000_000)
    found = stamped(stage, "confirmed.2")
    assert len(found) == STAMPS_KEPT
    assert max(found) == SAMPLED * 1_000_000


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (1, SAMPLED - 1, []),
        (SAMPLED, SAMPLED, [SAMPLED]),
        (SAMPLED + 1, 3 * SAMPLED, [2 * SAMPLED, 3 * SAMPLED]),
    ],
)
def test_the_sampled_entries_of_a_range_are_those_that_are_sampled(first, last, expected) -> None:
    assert list(sampled_in(first, last)) == expected
    assert [each for each in range(first, last + 1) if is_sampled(each)] == expected


# --- the actors ---


def test_a_leaders_ingress_stamps_what_it_reads_proposes_and_acknowledges() -> None:
    stage = IngressStage()
    stage.clock.step_ns = 1
    stage.lead()
    producer = stage.producer()
    while len(stage.entries) < SAMPLED - 1:
        producer.push(len(stage.entries) - 2)  # after the no-op and the opening
        stage.accept_and_commit()
    producer.push(SAMPLED - 3)
    stage.accept()
    stamps = stage.read_stamps()
    assert set(stamps["received"]) == set(stamps["proposed"]) == {SAMPLED}
    assert stamps["acknowledged"] == stamps["answered"] == {}
    stage.commit()
    stamps = stage.read_stamps()
    way = [stamps[point][SAMPLED] for point in ("received", "proposed", "acknowledged")]
    assert way == sorted(set(way))


def test_a_followers_ingress_stamps_what_it_receives_proposes_and_answers() -> None:
    stage = IngressStage()
    stage.identify()
    stage.clock.step_ns = 1
    for index in range(1, SAMPLED + 1):
        stage.peer_send("peer_bulk", *append(index))
    stage.tell(effects.Answer(2, AppendPersisted(3, SAMPLED)))
    stamps = stage.read_stamps()
    way = [stamps[point] for point in ("received", "proposed", "answered")]
    assert all(set(each) == {SAMPLED} for each in way)
    times = [each[SAMPLED] for each in way]
    assert times == sorted(set(times))


def test_a_stale_append_does_not_move_the_stamp_of_its_entry() -> None:
    stage = IngressStage()
    stage.identify()
    stage.clock.step_ns = 1
    stage.peer_send("peer_bulk", *append(SAMPLED))
    before = stage.read_stamps()
    stage.tell(effects.StreamAccepted(3, 1, SAMPLED, False))
    stage.peer_send("peer_bulk", *append(SAMPLED))
    assert stage.read_stamps() == before


def test_raft_stamps_what_it_appends_and_what_is_committed(tmp_path: Path) -> None:
    raft = RaftStage(tmp_path)
    raft.recover()
    term = raft.lead_and_commit()  # entry 1 is the no-op
    for prop in range(SAMPLED):
        raft.propose(prop, term=term, gen=1)
    appended = raft.stage.station(topology.RAFT).read_stamps()
    assert set(appended["appended"]) == {SAMPLED}
    assert appended["committed"] == {}
    raft.flush()
    raft.match(2, SAMPLED + 1)
    stamps = raft.stage.station(topology.RAFT).read_stamps()
    assert stamps["committed"][SAMPLED] > stamps["appended"][SAMPLED]


def test_a_follower_stamps_what_it_appends(tmp_path: Path) -> None:
    raft = RaftStage(tmp_path)
    raft.recover()
    raft.hear_heartbeat(2, 1)
    chain, prev_term = START_CHAIN, 0
    for index in range(1, SAMPLED + 1):
        header = EntryHeader(
            kind=EntryKind.NOOP, count=0, term=1, index=index, prev_term=prev_term, first_lsn=1,
            timestamp_ns=1, cumulative_bytes=0, prev_chain=chain, body_size=0, body_crc=0,
        )  # fmt: skip
        chain, prev_term = header.chain(), 1
        raft.append(header, term=1)
    assert set(raft.stage.station(topology.RAFT).read_stamps()["appended"]) == {SAMPLED}


def test_a_writer_stamps_the_steps_of_its_flushes_and_counts_their_time(tmp_path: Path) -> None:
    writer = WriterStage(tmp_path)
    writer.bear()
    writer.persist(*[64] * (SAMPLED + 1))
    writer.settle()
    stamps = writer.stage.station(topology.WRITER).read_stamps()
    points = ("write_begun", "data_flushed", "records_begun", "records_flushed")
    assert all(set(stamps[point]) == {SAMPLED} for point in points)
    times = [stamps[point][SAMPLED] for point in points]
    assert times == sorted(times)
    assert writer.counter(Counter.DATA_FLUSH_NS) >= times[1] - times[0] > 0
    assert writer.counter(Counter.RECORD_FLUSH_NS) >= times[3] - times[2] > 0
    writer.close()


def test_a_replicator_stamps_what_it_sends_and_what_is_confirmed(tmp_path, monkeypatch) -> None:
    stage = ReplicatorStage(tmp_path, monkeypatch)
    stage.identify()
    stage.lead()
    stage.append(*[8] * (SAMPLED + 1))
    read = stage.stage.station(topology.SUPERVISOR).read_stamps
    assert set(read()["sent.2"]) == {SAMPLED}
    assert read()["confirmed.2"] == read()["sent.3"] == {}
    stage.answer(AppendPersisted(1, SAMPLED + 1))
    assert read()["confirmed.2"][SAMPLED] > read()["sent.2"][SAMPLED]
    stage.close()
