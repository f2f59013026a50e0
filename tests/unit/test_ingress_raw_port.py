"""The raw port: bare payloads of any PUSH, only where a replica takes appends (SAFETY E3, W6)."""

from __future__ import annotations

from types import SimpleNamespace

import zmq

from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.batch import batch_payloads, iterate_batches
from logstore.format.client_messages import Acks, ImportRequest, Welcome
from logstore.format.message import encode_message
from logstore.model import EntryKind
from logstore.raft import effects
from tests.unit import ingress_stage
from tests.unit.ingress_stage import CLUSTER, Stage, ack_rows, make_batch
from transport import link
from transport.errors import PortInUse

ENDPOINT = "tcp://127.0.0.1:7050"


class RawStage(Stage):
    """A stage whose node has a raw port. `is_taken`: another process listens there."""

    def __init__(self, monkeypatch, **limits) -> None:
        self.is_taken = False
        text = ingress_stage.CONFIG.replace("port = 7000", "port = 7000\nraw_port = 7050")
        monkeypatch.setattr(ingress_stage, "CONFIG", text)
        super().__init__(**limits)

    def _open_ports(self, station):
        station.host.links = SimpleNamespace(pull_bind=self._bind)
        return super()._open_ports(station)

    def _bind(self, endpoint, *, message_size_max, insecure):
        assert not insecure
        if self.is_taken:
            raise PortInUse("taken")
        self.payload_max_bytes = message_size_max
        return self.network.bind(zmq.PULL, endpoint)

    def take_appends(self, term=1, gen=1):
        """Lead, and commit the term's no-op."""
        self.lead(term, gen)
        self.commit()
        self.work()

    def next_gen(self, gen, *, takes_batches):
        """The gen ends, and another one begins in the same term."""
        self.tell(
            effects.AdmissionClosed(self.term, 0, "disk"),
            effects.Admit(self.term, gen, len(self.entries), 1, takes_batches=takes_batches),
        )
        self.work()

    def pusher(self):
        return self.network.connect(zmq.PUSH, ENDPOINT)

    def bodies(self):
        """The payloads of each batch that was proposed; all accepted and committed."""
        found = []
        proposals = self.take_proposals()
        for proposed, body in proposals:
            assert proposed.kind == EntryKind.IMPORT
            for offset, header in iterate_batches(body):
                assert (header.producer_id, header.producer_epoch, header.sequence) == (0, 0, 0)
                found.append(batch_payloads(body, offset, header))
            header = self.append_entry(proposed.kind, body, proposed.count)
            self.freer.set_free(proposed.ring_end)
            ids = proposed.term, proposed.gen, proposed.prop
            self.tell(effects.Accepted(*ids, header.index, header.first_lsn, header.timestamp_ns))
        if proposals:
            self.commit()
        self.work()
        return found


def test_payloads_that_are_there_become_one_batch_of_no_session(monkeypatch) -> None:
    stage = RawStage(monkeypatch)
    stage.take_appends()
    pusher, everything = stage.pusher(), stage.subscribe(0)
    for payload in (b"one", b"", b"three"):
        assert link.try_send(pusher, (payload,))
    stage.work()
    assert stage.bodies() == [[b"one", b"", b"three"]]
    assert stage.next_lsn == 4
    assert stage.counter(Counter.PAYLOADS_ACKNOWLEDGED) == 3
    assert [type(each) for each in everything.read()] == [Welcome], "nobody is told"


def test_only_a_replica_that_takes_appends_listens(monkeypatch) -> None:
    stage = RawStage(monkeypatch)
    pusher = stage.pusher()
    stage.work()
    assert not link.try_send(pusher, (b"too early",))
    stage.take_appends()
    assert link.try_send(pusher, (b"now",))
    stage.work()
    assert stage.bodies() == [[b"now"]]
    stage.tell(effects.TermEnded(stage.term))
    stage.work()
    assert not link.try_send(pusher, (b"too late",))
    stage.take_appends(term=2, gen=2)
    assert link.try_send(pusher, (b"again",))
    stage.work()
    assert stage.bodies() == [[b"again"]]


def test_what_several_frames_say_is_dropped_and_counted(monkeypatch) -> None:
    stage = RawStage(monkeypatch)
    stage.take_appends()
    assert link.try_send(stage.pusher(), (b"two", b"frames"))
    stage.work()
    assert (stage.bodies(), stage.counter(Counter.FRAMES_DROPPED)) == ([], 1)


def test_the_largest_payload_fits_and_no_batch_is_too_large(monkeypatch) -> None:
    stage = RawStage(monkeypatch)
    stage.take_appends()
    pusher, most = stage.pusher(), stage.payload_max_bytes
    payloads = [bytes(most), b"small", bytes(most), bytes(most // 2), bytes(most // 2)]
    for payload in payloads:
        assert link.try_send(pusher, (payload,))
    found = []
    for _ in payloads:
        stage.work()
        found += stage.bodies()
    assert [payload for batch in found for payload in batch] == payloads
    assert most > 65_536 - 80


def test_what_was_pushed_waits_while_disks_are_full_and_between_two_gens(monkeypatch) -> None:
    """SAFETY S9: nothing is lost under the same leader."""
    stage = RawStage(monkeypatch)
    stage.take_appends()
    pusher = stage.pusher()
    stage.next_gen(2, takes_batches=False)
    assert link.try_send(pusher, (b"waits",))
    stage.work()
    assert stage.take_proposals() == []
    assert not [each for each in stage.ingress.wait_on() if each.endpoint == ENDPOINT]
    stage.tell(effects.AdmissionClosed(stage.term, 0, "space"))
    assert link.try_send(pusher, (b"too",))
    stage.work()
    stage.tell(effects.Admit(stage.term, 3, len(stage.entries), 1))
    stage.work()
    assert stage.bodies() == [[b"waits", b"too"]]


def test_a_leader_whose_disk_is_full_does_not_begin_to_listen(monkeypatch) -> None:
    stage = RawStage(monkeypatch)
    stage.lead()
    stage.next_gen(2, takes_batches=False)
    stage.commit()
    stage.work()
    assert not link.try_send(stage.pusher(), (b"too early",))


def test_a_port_that_is_taken_is_tried_again_and_harms_nobody(monkeypatch, caplog) -> None:
    stage = RawStage(monkeypatch)
    stage.is_taken = True
    stage.take_appends()
    assert caplog.text.count("raw port") == 0, "it may be free in a moment"
    for _ in range(3):
        stage.clock.now_ns += 1_000_000_001
        stage.work()
    assert caplog.text.count("the raw port stays closed for now: taken") == 1
    producer = stage.producer()
    producer.push(0)
    assert [each.kind for each in stage.accept_and_commit()][-1] == EntryKind.DATA
    stage.is_taken = False
    stage.clock.now_ns += 10_000_001
    stage.work()
    assert link.try_send(stage.pusher(), (b"at last",))
    stage.work()
    assert stage.bodies() == [[b"at last"]]


def test_an_import_after_raw_payloads_is_where_the_log_ends(monkeypatch) -> None:
    stage = RawStage(monkeypatch)
    stage.identify()
    stage.take_appends()
    feed = stage.subscribe(77)
    assert link.try_send(stage.pusher(), (b"first",))
    stage.work()
    batch = make_batch(0, producer_id=5)
    importer = stage.network.connect(zmq.PUSH, "append")
    for first_lsn in (1, 2):
        request = ImportRequest(77, first_lsn, batch)
        frame = encode_message(
            request, cluster_id=CLUSTER, sender_uuid=bytes(16), sender=0, target=0, correlation=0
        )
        assert link.try_send(importer, (frame,))
    stage.work()
    stage.accept_and_commit()
    rows = [row for acks in feed.read() if isinstance(acks, Acks) for row in ack_rows(acks)]
    assert [row[3] for row in rows] == [ErrorCode.GAP, ErrorCode.OK]
