"""Ingress where no descriptor is left for the log's files: what waits, and what is refused."""

from __future__ import annotations

import errno
import os

import pytest

from actors.ingress.retention import LOOK_EVERY_NS
from actors.messages import RotReported
from logstore.errors import CorruptData, ErrorCode
from logstore.format.trim_entry import TrimReason
from tests.unit import test_ingress_lags as lags
from tests.unit.ingress_stage import StageLog
from tests.unit.test_ingress_retention import FIRST_INDEXES, make_stage, trimmed
from tests.unit.test_ingress_retention import snapshot as snapshot_of
from tests.unit.test_ingress_snapshots import lead_again
from tests.unit.test_ingress_trims import leader_with_entries, proposed, snapshot, trim


def refuse(*_path):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def stage():
    return leader_with_entries()


@pytest.mark.parametrize("step", ["__init__", "newest_of_kind", "record", "body_of"])
def test_m3_a_new_leader_without_descriptors_opens_admission_once_there_are_some(
    stage, monkeypatch, caplog, step
):
    """Strangers connect faster than they are counted. Ingress ended, and its replica with it, and
    so on each leader that they turned to."""
    stage.heard()
    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(StageLog, step, refuse)
        lead_again(stage, accepted=len(stage.entries) - 1)
        stage.work()
        stage.work()
        assert stage.ingress.admission.table is None
        assert stage.ingress.next_timer_ns() <= stage.clock.now_ns + 1_000_000
    assert caplog.text.count("Too many open files") == 1
    stage.work()
    assert stage.ingress.admission.is_ready
    assert not [each for each in stage.heard() if isinstance(each, RotReported)]
    stage.pushed.push(4)
    stage.accept_and_commit()
    assert len(stage.entries) == 7


def test_m3_damage_whose_lsns_cannot_be_looked_for_is_reported_without_them(stage, monkeypatch):
    def is_damaged(*_index):
        raise CorruptData("00.raft", 0, expected="a record", got="rot")

    stage.heard()
    monkeypatch.setattr(StageLog, "record", is_damaged)
    monkeypatch.setattr(StageLog, "row", refuse)
    lead_again(stage, accepted=len(stage.entries) - 1)
    stage.work()
    assert [each.index for each in stage.heard() if isinstance(each, RotReported)] == [1]


@pytest.mark.parametrize("step", ["refresh", "row", "index_of_lsn"])
def test_m3_a_trim_without_descriptors_is_asked_for_again(stage, monkeypatch, step):
    client = stage.client()
    snapshot(stage)
    assert trim(client, 3) is None
    assert proposed(stage)
    stage.roll(4)
    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(StageLog, step, refuse)
        answer = trim(client, 5)
        assert (answer.code, b"Too many open" in answer.text) == (ErrorCode.NOT_READY, True)
    assert trim(client, 5) is None
    assert proposed(stage)


@pytest.mark.parametrize("step", ["refresh", "row"])
def test_m3_retention_without_descriptors_looks_again(monkeypatch, caplog, step):
    stage = make_stage("payloads = 6")
    snapshot_of(stage)
    stage.roll(*FIRST_INDEXES)
    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(StageLog, step, refuse)
        stage.clock.now_ns += LOOK_EVERY_NS
        stage.work()
    assert stage.take_proposals() == []
    assert "nothing is given up: " in caplog.text
    assert trimmed(stage).reason is TrimReason.PAYLOADS


@pytest.mark.parametrize("is_known", [False, True])
def test_m3_a_status_without_descriptors_has_no_lags(tmp_path, monkeypatch, is_known):
    """In every second one is asked for /metrics."""
    stage = lags.Stage(tmp_path, (2, 16), (1, 8))
    if is_known:
        assert stage.lag_of(1)["payloads"] == 1
        stage.slots[lags.Counter.MAP_GENERATION] += 1
    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(stage.trial.disk, "open_read", refuse)
        assert "lag" not in stage.status(n2=1)
    assert stage.lag_of(1)["payloads"] == 1
