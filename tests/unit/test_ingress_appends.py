"""From a pushed batch to its acknowledgement or refusal (SAFETY E1 to E4, E9, M4, W7)."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import APPEND_PREFIX, Welcome
from logstore.model import EntryKind
from logstore.raft import effects
from tests.unit.ingress_stage import Stage, make_batch, push_frame
from transport import link

OK = ErrorCode.OK


@pytest.fixture
def stage():
    stage = Stage()
    stage.lead()
    return stage


def test_a_batch_is_acknowledged_with_its_lsns_only_when_it_is_committed(stage):
    """SAFETY E4, P5."""
    producer = stage.producer()
    producer.push(0, [b"x", b"", b"yz"])
    producer.push(1)
    assert producer.acks() == []
    headers = stage.accept()
    assert producer.acks() == []
    stage.commit(headers[0].index)
    assert producer.acks() == [(1, [(0, 1, 3, OK, 0)])]
    stage.commit()
    assert producer.acks() == [(1, [(1, 4, 2, OK, 0)])]


def test_what_waits_together_becomes_one_group_and_one_acknowledgement(stage):
    one, two = stage.producer(), stage.producer()
    one.queue(0)
    two.queue(0, [b"only"])
    one.queue(1)
    stage.work()
    ((proposed, body),) = stage.take_proposals()
    assert (proposed.kind, proposed.count, proposed.prop) == (EntryKind.DATA, 5, 2)
    assert sorted(body) == sorted(one.batch(0) + two.batch(0, [b"only"]) + one.batch(1))
    header = stage.append_entry(EntryKind.DATA, body, 5)
    stage.tell(effects.Accepted(1, 1, proposed.prop, header.index, header.first_lsn))
    stage.commit()
    ((_, rows),) = one.acks()
    assert [row[0] for row in rows] == [0, 1]
    assert len(two.acks()) == 1


def test_many_small_batches_are_joined_in_order(stage):
    producer = stage.producer()
    for sequence in range(60):
        producer.queue(sequence, [b"%d" % sequence])
    stage.work()
    bodies = b"".join(body for _, body in stage.take_proposals())
    assert bodies == b"".join(producer.batch(n, [b"%d" % n]) for n in range(60))


def test_a_batch_above_the_rest_of_a_group_begins_the_next_one(stage):
    producer = stage.producer()
    large = [b"x" * 40_000]
    producer.queue(0, large)
    producer.queue(1, large)
    stage.work()
    proposals = stage.take_proposals()
    assert [proposed.prop for proposed, _ in proposals] == [1, 2]
    assert [body for _, body in proposals] == [producer.batch(0, large), producer.batch(1, large)]


def test_only_so_many_groups_are_in_flight_and_the_rest_stays_in_the_socket(stage):
    producer = stage.producer()
    for sequence in range(10):
        producer.push(sequence)
    assert len(stage.accept()) == 4
    assert stage.ingress._ports.append not in stage.ingress.wait_on()
    stage.commit()
    ((proposed, body),) = stage.take_proposals()
    assert proposed.count == 12
    assert body == b"".join(producer.batch(n) for n in range(4, 10))


def test_a_retry_of_a_committed_batch_gets_the_same_lsns_and_is_stored_once(stage):
    """FAULTS K1, P7."""
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    first = producer.acks()
    producer.push(0, round_=2)
    assert stage.take_proposals() == []
    assert producer.acks() == [(2, first[0][1])]


def test_a_retry_of_a_batch_in_flight_is_told_in_its_own_round_when_it_commits(stage):
    """FAULTS K2."""
    producer = stage.producer()
    producer.push(0)
    producer.push(0, round_=2)
    assert producer.acks() == []
    assert len(stage.accept()) == 1
    producer.push(0, round_=2)
    stage.commit()
    row = (0, 1, 2, OK, 0)
    assert producer.acks() == [(1, [row]), (2, [row])]


def test_a_gap_is_refused_once_a_round_with_the_expected_sequence(stage):
    """SAFETY E9, FAULTS K5."""
    producer = stage.producer()
    for sequence in (1, 2, 3):
        producer.push(sequence)
    assert producer.acks() == [(1, [(1, 0, 2, ErrorCode.GAP, 0)])]
    producer.push(2, round_=2)
    assert producer.acks() == [(2, [(2, 0, 2, ErrorCode.GAP, 0)])]
    producer.push(0, round_=2)
    assert len(stage.accept()) == 1


def test_refusals_name_their_reason(stage):
    producer = stage.producer()
    producer.push(0)
    producer.push(0, [b"other"])
    producer.push(1, [b"x" * 70_000])
    assert [row[3] for _, rows in producer.acks() for row in rows] == [
        ErrorCode.SEQUENCE_REUSED,
        ErrorCode.BATCH_TOO_LARGE,
    ]
    stranger = stage.subscribe(5)
    stranger.read()
    link.try_send(producer.push_socket, [push_frame(make_batch(0, producer_id=5))])
    stage.work()
    assert stranger.read()[0].producer_id == 5
    assert stage.counter(Counter.APPENDS_REFUSED) == 3


def test_a_fenced_producer_is_told_so(stage):
    """SAFETY E2, FAULTS K4."""
    old = stage.producer(name=b"one")
    new = stage.producer(name=b"one")
    assert (new.id, new.epoch) == (old.id, 2)
    old.push(0)
    assert old.acks()[0][1][0][3] == ErrorCode.FENCED
    new.push(0)
    assert len(stage.accept()) == 1


def reseal(batch: bytes | bytearray) -> bytes:
    """The bytes with a CRC that fits them."""
    crc = crc32c(bytes(batch[32:]), crc32c(bytes(batch[:28])))
    return bytes(batch[:28]) + crc.to_bytes(4, "little") + bytes(batch[32:])


def test_a_damaged_batch_is_counted_and_dropped_not_refused_under_the_id_it_shows(stage):
    """SAFETY W6: the damage may lie in the id, and the refusal would hit somebody else's batch."""
    producer = stage.producer()
    frame = push_frame(producer.batch(0))
    for place in (8 + 16, 8 + 12, 8 + 4, 8 + 28, 8 + 32, len(frame) - 1):
        damaged = bytearray(frame)
        damaged[place] ^= 1
        link.try_send(producer.push_socket, [bytes(damaged)])
    link.try_send(producer.push_socket, [frame[:-8]])
    stage.work()
    assert producer.acks() == []
    assert stage.counter(Counter.BULK_CORRUPT) == 7
    assert stage.take_proposals() == []


def test_an_undamaged_batch_that_does_not_hold_together_is_refused(stage):
    producer = stage.producer()
    batch = producer.batch(0)
    version = APPEND_PREFIX.pack(0x414C, 9, 1) + batch
    newer_batch = push_frame(reseal(batch[:4] + b"\x09" + batch[5:]))
    no_payloads = push_frame(reseal(batch[:12] + bytes(4) + batch[16:]))
    trailing = push_frame(reseal(batch + bytes(8)))
    for frame in (version, newer_batch, no_payloads, trailing):
        link.try_send(producer.push_socket, [frame])
    stage.work()
    codes = [row[3] for _, rows in producer.acks() for row in rows]
    newer, invalid = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_BATCH
    assert codes == [newer, newer, invalid, invalid]
    assert stage.counter(Counter.BULK_CORRUPT) == 0
    assert stage.take_proposals() == []


@pytest.mark.parametrize(
    "frames", [[b""], [b"x"], [b"x" * 500], [push_frame(b"y" * 60)], [b"a", b"b"]]
)
def test_garbage_on_the_append_port_is_counted_and_dropped(stage, frames):
    producer = stage.producer()
    link.try_send(producer.push_socket, frames)
    stage.work()
    assert stage.counter(Counter.FRAMES_DROPPED) == 1
    producer.push(0)
    assert len(stage.accept()) == 1


@pytest.mark.parametrize("leads", [True, False])
def test_every_frame_of_garbage_counts_for_what_is_read_at_once(leads):
    """SAFETY W6: a stranger's messages are copied before anyone sees what they are."""
    stage = Stage()
    stage.identify()
    if leads:
        stage.lead()
    push = stage.network.connect(8, "append")
    for _ in range(40):
        link.try_send(push, [b"x" * 60_000, b"y"])
    stage.ingress.do_work(stage.clock.now_ns)
    assert stage.counter(Counter.FRAMES_DROPPED) <= 8  # 4 groups of 64 KiB, or 256 KiB of refusals


def test_a_follower_says_who_leads():
    stage = Stage()
    stage.identify()
    stage.tell(effects.LeaderChanged(3, 2))
    feed = stage.subscribe(9)
    feed.read()
    push = stage.network.connect(8, "append")
    link.try_send(push, [push_frame(make_batch(4, producer_id=9), round_=6)])
    stage.work()
    (acks,) = feed.read()
    assert (acks.producer_id, acks.round) == (9, 6)
    assert acks.rows[16:32] == (2).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(
        8, "little"
    )
    assert stage.take_proposals() == []


def test_every_subscription_is_welcomed_under_its_topic(stage):
    """SAFETY E9."""
    stage.slots[Counter.VISIBLE] = 12
    feed = stage.subscribe(5)
    assert feed.read() == [Welcome(11)]
    assert stage.subscribe(5).read() == [Welcome(11)]


def test_a_full_payload_ring_holds_batches_back_and_loses_none():
    """SAFETY M4, W7: never dropped because of fullness, never waited for."""
    stage = Stage(ring_bytes=448 * 1024)
    stage.lead()
    producer = stage.producer()
    large = [b"x" * 60_000]
    kept = []
    for sequence in range(10):
        producer.push(sequence, large)
        proposals = stage.take_proposals()
        kept += proposals
        for proposed, body in proposals:  # committed, but its bytes stay in the ring
            header = stage.append_entry(proposed.kind, body, proposed.count)
            stage.tell(effects.Accepted(1, 1, proposed.prop, header.index, header.first_lsn))
            stage.commit()
        if stage.ingress._proposals.is_held_back:
            break
    assert 4 <= len(kept) < 10
    assert stage.ingress.next_timer_ns() <= stage.clock.now_ns + 1_000_000
    stage.freer.set_free(stage.reader.head)
    stage.work()
    ((proposed, body),) = stage.take_proposals()
    assert proposed.prop == kept[-1][0].prop + 1
    assert body == producer.batch(len(kept), large)


def test_a_congested_bulk_ring_holds_batches_back(stage):
    producer = stage.producer()
    while stage.bulk_ring.offer(bytes(1_000)):
        pass
    while stage.bulk_ring.offer(b""):
        pass
    for sequence in range(3):
        producer.push(sequence)
    stage.bulk_ring.drain(10_000)
    for _ in range(3):
        stage.work()
    assert sum(proposed.count for proposed, _ in stage.take_proposals()) == 6


def test_acknowledged_payloads_and_bytes_are_counted(stage):
    producer = stage.producer()
    producer.push(0, [b"abc", b"", b"de"])
    stage.accept_and_commit()
    assert stage.counter(Counter.PAYLOADS_ACKNOWLEDGED) == 3
    assert stage.counter(Counter.PAYLOAD_BYTES_ACKNOWLEDGED) == 5
    assert stage.counter(Counter.GROUPS_COMMITTED) == 1
