"""Importing whole batches: once, in order, through whatever gets lost; and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import pytest

import logstore
from logstore.client.core import importing
from logstore.errors import (
    BatchTooLarge,
    ErrorCode,
    FormatError,
    ImportRefused,
    InvalidBatch,
    InvalidRequest,
    OutOfRange,
    Unreachable,
)
from logstore.format.batch import encode_batch
from logstore.format.client_messages import ImportRequest
from tests.unit.client_stage import Cluster, FakeReplica


def batch(number: int, count: int = 2) -> bytes:
    return encode_batch(
        [b"%d-%d" % (number, at) for at in range(count)],
        producer_id=0xF0F0 + number % 3, producer_epoch=4, sequence=90 + number, timestamp_ns=17,
    )  # fmt: skip


BATCHES = [batch(number, number % 3 + 1) for number in range(10)]
FIRSTS = [1, 2, 4, 7, 8, 10, 13, 14, 16, 19]
END = 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def replica(cluster: Cluster) -> FakeReplica:
    return cluster.replicas[1]


@pytest.fixture
def log(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[logstore.LogClient]:
    monkeypatch.setattr(importing, "ACK_TIMEOUT_S", 0.15)
    with logstore.connect(cluster.endpoint, timeout=20) as client:
        yield client


def hold(replica: FakeReplica, batches: list[bytes], first_lsn: int = 1) -> None:
    """What the log holds already."""
    replica.next_lsn = replica.log_start_lsn = first_lsn
    for each in batches:
        replica.on_import(ImportRequest(1, replica.next_lsn, each))


def test_batches_come_to_their_lsns_byte_for_byte(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    assert log.admin.import_batches(1, iter(BATCHES)) == END
    assert (replica.log, replica.starts) == (BATCHES, FIRSTS)
    assert log.admin.import_batches(END, []) == END


def test_any_log_begins_where_it_was_formed_to(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    replica.next_lsn = replica.log_start_lsn = 7_000
    assert log.admin.import_batches(7_000, [memoryview(BATCHES[1])]) == 7_002
    with pytest.raises(OutOfRange) as refused:
        log.admin.import_batches(6_999, BATCHES)
    assert (refused.value.first, refused.value.last) == (7_000, 7_001)


def test_what_is_there_is_compared_and_skipped(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    hold(replica, BATCHES[:6])
    for place in (0, 3, 6):
        assert log.admin.import_batches(FIRSTS[place], BATCHES[place:8]) == FIRSTS[8]
    assert replica.log == BATCHES[:8]
    assert log.admin.import_batches(FIRSTS[2], BATCHES[2:]) == END
    assert (replica.log, replica.starts) == (BATCHES, FIRSTS)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param([batch(99, 1)], id="other bytes"),
        pytest.param([batch(1, 3)], id="a longer batch"),
        pytest.param([*BATCHES[:5], batch(5, 2)], id="the log ends within a batch"),
    ],
)
def test_other_batches_at_these_lsns_are_never_mixed_with(
    log: logstore.LogClient, replica: FakeReplica, other: list[bytes]
) -> None:
    hold(replica, other)
    with pytest.raises(ImportRefused, match="another batch at LSN"):
        log.admin.import_batches(1, BATCHES)
    assert replica.log == other


def test_a_gap_is_refused_before_anything_is_sent(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    hold(replica, BATCHES[:2])
    with pytest.raises(OutOfRange, match="ends at LSN 3: import from LSN 4 on"):
        log.admin.import_batches(FIRSTS[3], BATCHES[3:])
    assert len(replica.log) == 2


def test_a_log_with_sessions_refuses_what_it_lacks(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    """And takes what it has already for imported."""
    hold(replica, BATCHES[:3])
    replica.on_import = lambda request: replica.answer_import(request, ErrorCode.IMPORT_REFUSED)
    assert log.admin.import_batches(1, BATCHES[:3]) == FIRSTS[3]
    with pytest.raises(ImportRefused, match="sessions were opened"):
        log.admin.import_batches(1, BATCHES)


@pytest.mark.parametrize("code", [ErrorCode.BATCH_TOO_LARGE, ErrorCode.INVALID_BATCH])
def test_a_final_refusal_ends_the_import(
    log: logstore.LogClient, replica: FakeReplica, code: ErrorCode
) -> None:
    replica.on_import = lambda request: replica.answer_import(request, code)
    with pytest.raises((BatchTooLarge, InvalidBatch)):
        log.admin.import_batches(1, BATCHES)


@pytest.mark.parametrize("lost", ["the push", "the answer", "the leader"])
def test_whatever_is_lost_everything_is_there_once(
    log: logstore.LogClient, replica: FakeReplica, lost: str
) -> None:
    seen: list[Any] = []

    def lossy(request: ImportRequest) -> None:
        seen.append(request)
        if len(seen) != 4:
            replica.take_import(request)
        elif lost == "the leader":
            replica.answer_import(request, ErrorCode.NOT_LEADER)
        elif lost == "the answer":
            replica.starts.append(replica.next_lsn)
            replica.log.append(request.batch)
            replica.next_lsn += FIRSTS[4] - FIRSTS[3]

    replica.on_import = lossy
    assert log.admin.import_batches(1, BATCHES) == END
    assert (replica.log, replica.starts) == (BATCHES, FIRSTS)


def test_answers_to_another_importer_are_not_taken_for_ones_own(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    """Two of them at one log: the bytes decide, though a later batch of ours found its place."""

    def by_a_stranger(request: ImportRequest) -> None:
        replica.on_import = replica.take_import
        replica.take_import(ImportRequest(request.importer ^ 1, 1, batch(99, count=1)))

    replica.on_import = by_a_stranger
    with pytest.raises(ImportRefused, match="another batch at LSN 1"):
        log.admin.import_batches(1, BATCHES)


def test_without_progress_the_import_ends_after_the_timeout(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "ACK_TIMEOUT_S", 0.05)
    cluster.replicas[1].on_import = lambda _: None
    with (
        logstore.connect(cluster.endpoint, timeout=0.1) as log,
        pytest.raises(Unreachable, match="does not acknowledge"),
    ):
        log.admin.import_batches(1, BATCHES)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (b"", FormatError),
        (bytes(64), FormatError),
        (BATCHES[0] + BATCHES[1], FormatError),
        (BATCHES[0][:-1] + b"\x01", InvalidBatch),
    ],
    ids=["nothing", "zeros", "two", "flipped"],
)
def test_what_is_no_batch_is_not_sent(
    log: logstore.LogClient, replica: FakeReplica, bad: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        log.admin.import_batches(1, [bad])
    with pytest.raises(InvalidRequest):
        log.admin.import_batches(0, BATCHES)
    assert replica.log == []


def test_a_window_bounds_what_is_taken_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "WINDOW_BYTES", 3 * len(BATCHES[0]))
    window = importing.Window(1, BATCHES)
    assert [each.first_lsn for each in window.fill()] == FIRSTS[: len(window.unsettled)]
    assert 3 <= len(window.unsettled) < 5
    assert window.fill() == []
    assert not window.settle(0)
    assert window.settle(1)
    assert window.first_lsn == 2
    monkeypatch.setattr(importing, "WINDOW_BATCHES", 2)
    assert window.fill() == []


# --- reading whole batches, and their digest ---


def test_whole_batches_are_read_as_they_were_sent_and_never_cut(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    hold(replica, BATCHES)
    found = list(log.read_batches(1, END - 1))
    assert [bytes(each.data) for each in found] == BATCHES
    assert [(each.first_lsn, each.last_lsn + 1) for each in found] == [
        *zip(FIRSTS, [*FIRSTS[1:], END], strict=True)
    ]
    assert [each.first_lsn for each in log.read_batches(5, 8)] == [4, 7, 8]
    assert all(each.data.readonly for each in found)
    with pytest.raises(OutOfRange):
        list(log.read_batches(1, END))


def test_a_digest_is_of_places_and_bytes_alone(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    """Written out, so that others can compute it."""
    hold(replica, BATCHES)
    digest = log.digest(2, 6)
    whole = b"".join(
        struct.pack("<QII", FIRSTS[at], at % 3 + 1, len(BATCHES[at])) + BATCHES[at] for at in (1, 2)
    )
    assert digest.hexdigest() == blake2b(whole, digest_size=32).hexdigest()
    assert (digest.first_lsn, digest.last_lsn, digest.batches, digest.payloads) == (2, 6, 2, 5)
    assert digest.size_bytes == len(BATCHES[1]) + len(BATCHES[2])
    assert log.digest(3, 5).hexdigest() == digest.hexdigest(), "batches are not cut"
    assert log.digest(2, 7).hexdigest() != digest.hexdigest()
    with pytest.raises(ValueError, match="at LSN 9 after LSN 6"):
        digest.add(9, 1, b"")


def test_a_source_that_fails_ends_the_import_however_its_error_looks(
    log: logstore.LogClient, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is transient at the log was taken for the log's own: the import went on, found
    that the failed generator has no more, and returned as if everything had been there."""
    monkeypatch.setattr(importing, "WINDOW_BATCHES", 2)
    asked: list[bytes] = []

    def source() -> Iterator[bytes]:
        for each in BATCHES[:5]:
            asked.append(each)
            yield each
        raise Unreachable("the other cluster is gone")

    with pytest.raises(Unreachable, match="the other cluster is gone"):
        log.admin.import_batches(1, source())
    assert asked == BATCHES[:5]
    assert replica.log == BATCHES[: len(replica.log)]
