"""What a named session has committed, from the client's side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from logstore.client.core.commits import Commit, SessionCommits
from logstore.errors import ErrorCode, InvalidRequest, NoQuorum
from logstore.format.client_messages import (
    ACK_ROW,
    ErrorReply,
    SessionLookupRequest,
    SessionStateReply,
)
from tests.unit.client_stage import Cluster, FakeReplica


@pytest.fixture
def replica() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        yield cluster.replicas[1]


@pytest.fixture
def admin(replica: FakeReplica) -> Iterator[logstore.Admin]:
    with logstore.connect(replica.cluster.endpoint, timeout=20) as client:
        yield client.admin


def test_only_what_is_committed_is_told(replica: FakeReplica, admin: logstore.Admin) -> None:
    asked: list[SessionLookupRequest] = []
    rows = ACK_ROW.pack(3, 11, 4, 0, 0) + ACK_ROW.pack(5, 0, 2, ErrorCode.OUTCOME_UNKNOWN, 0)
    replica.on[SessionLookupRequest] = lambda request: (
        asked.append(request) or SessionStateReply(7, 2, 6, rows)
    )
    found = admin.session_commits("prüfung")
    assert found == SessionCommits(7, 6, (Commit(3, 11, 14),))
    assert len(found.commits[0]) == 4
    assert asked == [SessionLookupRequest("prüfung".encode())]


def test_no_session_is_none(replica: FakeReplica, admin: logstore.Admin) -> None:
    replica.on[SessionLookupRequest] = lambda _: SessionStateReply(0, 0, 0, b"")
    assert admin.session_commits("nobody") is None
    for name in ("", "x" * 256):
        with pytest.raises(InvalidRequest, match=r"1\.\.255 bytes"):
            admin.session_commits(name)


def test_without_a_leader_it_is_not_known(replica: FakeReplica) -> None:
    replica.on[SessionLookupRequest] = lambda _: ErrorReply(ErrorCode.NO_QUORUM, 0, 0, 0, b"")
    with (
        logstore.connect(replica.cluster.endpoint, timeout=2) as client,
        pytest.raises(NoQuorum),
    ):
        client.admin.session_commits("query-1")
