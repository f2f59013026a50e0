"""What recovery found of a log with a long history crosses the rings of 1 MiB, and status names it
(SAFETY M8, M9)."""

from __future__ import annotations

import msgspec
import pytest

from actors import topology
from actors.host import RealHost
from actors.messages import FaultyRange, StatusReported, StatusRequested
from actors.raft import RaftActor
from actors.topology import Counter
from actors.writer import WriterActor
from logstore.format.entry import EntryHeader, Row
from logstore.format.peer_messages import Heartbeat
from logstore.limits import COMMAND_RING_BYTES, STATUS_FAULTY_MAX, TRIMS_AT_ONCE
from logstore.model import EntryKind
from logstore.raft.effects import ApplyTrim
from logstore.raft.events import ControlReceived, LogStartMoved
from logstore.raft.log_view import Position, WholeLogStart
from tests.unit.actor_stage import ActorStage
from tests.unit.raft_stage import recovered

RUNS = 200_000
RANGES = 100_000


class NoDisk:
    """The core may not read rows for a status."""

    def row(self, index):
        raise AssertionError(f"entry {index} was read from the disk")

    def close_if_stale(self):
        """It keeps no file open."""


class Replica:
    """The writer, whose folder has recovered `report`, and raft."""

    def __init__(self, folder, report, monkeypatch) -> None:
        self.stage = ActorStage(folder, command_ring_bytes=COMMAND_RING_BYTES)
        (folder / "data").mkdir()
        self.writer = WriterActor(
            self.stage.station(topology.WRITER, RealHost(has_own_thread=False))
        )
        self.raft = RaftActor(self.stage.station(topology.RAFT))
        monkeypatch.setattr(self.writer._folder, "recover", lambda: report)
        self.raft._rows = NoDisk()
        self.writer.on_start()

    def work(self) -> None:
        while self.writer._to_raft.is_congested:
            assert self.writer.next_timer_ns() < self.stage.now_ns + 10_000_000
            self.writer.do_work(self.stage.now_ns)
            self.raft.do_work(self.stage.now_ns)
        self.stage.work(self.raft)

    def status(self) -> tuple[dict, int]:
        request = StatusRequested(9)
        self.stage.send(topology.INGRESS, topology.RAFT, request, channel=topology.CONTROL)
        self.stage.work(self.raft)
        heard = self.stage.heard(topology.RAFT, topology.INGRESS)
        [reported] = [each for each in heard if isinstance(each, StatusReported)]
        return msgspec.json.decode(reported.document), len(reported.document)


def last_row(index, term):
    header = EntryHeader(
        kind=EntryKind.NOOP, count=0, term=term, index=index, prev_term=term - 1, first_lsn=1,
        timestamp_ns=0, cumulative_bytes=0, prev_chain=5, body_size=0, body_crc=0,
    )  # fmt: skip
    return Row(header, 6)


def report_of(*, runs=1, faulty=()):
    """A log of 2 * RUNS entries, all of them committed."""
    last = 2 * RUNS
    return msgspec.structs.replace(
        recovered(),
        term=runs,
        last_row=last_row(last, runs),
        term_runs=tuple((2 * number + 1, number + 1) for number in range(runs)),
        commit_floor=last,
        persisted=last,
        faulty=faulty,
    )


@pytest.mark.parametrize("runs", [53_570, RUNS])
def test_a_log_of_many_leaders_starts_again(tmp_path, monkeypatch, runs):
    """From about 53,570 changes of leader on, no replica did: its report was one ring message."""
    replica = Replica(tmp_path, report_of(runs=runs), monkeypatch)
    replica.work()
    status, _ = replica.status()
    assert (status["term"], status["last_index"]) == (runs, 2 * RUNS)
    log = replica.raft._core._state.log
    assert [log.term_at(index) for index in (1, 2, 3, 2 * runs)] == [1, 1, 2, runs]


def test_a_log_with_many_damaged_ranges_starts_and_its_status_names_the_first_and_their_number(
    tmp_path, monkeypatch
):
    """7,200 ranges were a status above half a ring, which ended raft."""
    faulty = tuple(
        FaultyRange(2 * each + 1, 2 * each + 1, 50 + each, 50 + each) for each in range(RANGES)
    )
    replica = Replica(tmp_path, report_of(faulty=faulty), monkeypatch)
    replica.work()
    status, size = replica.status()
    assert status["faulty_count"] == RANGES
    assert len(status["faulty"]) == STATUS_FAULTY_MAX
    assert status["faulty"][1] == {
        "first_index": 3, "last_index": 3, "first_lsn": 51, "last_lsn": 51,
    }  # fmt: skip
    assert size < 16 << 10
    assert replica.raft._core.persisted == 2 * RUNS
    assert replica.stage.slots[Counter.LAST_INDEX] == 2 * RUNS


def test_what_raft_keeps_of_a_start_goes_with_the_log_below_the_log_start(tmp_path, monkeypatch):
    """Else it is as much as the log ever was, until the next start."""
    faulty = (FaultyRange(1, 3, 50, 51), FaultyRange(9, 9, 55, 55), FaultyRange(20_001, 20_001, 9))
    replica = Replica(tmp_path, report_of(runs=10_000, faulty=faulty), monkeypatch)
    replica.work()
    start = Position(20_000, 10_000, 1, 5)
    replica.stage.send(topology.WRITER, topology.RAFT, LogStartMoved(WholeLogStart(start, 0, 0, 2)))
    replica.work()
    raft = replica.raft
    log = raft._core._state.log
    assert (log._run_firsts, log._run_terms) == ([20_001], [10_000])
    assert raft._core.faulty == ((20_001, 20_001),)
    assert list(raft._faulty_lsns._lsns) == [20_001]
    assert (raft._recovered.term_runs, raft._recovered.faulty) == ((), ())
    assert replica.status()[0]["faulty_count"] == 1


def test_a_log_of_many_trims_starts_again(tmp_path, monkeypatch):
    """One a second, of what is older than a day, leaves 86,400 of them in the log. At the first
    commit that raft heard of it ordered all of them at once, and from 81,920 on it ended, unless
    the writer read some meanwhile, at every start."""
    last = 2 * RUNS
    report = msgspec.structs.replace(report_of(), trims=tuple(range(2, last, 4)))
    replica = Replica(tmp_path, report, monkeypatch)
    replica.work()
    row = replica.raft._core._state.log.last
    heartbeat = Heartbeat(1, last, 1, last, row.term, row.next_lsn, row.chain)
    replica.stage.send(
        topology.INGRESS, topology.RAFT, ControlReceived(2, 1, heartbeat), channel=topology.CONTROL
    )
    replica.stage.work(replica.raft)
    orders = []
    while some := replica.stage.heard(topology.RAFT, topology.WRITER):
        orders += [each.index for each in some if isinstance(each, ApplyTrim)]
        replica.stage.work(replica.raft)
    assert orders == list(report.trims[-TRIMS_AT_ONCE:])
