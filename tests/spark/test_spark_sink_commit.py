"""The driver's commit against a real cluster: once each, fenced, in parts or refused. No query."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.errors import BatchTooLarge, Fenced, InvalidRequest
from logstore.format.batch import PackedPayloads, batch_size
from logstore.spark import last_commit, sink_commit
from logstore.spark.sink_commit import PART_BYTES, PARTS_SUFFIX, commit_rows
from logstore.spark.task_rows import cut_payloads
from logstore.spark.write_options import WriteOptions, parse_write_options

KIB = 1 << 10
LARGE = [bytes([number]) * 100 * KIB for number in range(35)]  # four parts of 1 MiB


def pack(payloads: Sequence[bytes]) -> PackedPayloads:
    offsets = array("i", accumulate(map(len, payloads), initial=0))
    return PackedPayloads(offsets, b"".join(payloads))


def options(cluster: EmbeddedCluster, **given: str) -> WriteOptions:
    at = {"endpoints": ",".join(cluster.endpoints)}
    return parse_write_options(at | given, is_streaming=True)


def read(log: logstore.LogClient, first: int, last: int) -> list[bytes]:
    return [
        payload for batch in log.read(first, last, min_lsn=last) for payload in batch.payloads()
    ]


def dying(append: Callable[..., Any], *, at: int) -> Callable[..., Any]:
    """The driver dies in its call number `at`."""
    calls = count(1)

    def die(*arguments: Any) -> Any:
        if next(calls) == at:
            raise ConnectionError("the driver died")
        return append(*arguments)

    return die


def test_a_batch_is_written_once_however_often_it_is_committed(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    at = options(cluster)
    first = commit_rows(at, pack([b"a", b"", b"c"]), name="once", sequence=0)
    assert first is not None
    assert read(log, *first) == [b"a", b"", b"c"]
    second = commit_rows(at, pack([b"d"]), name="once", sequence=5)
    assert second == (first.last + 1, first.last + 1)
    before = log.admin.commit_lsn()
    assert commit_rows(at, pack([b"other bytes"]), name="once", sequence=0) == first
    assert commit_rows(at, pack([b"d"]), name="once", sequence=5) == second
    assert commit_rows(at, pack([b"skipped"]), name="once", sequence=3) is None
    assert log.admin.commit_lsn() == before
    found = last_commit(at.endpoints, "once")
    assert found is not None
    assert (found.sequence, found.first_lsn, found.last_lsn) == (5, *second)
    assert last_commit(at.endpoints, "never") is None


def test_lsns_of_a_replay_are_unknown_once_they_have_left_the_window(
    cluster: EmbeddedCluster,
) -> None:
    at = options(cluster)
    for sequence in range(18):
        commit_rows(at, pack([b"x"]), name="many", sequence=sequence)
    assert commit_rows(at, pack([b"x"]), name="many", sequence=0) is None
    assert commit_rows(at, pack([b"x"]), name="many", sequence=17) is not None


def test_a_driver_that_was_overtaken_between_opening_and_appending_is_fenced(
    cluster: EmbeddedCluster, log: logstore.LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAFETY E2: the zombie has opened its session; a new driver commits the same batch first."""
    at, append = options(cluster), sink_commit._append
    won: list[Any] = []

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(sink_commit, "_append", append)
        won.append(commit_rows(at, pack([b"new driver"]), name="zombie", sequence=0))
        return append(*arguments)

    monkeypatch.setattr(sink_commit, "_append", overtaken)
    with pytest.raises(Fenced, match="another driver writes as 'zombie' by now"):
        commit_rows(at, pack([b"zombie"]), name="zombie", sequence=0)
    assert read(log, *won[0]) == [b"new driver"]
    assert log.admin.commit_lsn() == won[0].last


def test_more_than_a_batch_is_refused_before_anything_is_written(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    before = log.admin.commit_lsn()
    with pytest.raises(BatchTooLarge, match="nothing was written") as caught:
        commit_rows(options(cluster), pack(LARGE), name="large", sequence=0)
    text = str(caught.value)
    for words in ("maxRecordsPerTrigger", "maxBytesPerTrigger", "limits.batch_max", "atomic=false"):
        assert words in text
    in_parts = options(cluster, atomic="false")
    with pytest.raises(BatchTooLarge, match="raise limits.batch_max"):
        commit_rows(in_parts, pack([b"small", bytes(2 << 20)]), name="large", sequence=0)
    assert log.admin.commit_lsn() == before
    assert last_commit(options(cluster).endpoints, "large") is None


def test_parts_are_written_in_order_and_once_each(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    at = options(cluster, atomic="false")
    found = commit_rows(at, pack(LARGE), name="parts", sequence=3)
    assert found is not None
    assert read(log, *found) == LARGE
    before = log.admin.commit_lsn()
    assert commit_rows(at, pack(LARGE), name="parts", sequence=3) is not None
    assert log.admin.commit_lsn() == before
    small = commit_rows(at, pack([b"small"]), name="parts", sequence=4)
    assert small == (found.last + 1, found.last + 1)
    assert commit_rows(options(cluster), pack([b"x"]), name="parts", sequence=5) is not None


def test_a_batch_begun_in_parts_is_finished_by_its_replay_and_only_so(
    cluster: EmbeddedCluster, log: logstore.LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, append = options(cluster, atomic="false"), sink_commit._append
    monkeypatch.setattr(sink_commit, "_append", dying(append, at=3))
    before = log.admin.commit_lsn()
    with pytest.raises(ConnectionError):
        commit_rows(at, pack(LARGE), name="begun", sequence=0)
    monkeypatch.setattr(sink_commit, "_append", append)
    assert last_commit(at.endpoints, "begun") is None, "it is not there whole"
    with pytest.raises(InvalidRequest, match="in the same order"):
        commit_rows(at, pack([bytes(50 * KIB)] * 70), name="begun", sequence=0)
    with pytest.raises(InvalidRequest, match="finish it with atomic=false"):
        commit_rows(options(cluster), pack(LARGE[:15]), name="begun", sequence=0)
    found = commit_rows(at, pack(LARGE), name="begun", sequence=0)
    assert found == (before + 1, before + len(LARGE))
    assert read(log, *found) == LARGE
    assert log.admin.session_commits("begun" + PARTS_SUFFIX) is not None


def test_parts_that_were_cut_otherwise_are_not_finished(
    cluster: EmbeddedCluster, log: logstore.LogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if limits.batch_max had been below 1 MiB, and was raised."""
    at, append = options(cluster, atomic="false"), sink_commit._append
    monkeypatch.setattr(sink_commit, "PART_BYTES", 256 * KIB)
    monkeypatch.setattr(sink_commit, "_append", dying(append, at=3))
    with pytest.raises(ConnectionError):
        commit_rows(at, pack(LARGE[:8]), name="recut", sequence=0)
    monkeypatch.undo()
    before = log.admin.commit_lsn()
    with pytest.raises(
        InvalidRequest, match="2 parts of batch 0 are in the log, and now there are 0"
    ):
        commit_rows(at, pack(LARGE[:8]), name="recut", sequence=0)
    with pytest.raises(InvalidRequest, match="finish it with atomic=false"):
        commit_rows(options(cluster), pack(LARGE[:8]), name="recut", sequence=0)
    assert log.admin.commit_lsn() == before
    monkeypatch.setattr(sink_commit, "PART_BYTES", 256 * KIB)
    found = commit_rows(at, pack(LARGE[:8]), name="recut", sequence=0)
    assert found is not None
    assert read(log, *found) == LARGE[:8]


@pytest.mark.parametrize("opened", [1, 2])
def test_a_driver_in_parts_that_was_overtaken_by_one_without_leaves_nothing(
    opened: int,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one has opened one of its two sessions, or both, when the other one begins."""
    in_parts, whole, rows = options(cluster, atomic="false"), options(cluster), pack(LARGE[:15])
    name, session = f"overtaken {opened}", sink_commit._session
    won: list[Any] = []
    calls = count(1)

    @contextmanager
    def overtaken(*arguments: Any) -> Iterator[Any]:
        with session(*arguments) as producer:
            if next(calls) == opened:
                monkeypatch.undo()
                won.append(commit_rows(whole, rows, name=name, sequence=0))
                monkeypatch.setattr(sink_commit, "_session", overtaken)
            yield producer

    monkeypatch.setattr(sink_commit, "_session", overtaken)
    if opened == 1:  # it opens the second one behind the other's batch
        assert commit_rows(in_parts, rows, name=name, sequence=0) == won[0]
    else:
        with pytest.raises(Fenced, match="another driver writes"):
            commit_rows(in_parts, rows, name=name, sequence=0)
    assert read(log, *won[0]) == LARGE[:15]
    assert log.admin.commit_lsn() == won[0].last


def test_without_a_name_every_write_is_new(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    at = options(cluster)
    ranges = [commit_rows(at, pack([b"x", b"y"]), name=None, sequence=0) for _ in range(2)]
    assert ranges[0] != ranges[1]
    in_parts = commit_rows(options(cluster, atomic="false"), pack(LARGE), name=None, sequence=0)
    assert in_parts is not None
    assert read(log, *in_parts) == LARGE
    with pytest.raises(BatchTooLarge, match="nothing was written"):
        commit_rows(at, pack(LARGE), name=None, sequence=0)


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=200), st.integers(128, 4_000))
def test_parts_hold_every_payload_in_order_within_their_size(
    sizes: list[int], part_bytes: int
) -> None:
    payloads = [bytes([place % 251]) * size for place, size in enumerate(sizes)]
    parts = list(cut_payloads(pack(payloads), part_bytes))
    assert [payload for part in parts for payload in part] == payloads
    for part in parts:
        assert batch_size(len(part), len(part.values)) <= part_bytes or len(part) == 1
    assert PART_BYTES == 1 << 20
