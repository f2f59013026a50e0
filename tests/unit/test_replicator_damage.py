"""What a replicator reports of entries that it cannot read (SAFETY Q3, Q5)."""

from __future__ import annotations

import pytest

from actors.messages import RotReported
from tests.unit.replicator_stage import ReplicatorStage


@pytest.fixture
def replicator(tmp_path, monkeypatch):
    stage = ReplicatorStage(tmp_path, monkeypatch)
    yield stage
    stage.close()


def begin_to_lead(stage):
    stage.identify()
    stage.lead()


def rot(stage, index):
    [path] = sorted(stage.stage.folder.glob("data/*1.raft"))
    raw = bytearray(path.read_bytes())
    raw[4_096 + 128 * (index - 1) + 20] ^= 1
    path.write_bytes(raw)


def test_q3_a_committed_entry_that_cannot_be_read_is_reported_once(replicator):
    """Otherwise the follower would get no further, and nothing would say why."""
    replicator.identify()
    replicator.append(80, 80, is_described=False)
    replicator.write()
    rot(replicator, 2)
    replicator.lead(commit=2)
    for _ in range(3):
        replicator.stage.now_ns = replicator.replicator.next_timer_ns()
        replicator.work()
    assert replicator.indexes() == [1]
    assert replicator.heard() == [RotReported(2, 2, 0)]


def test_what_is_not_committed_may_be_gone_by_truncation_and_is_no_damage(replicator):
    replicator.identify()
    replicator.append(80, 80, is_described=False)
    replicator.write()
    rot(replicator, 2)
    replicator.lead(commit=1)
    assert replicator.indexes() == [1]
    assert replicator.heard() == []


@pytest.mark.parametrize("commit", [0, 1])
def test_q3_a_described_entry_that_ring_and_files_lost_is_reported_if_it_is_committed(
    replicator, commit
):
    """The follower was slow, so the ring went round before it was sent the entry."""
    begin_to_lead(replicator)
    [order] = replicator.append(80, is_described=False)
    replicator.write()
    rot(replicator, 1)
    replicator.overwrite_ring()
    replicator.describe(order, commit=commit)
    assert replicator.appends() == []
    assert replicator.heard() == [RotReported(1, 1, 0)] * commit


def test_q3_a_described_entry_that_is_not_written_yet_is_no_damage(replicator):
    begin_to_lead(replicator)
    replicator.append(80, is_described=False)
    replicator.write()
    rot(replicator, 1)
    replicator.log.rows.pop()
    [order] = replicator.log.persist(80)
    replicator.overwrite_ring()
    replicator.describe(order, commit=1)
    assert replicator.appends() == []
    assert replicator.heard() == []
    replicator.log.stage.heard("raft", "writer")
