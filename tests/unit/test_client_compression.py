"""Producers that compress, and consumers of what they sent, whole or not."""

from __future__ import annotations

import copy
import pickle
import sys
import time
import tracemalloc
from collections.abc import Iterator

import pytest
import zstandard

import logstore
from logstore import ProducerOptions, aio
from logstore.client.core import importing, producer_machine
from logstore.errors import (
    CodecMissing,
    CorruptData,
    ErrorCode,
    InvalidRequest,
    LevelRefused,
    NotCommitted,
)
from logstore.format.batch import batch_sizes, encode_batch, read_batch_header
from logstore.format.client_messages import ImportRequest, OpenSessionRequest
from logstore.limits import MIB
from logstore.model import Codec
from tests.unit.aio_stage import LOOPS, run_of
from tests.unit.client_stage import Cluster, FakeReplica
from tests.unit.compressed_batches import NAMES, TEXT, compressed, with_block

WAIT_S = 10
CODECS = [Codec.LZ4, Codec.ZSTD]
PLAIN = encode_batch([b"plain"], producer_id=7, producer_epoch=1, sequence=9, timestamp_ns=5)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def replica(cluster: Cluster) -> FakeReplica:
    return cluster.replicas[1]


@pytest.fixture
def client(cluster: Cluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoint, timeout=20) as client:
        yield client


def fill(replica: FakeReplica, *batches: bytes) -> None:
    def append() -> None:
        for batch in batches:
            replica.starts.append(replica.next_lsn)
            replica.log.append(batch)
            replica.next_lsn += read_batch_header(batch).count

    replica.call(append)


# --- producers ---


@pytest.mark.parametrize("codec", CODECS)
def test_a_producer_compresses_and_sends_the_same_bytes_again(
    client: logstore.LogClient, replica: FakeReplica, codec: Codec
) -> None:
    """SAFETY E7: a retry is byte for byte what was sent first."""
    frames: list[bytes] = []
    take = replica._take

    def keep(frame: bytes) -> None:
        frames.append(frame[8:])
        take(frame)

    replica._take = keep  # type: ignore[method-assign]
    sent = iter([True, False])
    replica.on_push = lambda round_number, sequence, payloads: (
        None if next(sent, False) else replica.acknowledge(round_number, sequence, payloads)
    )
    options = ProducerOptions(compression=NAMES[codec], ack_timeout_s=0.1)
    with client.producer(options) as producer:
        assert producer.append_batch(TEXT).result(WAIT_S) == (1, len(TEXT))
        assert producer.append_batch([b"short"]).result(WAIT_S) == (len(TEXT) + 1,) * 2
    first, again, _ = frames
    assert first == again
    assert [read_batch_header(each).codec for each in frames] == [codec, codec, Codec.NONE]
    sizes = batch_sizes(first, 0, read_batch_header(first))
    assert sizes.stored_bytes < sizes.plain_bytes / 2
    assert replica.pushed.get(timeout=WAIT_S)[2] == TEXT


@pytest.mark.parametrize("loop", LOOPS)
def test_the_producer_for_asyncio_compresses_too(
    cluster: Cluster, replica: FakeReplica, loop: str
) -> None:
    async def body(log: aio.LogClient) -> None:
        async with await log.producer(ProducerOptions(compression="zstd")) as producer:
            assert await producer.append_batch(TEXT) == (1, len(TEXT))
        assert replica.pushed.get(timeout=WAIT_S)[2] == TEXT
        fill(replica, compressed(TEXT, Codec.ZSTD))
        async with log.consumer("earliest", end_lsn=2 * len(TEXT)) as consumer:
            assert [record.payload async for record in consumer] == [*TEXT, *TEXT]

    run_of(loop, cluster)(body)


def test_an_unknown_or_missing_codec_is_refused_before_a_session_is_opened(
    client: logstore.LogClient, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidRequest, match="none, lz4, zstd"):
        client.producer(ProducerOptions(compression="gzip"))
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(CodecMissing, match=r"pip install logstore\[lz4\]"):
        client.producer(ProducerOptions(compression="lz4"))
    asked = list(replica.requests.queue)
    assert not any(isinstance(each, OpenSessionRequest) for each in asked)


def test_a_log_below_the_level_ends_the_producer_with_what_to_do(
    client: logstore.LogClient, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_machine, "LEVEL_PATIENCE_S", 0.2)
    replica.on_push = lambda round_number, sequence, _: replica.send_acks(
        round_number, [(sequence, 0, len(TEXT), int(ErrorCode.LEVEL_REFUSED), 2)]
    )
    with client.producer(ProducerOptions(compression="lz4")) as producer:
        future = producer.append_batch(TEXT)
        with pytest.raises(LevelRefused, match="logstore upgrade.*compression='none'"):
            future.result(WAIT_S)
        with pytest.raises(NotCommitted, match="logstore upgrade"):
            producer.append_batch(TEXT).result(WAIT_S)


@pytest.mark.parametrize("code", [ErrorCode.NOT_READY, ErrorCode.LEVEL_REFUSED])
def test_a_leader_of_a_new_log_gets_the_batch_again(
    client: logstore.LogClient, replica: FakeReplica, code: ErrorCode
) -> None:
    """It does not know the level yet, or the log is raised within moments."""
    refusals = iter([code, code])

    def answer(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        code = next(refusals, None)
        if code is None:
            replica.acknowledge(round_number, sequence, payloads)
        else:
            replica.send_acks(round_number, [(sequence, 0, len(payloads), int(code), 0)])

    replica.on_push = answer
    with client.producer(ProducerOptions(compression="zstd")) as producer:
        assert producer.append_batch(TEXT).result(WAIT_S) == (1, len(TEXT))


def test_an_import_waits_for_the_level_of_a_new_log_and_no_longer(
    client: logstore.LogClient, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter([ErrorCode.LEVEL_REFUSED] * 2)

    def answer(request: ImportRequest) -> None:
        code = next(refusals, None)
        if code is None:
            replica.take_import(request)
        else:
            replica.answer_import(request, code, 2)

    replica.on_import = answer
    batch = compressed(TEXT, Codec.LZ4)
    assert client.admin.import_batches(1, [batch]) == len(TEXT) + 1
    assert replica.log == [batch]
    monkeypatch.setattr(importing, "LEVEL_PATIENCE_S", 0.2)
    replica.on_import = lambda request: replica.answer_import(request, ErrorCode.LEVEL_REFUSED, 2)
    with pytest.raises(LevelRefused, match="logstore upgrade"):
        client.admin.import_batches(len(TEXT) + 1, [batch])


def test_an_import_bounds_a_low_level_and_other_errors_by_a_time_each(
    client: logstore.LogClient, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "LEVEL_PATIENCE_S", 0.2)
    batch = compressed(TEXT, Codec.LZ4)
    begun_s = time.monotonic()

    def refuse_first(first: ErrorCode, then: ErrorCode, take_after_s: float) -> None:
        codes = iter([first])

        def answer(request: ImportRequest) -> None:
            if time.monotonic() - begun_s > take_after_s:
                replica.take_import(request)
            else:
                replica.answer_import(request, next(codes, then), 2)

        replica.on_import = answer

    refuse_first(ErrorCode.LEVEL_REFUSED, ErrorCode.OVERLOADED, 0.6)
    assert client.admin.import_batches(1, [batch]) == len(TEXT) + 1
    refuse_first(ErrorCode.OVERLOADED, ErrorCode.LEVEL_REFUSED, 6)
    with pytest.raises(LevelRefused):
        client.admin.import_batches(len(TEXT) + 1, [batch])


# --- consumers ---


def test_a_batch_can_be_copied_and_pickled(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, compressed(TEXT, Codec.ZSTD), PLAIN)
    batches = list(client.read(2, len(TEXT) + 1))
    unread = pickle.loads(pickle.dumps(batches))
    assert batches[0].values is not None  # decompressed, and kept
    for copies in (unread, pickle.loads(pickle.dumps(batches)), copy.deepcopy(batches)):
        assert [each.payloads() for each in copies] == [TEXT[1:], [b"plain"]]
        assert [each.first_lsn for each in copies] == [2, len(TEXT) + 1]
        assert [each.batch for each in copies] == [each.batch for each in batches]
        assert not copies[0].values.flags.writeable


@pytest.mark.parametrize("codec", CODECS)
def test_readers_give_the_payloads_of_compressed_batches_cut_or_whole(
    client: logstore.LogClient, replica: FakeReplica, codec: Codec
) -> None:
    batch = compressed(TEXT, codec)
    fill(replica, batch, batch)
    last = len(TEXT)
    with client.consumer("earliest", end_lsn=2 * last) as consumer:
        assert [record.payload for record in consumer] == [*TEXT, *TEXT]
    whole, cut = client.read(1, last + 3)
    assert (whole.payloads(), cut.payloads()) == (TEXT, TEXT[:3])
    assert whole.values.tobytes() == b"".join(TEXT)
    assert whole.values is whole.values  # decompressed once
    assert not whole.values.flags.writeable
    assert (whole.payload_bytes, cut.payload_bytes) == (
        sum(map(len, TEXT)), sum(map(len, TEXT[:3]))
    )  # fmt: skip
    assert whole.batch_stored_bytes == batch_sizes(batch, 0, read_batch_header(batch)).stored_bytes
    (middle,) = client.read(last + 2, last + 4)
    assert [record.payload for record in middle.records()] == TEXT[1:4]
    with client.reader() as reader:
        assert [bytes(each.data) for each in reader.read_batches(1, last)] == [batch]


def test_a_batch_that_cannot_be_decompressed_says_where_to_go_on(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    """All replicas have these bytes: only leaving them out helps."""
    fill(
        replica,
        compressed(TEXT, Codec.LZ4),
        with_block([100, 100], b"no block", Codec.ZSTD, producer_id=99),
        compressed([b"after", *TEXT], Codec.ZSTD),
    )
    bad = len(TEXT) + 1
    taken: list[bytes] = []
    with client.consumer("earliest", end_lsn=2 * len(TEXT) + 3) as consumer:
        with pytest.raises(CorruptData, match=f"Producer 99 .* go on at LSN {bad + 2}") as damage:
            taken += (record.payload for record in consumer)
        assert (damage.value.first_lsn, damage.value.last_lsn) == (bad, bad + 1)
        assert consumer.position == bad
        with pytest.raises(CorruptData, match="Zstandard"):
            next(iter(consumer))
        consumer.seek(damage.value.last_lsn + 1)
        assert next(iter(consumer)).payload == b"after"
        consumer.seek(bad)
        (first, *_) = consumer.poll(WAIT_S)
        assert (len(first), first.last_lsn) == (2, bad + 1)  # its LSNs need no codec
        with pytest.raises(CorruptData):
            first.payloads()


def test_bombs_take_the_memory_of_one_batch_at_a_time(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    """Each of them is within what any replica may take."""
    size, bombs = 8 * MIB, 12
    fill(replica, *[with_block([size], zstandard.compress(bytes(size)), Codec.ZSTD)] * bombs)
    with client.consumer("earliest", end_lsn=bombs) as consumer:
        batches = consumer.poll(WAIT_S)
        assert len(batches) == bombs
        tracemalloc.start()
        try:
            assert {len(batch.payloads()[0]) for batch in batches} == {size}
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 4 * size


def test_without_the_codec_a_consumer_says_what_to_install_and_goes_on_with_it(
    client: logstore.LogClient, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(replica, compressed(TEXT, Codec.ZSTD))
    with client.consumer("earliest", end_lsn=len(TEXT)) as consumer:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "zstandard", None)
            with pytest.raises(CodecMissing, match=r"pip install logstore\[zstandard\]"):
                next(iter(consumer))
            assert consumer.position == 1
        assert [record.payload for record in consumer] == TEXT


@pytest.mark.parametrize("is_polled", [True, False])
def test_without_the_codec_a_batch_is_handed_out_and_its_payloads_say_what_to_install(
    client: logstore.LogClient,
    replica: FakeReplica,
    monkeypatch: pytest.MonkeyPatch,
    is_polled: bool,
) -> None:
    fill(replica, compressed(TEXT, Codec.ZSTD))
    with client.consumer("earliest", end_lsn=len(TEXT)) as consumer:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "zstandard", None)
            batch = consumer.poll(WAIT_S)[0] if is_polled else next(consumer.batches())
            with pytest.raises(CodecMissing, match=r"pip install logstore\[zstandard\]"):
                batch.payloads()
            assert consumer.position == len(TEXT) + 1
        assert batch.payloads() == TEXT
        consumer.seek(batch.first_lsn)
        assert [record.payload for record in consumer] == TEXT
