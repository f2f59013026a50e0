"""Imports at the append port: where the log ends, once, and only without sessions (P1)."""

from __future__ import annotations

import itertools

import pytest
import zmq

from actors.topology import Counter
from logstore import limits
from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.client_messages import (
    Acks,
    ImportRequest,
    MetadataRequest,
    SessionStateRequest,
    Welcome,
)
from logstore.format.message import encode_message
from logstore.model import EntryKind
from logstore.raft import effects
from tests.unit.ingress_stage import CLUSTER, Stage, ack_rows, make_batch, open_request
from transport import link

OK = ErrorCode.OK
FOREIGN = 0xF0F0  # a producer of another log


class StageImporter:
    """Pushes imports and hears of them, under a topic of its own."""

    _ids = itertools.count(900)

    def __init__(self, stage):
        self.stage = stage
        self.id = next(self._ids)
        self.feed = stage.subscribe(self.id)
        assert isinstance(self.feed.read()[0], Welcome)
        self.socket = stage.network.connect(zmq.PUSH, "append")

    def queue(self, first_lsn, batch, *, cluster_id=CLUSTER):
        frame = encode_message(
            ImportRequest(self.id, first_lsn, batch), cluster_id=cluster_id,
            sender_uuid=bytes(16), sender=0, target=0, correlation=0,
        )  # fmt: skip
        self.send(frame)

    def send(self, frame):
        assert link.try_send(self.socket, [frame])

    def push(self, first_lsn, batch, **changes):
        self.queue(first_lsn, batch, **changes)
        self.stage.work()

    def rows(self):
        found = [each for each in self.feed.read() if isinstance(each, Acks)]
        assert all((each.producer_epoch, each.round) == (0, 0) for each in found)
        return [row for each in found for row in ack_rows(each)]


def foreign(sequence, payloads=(b"a", b"bc")):
    return make_batch(sequence, payloads, producer_id=FOREIGN, epoch=9)


@pytest.fixture
def stage():
    stage = Stage()
    stage.lead()
    return stage


@pytest.fixture
def importer(stage):
    return StageImporter(stage)


def test_imports_are_entries_of_their_own_kind_told_once_they_are_committed(stage, importer):
    """P5: and their bytes are those that were pushed, of a producer nobody has a session for."""
    for place, sequence in enumerate((7, 3, 7)):
        importer.queue(1 + 2 * place, foreign(sequence))
    stage.work()
    proposals = stage.take_proposals()
    assert [proposed.kind for proposed, _ in proposals] == [EntryKind.IMPORT] * len(proposals)
    assert b"".join(body for _, body in proposals) == foreign(7) + foreign(3) + foreign(7)
    for proposed, body in proposals:
        header = stage.append_entry(EntryKind.IMPORT, body, proposed.count)
        stage.tell(effects.Accepted(1, 1, proposed.prop, header.index, header.first_lsn))
    assert importer.rows() == []
    stage.commit()
    assert importer.rows() == [(1, 1, 2, OK, 0), (3, 3, 2, OK, 0), (5, 5, 2, OK, 0)]
    assert len(stage.ingress.admission.table) == 0


def test_an_import_elsewhere_than_at_the_end_changes_nothing_and_is_told_the_end(stage, importer):
    """What is on its way counts: the same request twice is stored once."""
    for first_lsn in (0, 2, 2**63 - 1, 2**64 - 1):
        importer.push(first_lsn, foreign(1))
        assert importer.rows() == [(first_lsn, 0, 0, ErrorCode.GAP, 1)]
    importer.push(1, foreign(1))
    importer.push(1, foreign(1))
    assert importer.rows() == [(1, 0, 0, ErrorCode.GAP, 3)]
    stage.accept()
    importer.push(1, foreign(1))
    assert importer.rows() == [(1, 0, 0, ErrorCode.GAP, 3)]
    stage.commit()
    assert importer.rows() == [(1, 1, 2, OK, 0)]
    importer.push(1, foreign(1))
    assert importer.rows() == [(1, 0, 0, ErrorCode.GAP, 3)]
    assert stage.take_proposals() == []


def test_a_log_with_a_session_takes_no_import(stage, importer):
    """From the moment its OPEN is in the stream; what came before it is imported still."""
    importer.push(1, foreign(1))
    client = stage.client()
    client.ask(open_request())
    importer.push(3, foreign(2))
    assert importer.rows() == [(3, 0, 0, ErrorCode.IMPORT_REFUSED, 0)]
    stage.accept_and_commit()
    assert importer.rows() == [(1, 1, 2, OK, 0)]
    assert [header.kind for header, _ in stage.entries[1:]] == [EntryKind.IMPORT, EntryKind.OPEN]
    producer_id = client.answer().producer_id
    importer.push(3, foreign(2))
    assert importer.rows() == [(3, 0, 0, ErrorCode.IMPORT_REFUSED, 0)]
    stage.tell(effects.AdmissionClosed(1, 2, "transfer"))
    stage.tell(effects.Admit(1, 2, len(stage.entries), 1))
    assert stage.ingress.admission.table.get(producer_id) is not None
    importer.push(3, foreign(2))
    assert importer.rows() == [(3, 0, 0, ErrorCode.IMPORT_REFUSED, 0)]


def test_the_producers_of_imported_batches_have_no_session_here(stage, importer):
    """Theirs start over: nobody is deduplicated against another log, or fenced by it."""
    importer.push(1, foreign(1))
    stage.accept_and_commit()
    client = stage.client()
    for request in (SessionStateRequest(FOREIGN, 9, 1), open_request(producer_id=FOREIGN)):
        client.ask(request)
        assert client.answer().code == ErrorCode.UNKNOWN_PRODUCER


def test_appends_follow_what_was_imported(stage, importer):
    importer.push(1, foreign(1))
    stage.accept_and_commit()
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    assert producer.acks() == [(1, [(0, 3, 2, OK, 0)])]


def test_a_new_leader_knows_where_the_log_ends_without_reading_what_was_imported(stage, importer):
    """SAFETY E5: the uncommitted tail included; the rest of the gen before it is forgotten."""
    importer.push(1, foreign(1))
    stage.accept_and_commit()
    importer.push(3, foreign(2))
    stage.accept()
    importer.push(5, foreign(3))
    stage.tell(effects.TermEnded(1))
    assert importer.rows() == [(1, 1, 2, OK, 0)]
    stage.take_proposals()
    stage.lead(term=2, gen=2)
    assert stage.logs[-1].reads == []
    importer.push(3, foreign(2))
    assert importer.rows() == [(3, 0, 0, ErrorCode.GAP, 5)]
    importer.push(5, foreign(3))
    stage.accept_and_commit()
    assert importer.rows() == [(5, 5, 2, OK, 0)]


def test_snapshots_come_while_a_log_is_imported_so_that_no_walk_is_long(
    stage, importer, monkeypatch
):
    """SAFETY E6: an empty table is one, too. What a new leader walks over counts."""
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY_BYTES", 3 * len(foreign(1)))
    for place in range(3):
        importer.push(1 + 2 * place, foreign(place))
        stage.accept_and_commit()
    stage.accept_and_commit()
    kinds = [header.kind for header, _ in stage.entries[1:]]
    assert kinds == [EntryKind.IMPORT] * 3 + [EntryKind.SESSION]
    importer.push(7, foreign(3))
    stage.accept_and_commit()
    importer.push(9, foreign(4))
    stage.accept_and_commit()
    stage.tell(effects.TermEnded(1))
    stage.lead(term=2, gen=2)
    importer.push(11, foreign(5))
    stage.accept_and_commit()
    stage.accept_and_commit()
    kinds = [header.kind for header, _ in stage.entries[5:]]
    assert kinds == [EntryKind.IMPORT] * 2 + [EntryKind.NOOP, EntryKind.IMPORT, EntryKind.SESSION]


def test_whose_bytes_do_not_hold_together_is_told_and_changes_nothing(stage, importer):
    """What would be stored is checked as a producer's batch is."""
    good = foreign(1)
    wrong = {
        "cut": good[:-8],
        "more than one": good + good,
        "flipped": good[:60] + bytes([good[60] ^ 1]) + good[61:],
        "nothing": b"",
        "zeros": bytes(64),
    }
    for batch in wrong.values():
        importer.push(1, batch)
        assert importer.rows() == [(1, 0, 0, ErrorCode.INVALID_BATCH, 0)]
    importer.push(1, good[:4] + b"\x02\x00" + good[6:])
    assert importer.rows() == [(1, 0, 0, ErrorCode.UNSUPPORTED_VERSION, 0)]
    importer.push(1, foreign(1, [b"x" * 70_000]))
    assert importer.rows() == [(1, 0, 0, ErrorCode.BATCH_TOO_LARGE, 0)]
    importer.push(1, good, cluster_id=b"another cluster!")
    importer.push(1, good, cluster_id=bytes(16))
    assert importer.rows() == [(1, 0, 0, ErrorCode.WRONG_CLUSTER, 0)] * 2
    assert stage.take_proposals() == []


def test_what_is_no_import_is_dropped_and_counted(stage, importer):
    request = encode_message(
        MetadataRequest(), cluster_id=CLUSTER, sender_uuid=bytes(16), sender=0, target=0,
        correlation=0,
    )  # fmt: skip
    counters = (Counter.FRAMES_DROPPED, Counter.FRAMES_DAMAGED)
    before = [stage.counter(each) for each in counters]
    for frame in (request, request[:-1] + b"\x01", b"LMSG" + bytes(100)):
        importer.send(frame)
        stage.work()
    assert [stage.counter(each) for each in counters] == [before[0] + 2, before[1] + 1]
    assert importer.rows() == []


def test_who_does_not_lead_says_who_does():
    stage = Stage()
    stage.identify()
    stage.tell(effects.LeaderChanged(3, 2))
    importer = StageImporter(stage)
    importer.push(1, foreign(1))
    assert importer.rows() == [(1, 0, 0, ErrorCode.NOT_LEADER, 2)]


def test_who_was_not_told_yet_who_it_is_does_not_send_the_importer_to_another_cluster():
    """A replica that has just started: for the importer that would be the end (simulator, seed 287
    at 047ed87)."""
    importer = StageImporter(Stage())
    importer.push(1, foreign(1))
    assert importer.rows() == [(1, 0, 0, ErrorCode.NOT_LEADER, 0)]


def test_an_import_that_raft_puts_elsewhere_stops_ingress(stage, importer):
    """SAFETY S4: nobody but this gen's proposals takes LSNs."""
    importer.push(1, foreign(1))
    with pytest.raises(InvariantViolated, match="ended at LSN 1"):
        stage.tell(effects.Accepted(1, 1, 0, 2, 5))
