"""What requests to move the log start cost at most, however many there are."""

from __future__ import annotations

import pytest

from actors.ingress import pending_trims
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import DoneReply, TrimRequest
from logstore.format.message import encode_message
from logstore.limits import REQUEST_TIMEOUT_NS
from tests.unit.ingress_stage import StageLog
from tests.unit.test_ingress_trims import (
    EVERYTHING,
    bounds,
    leader_with_entries,
    proposed,
    refused,
    snapshot,
    trim,
)
from transport import link


@pytest.fixture
def stage():
    return leader_with_entries()


@pytest.fixture
def client(stage):
    return stage.client()


def test_one_reader_serves_all_trims_and_is_refreshed_when_segments_come_or_go(stage, client):
    """Each would read a header of every segment."""
    snapshot(stage)
    assert bounds(refused(client, EVERYTHING)) == (1, 9)
    (log, opened) = stage.logs[-1], len(stage.logs)
    for lsn in (3, 5):
        assert trim(client, lsn) is None
        stage.accept_and_commit()
        assert client.answer().value == lsn
        assert log.is_closed
    assert log.refreshes == 0
    stage.slots[Counter.MAP_GENERATION] += 1
    assert bounds(refused(client, EVERYTHING)) == (1, 9)
    assert (log.refreshes, len(stage.logs)) == (1, opened)


def test_whoever_asks_for_trims_without_end_has_the_log_read_once_in_a_do_work(
    stage, client, monkeypatch
):
    """Else a client that asks for them in a loop would keep ingress from its heartbeats."""
    snapshot(stage)
    assert trim(client, 1) == DoneReply(1)
    searched, search = [], StageLog.index_of_lsn

    def counted(log, lsn, last):
        searched.append(lsn)
        return search(log, lsn, last)

    monkeypatch.setattr(StageLog, "index_of_lsn", counted)
    frame = encode_message(
        TrimRequest(2), cluster_id=bytes(16), sender_uuid=bytes(16), sender=0, target=0,
        correlation=1,
    )  # fmt: skip
    for _ in range(40):
        assert link.try_send(client.socket, [frame])
    stage.ingress.do_work(stage.clock.now_ns)
    assert len(searched) == 1
    codes = [client.answer().code for _ in range(39)]
    assert set(codes) == {ErrorCode.OVERLOADED}
    assert client.answer() is None
    stage.work()
    assert proposed(stage).start.index == 2
    assert bounds(refused(client, EVERYTHING)) == (1, 9)  # no file says this


def test_trims_that_waited_too_long_are_forgotten_though_no_snapshot_comes(
    stage, client, monkeypatch
):
    """While two followers' disks are full, a leader commits nothing for days."""
    monkeypatch.setattr(pending_trims, "REQUESTS_PENDING_MAX", 4)
    assert trim(client, 5) is None
    stage.accept()
    for _ in range(20):
        stage.clock.now_ns += REQUEST_TIMEOUT_NS
        stage.work()
        assert client.answer().code == ErrorCode.TIMED_OUT
        assert trim(client, 5) is None
    assert len(stage.ingress._control._trims._waiting) <= 4
    stage.commit()
    assert proposed(stage).start.next_lsn == 5
