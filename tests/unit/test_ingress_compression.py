"""Compressed batches at the append port: stored as they came, counted by both sizes, and only where
the log's format level allows them (SAFETY S11)."""

from __future__ import annotations

import pytest

from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.level import COMPRESSION_LEVEL
from logstore.model import Codec
from logstore.raft import effects
from tests.unit.compressed_batches import TEXT, compressed, with_block
from tests.unit.ingress_stage import Stage, push_frame
from tests.unit.test_ingress_imports import StageImporter
from transport import link

OK = ErrorCode.OK
CODECS = [Codec.LZ4, Codec.ZSTD]
TEXT_BYTES = sum(map(len, TEXT))


@pytest.fixture
def stage():
    stage = Stage()
    stage.level = COMPRESSION_LEVEL
    stage.lead()
    stage.commit()
    return stage


def push(producer, batch, round_=1):
    assert link.try_send(producer.push_socket, [push_frame(batch, round_)])
    producer.stage.work()


def of(producer, codec, sequence=0):
    return compressed(TEXT, codec, producer_id=producer.id, epoch=producer.epoch, sequence=sequence)


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_is_stored_as_it_came_and_counted_by_both_sizes(stage, codec):
    producer = stage.producer()
    batch = of(producer, codec)
    push(producer, batch)
    producer.push(1, [b"12345"])
    ((_, body), (_, rest)) = proposals = stage.take_proposals()
    assert (body, rest) == (batch, producer.batch(1, [b"12345"]))
    for proposed, body in proposals:
        header = stage.append_entry(proposed.kind, body, proposed.count)
        stage.tell(accepted(proposed, header))
    assert producer.acks() == []
    stage.commit()
    assert producer.acks() == [(1, [(0, 1, len(TEXT), OK, 0), (1, 1 + len(TEXT), 1, OK, 0)])]
    assert stage.counter(Counter.PAYLOADS_ACKNOWLEDGED) == len(TEXT) + 1
    assert stage.counter(Counter.PAYLOAD_BYTES_ACKNOWLEDGED) == TEXT_BYTES + 5
    stored = stage.counter(Counter.STORED_BYTES_ACKNOWLEDGED)
    assert 0 <= len(batch) - (48 + 4 * (len(TEXT) + 1) + 4) - (stored - 5) < 8


def accepted(proposed, header):
    return effects.Accepted(
        proposed.term, proposed.gen, proposed.prop, header.index, header.first_lsn,
        header.timestamp_ns,
    )  # fmt: skip


def test_a_retry_of_the_same_bytes_is_known_one_in_another_form_is_another_batch(stage):
    """SAFETY E7: a sequence belongs to its bytes, and a library version may compress otherwise."""
    producer = stage.producer()
    batch = of(producer, Codec.ZSTD)
    push(producer, batch)
    stage.accept_and_commit()
    push(producer, batch, 2)
    push(producer, of(producer, Codec.LZ4), 3)
    acks = dict(producer.acks()[-2:])
    assert acks[2] == [(0, 1, len(TEXT), OK, 0)]
    ((sequence, _, _, code, _),) = acks[3]
    assert (sequence, code) == (0, ErrorCode.SEQUENCE_REUSED)


@pytest.mark.parametrize("codec", CODECS)
def test_below_its_level_a_compressed_batch_is_refused_and_changes_nothing(codec):
    stage = Stage()
    stage.level = COMPRESSION_LEVEL - 1
    stage.lead()
    stage.commit()
    producer = stage.producer()
    push(producer, of(producer, codec))
    refused = (0, 0, len(TEXT), ErrorCode.LEVEL_REFUSED, COMPRESSION_LEVEL - 1)
    assert producer.acks() == [(1, [refused])]
    producer.push(0, [b"as it is"])  # the sequence is still free
    stage.accept_and_commit()
    assert producer.acks() == [(1, [(0, 1, 1, OK, 0)])]
    stage.level = COMPRESSION_LEVEL
    stage.append_entry(64 + COMPRESSION_LEVEL, b"", 0)
    stage.commit()
    push(producer, of(producer, codec, 1))
    stage.accept_and_commit()
    assert producer.acks() == [(1, [(1, 2, len(TEXT), OK, 0)])]


def test_a_leader_that_does_not_know_the_level_yet_refuses_so_that_it_comes_again():
    """SAFETY E9: its term has committed nothing, and what it has heard of before may be too old."""
    stage = Stage()
    stage.level = COMPRESSION_LEVEL - 1
    stage.lead()
    stage.commit()
    producer = stage.producer()
    stage.lead(term=2, gen=2)
    stage.level = COMPRESSION_LEVEL
    push(producer, of(producer, Codec.ZSTD))
    assert producer.acks() == [(1, [(0, 0, len(TEXT), ErrorCode.NOT_READY, 0)])]
    stage.commit()
    push(producer, of(producer, Codec.ZSTD), 2)
    stage.accept_and_commit()
    assert producer.acks() == [(2, [(0, 1, len(TEXT), OK, 0)])]


def test_a_level_that_was_committed_is_known_to_the_next_term_at_once(stage):
    producer = stage.producer()
    stage.lead(term=2, gen=2)
    push(producer, of(producer, Codec.LZ4))
    stage.accept_and_commit()
    assert producer.acks() == [(1, [(0, 1, len(TEXT), OK, 0)])]


def test_a_replica_that_does_not_lead_says_so(stage):
    producer = stage.producer()
    stage.tell(effects.TermEnded(1))
    stage.tell(effects.LeaderChanged(2, 3))
    push(producer, of(producer, Codec.LZ4))
    ((_, rows),) = producer.acks()
    assert [row[3] for row in rows] == [ErrorCode.NOT_LEADER]


@pytest.mark.parametrize(
    ("sizes", "block", "code"),
    [
        ([64 << 10], b"a bomb of more than batch_max", ErrorCode.BATCH_TOO_LARGE),
        ([4], b"", ErrorCode.INVALID_BATCH),
        ([0, 0], b"12345678", ErrorCode.INVALID_BATCH),
    ],
)
def test_what_may_not_be_stored_is_refused_for_good(stage, sizes, block, code):
    producer = stage.producer()
    batch = with_block(sizes, block, Codec.ZSTD, producer_id=producer.id, epoch=producer.epoch)
    push(producer, batch)
    assert producer.acks() == [(1, [(0, 0, len(sizes), code, 0)])]


def test_a_block_that_is_none_is_stored_since_no_server_looks(stage):
    producer = stage.producer()
    batch = with_block(
        [900], b"no block", Codec.ZSTD, producer_id=producer.id, epoch=producer.epoch
    )
    push(producer, batch)
    stage.accept_and_commit()
    assert producer.acks() == [(1, [(0, 1, 1, OK, 0)])]
    assert stage.counter(Counter.PAYLOAD_BYTES_ACKNOWLEDGED) == 900
    assert stage.counter(Counter.STORED_BYTES_ACKNOWLEDGED) == 8


def test_imports_are_gated_and_counted_as_pushes_are(stage):
    importer = StageImporter(stage)
    batch = compressed(TEXT, Codec.LZ4, producer_id=0xF0F0, epoch=9, sequence=3)
    importer.push(1, batch)
    ((_, body),) = proposals = stage.take_proposals()
    assert body == batch
    (proposed, _) = proposals[0]
    header = stage.append_entry(proposed.kind, body, proposed.count)
    stage.tell(accepted(proposed, header))
    stage.commit()
    assert importer.rows() == [(1, 1, len(TEXT), OK, 0)]
    assert stage.counter(Counter.PAYLOAD_BYTES_ACKNOWLEDGED) == TEXT_BYTES
    assert 0 < stage.counter(Counter.STORED_BYTES_ACKNOWLEDGED) < TEXT_BYTES


def test_an_import_below_its_level_is_refused():
    stage = Stage()
    stage.level = COMPRESSION_LEVEL - 1
    stage.lead()
    importer = StageImporter(stage)
    batch = compressed(TEXT, Codec.LZ4, producer_id=0xF0F0, epoch=9, sequence=3)
    importer.push(1, batch)
    stage.commit()
    importer.push(1, batch)
    assert [row[3:] for row in importer.rows()] == [
        (ErrorCode.NOT_READY, 0), (ErrorCode.LEVEL_REFUSED, COMPRESSION_LEVEL - 1),
    ]  # fmt: skip
    assert stage.take_proposals() == []
