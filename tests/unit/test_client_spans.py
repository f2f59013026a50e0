"""Spans of a range against a played replica: joined over answers, cut short, refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from logstore.client.core.spans import Span
from logstore.errors import ErrorCode, FormatError, InvalidRequest, OutOfRange
from logstore.format.client_messages import SPAN, ErrorReply, SpansReply, SpansRequest
from tests.unit.client_stage import Cluster, FakeReplica


@pytest.fixture
def replica() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        for size in (1, 2, 3):
            cluster.replicas[1].append_to_log([b"x"] * size)
        yield cluster.replicas[1]


@pytest.fixture
def client(replica: FakeReplica) -> Iterator[logstore.LogClient]:
    with logstore.connect(replica.cluster.endpoint, timeout=20) as client:
        yield client


def test_spans_follow_each_other_from_the_first_lsn_to_the_last(client: logstore.LogClient) -> None:
    assert [row.last_lsn for row in client.admin.spans(1, 6).rows] == [6]
    found = client.admin.spans(2, 5, step_bytes=1)
    assert [(row.first_lsn, row.last_lsn) for row in found.rows] == [(2, 3), (4, 5)]
    assert (found.log_start_lsn, found.visible_lsn, found.timestamp_ns) == (1, 6, 1_001)
    assert found.size_bytes == sum(row.size_bytes for row in found.rows) > 0
    assert [row.last_lsn for row in client.admin.spans(1, 6, step_bytes=1, limit=2).rows] == [1, 3]
    assert client.admin.spans(7, 9).rows == ()


def test_answers_are_joined_until_the_range_or_the_limit_is_reached(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    def answer(request: SpansRequest) -> SpansReply:
        row = SPAN.pack(request.first_lsn + 1, 10, 5)
        return SpansReply(1, 100, request.first_lsn, row)

    replica.on[SpansRequest] = answer
    found = client.admin.spans(1, 6, step_bytes=10)
    assert found.rows == (Span(1, 2, 10, 5), Span(3, 4, 10, 5), Span(5, 6, 10, 5))
    assert found.timestamp_ns == 1
    assert len(client.admin.spans(1, 99, limit=4).rows) == 4


def test_what_makes_no_sense_is_refused(client: logstore.LogClient, replica: FakeReplica) -> None:
    for arguments in ((0, 1), (2, 1)):
        with pytest.raises(InvalidRequest):
            client.admin.spans(*arguments)
    with pytest.raises(InvalidRequest):
        client.admin.spans(1, 2, step_bytes=0)
    with pytest.raises(InvalidRequest):
        client.admin.spans(1, 2, limit=0)
    replica.on[SpansRequest] = lambda _: ErrorReply(ErrorCode.OUT_OF_RANGE, 0, 4, 6, b"")
    with pytest.raises(OutOfRange) as caught:
        client.admin.spans(1, 2)
    assert (caught.value.first, caught.value.last) == (4, 6)
    replica.on[SpansRequest] = lambda _: SpansReply(1, 9, 5, SPAN.pack(0, 1, 1))
    with pytest.raises(FormatError):
        client.admin.spans(1, 2)
