"""Trims that a leader refuses: what another leader may have changed is confirmed first (V5, G1)."""

from __future__ import annotations

import pytest

from logstore.errors import ErrorCode
from logstore.model import EntryKind
from logstore.raft.effects import ReadIndexAnswered
from tests.unit.test_ingress_cursors import asked_of_raft, confirm, set_cursor, set_request
from tests.unit.test_ingress_trims import bounds, leader_with_entries, proposed, snapshot, trim


@pytest.fixture
def stage():
    return leader_with_entries()


@pytest.fixture
def client(stage):
    return stage.client()


def test_v5_a_refusal_is_confirmed_and_what_the_cursor_holds_no_more_is_trimmed(stage, client):
    """The leader was paused: another one has deleted the cursor since, say."""
    snapshot(stage)
    set_cursor(stage, b"archive", 3, is_held=True)
    stage.heard()
    assert trim(client, 5) is None
    asked = asked_of_raft(stage)
    set_cursor(stage, b"archive", 0)
    stage.tell(ReadIndexAnswered(asked, True, 0))
    assert proposed(stage).start.next_lsn == 5
    assert client.answer() is None


def test_v5_a_deposed_leader_refuses_no_trim(stage, client):
    snapshot(stage)
    set_cursor(stage, b"archive", 3, is_held=True)
    stage.heard()
    assert trim(client, 5) is None
    confirm(stage, is_leader=False)
    assert client.answer().code == ErrorCode.NOT_READY
    stage.level = 1
    stage.pushed.push(4)
    stage.accept_and_commit()
    assert trim(client, 5) is None
    confirm(stage, is_leader=False)
    assert client.answer().code == ErrorCode.NOT_READY


def test_v5_a_refusal_for_a_cursor_waits_for_the_cursor(stage, client):
    """Should the cursor be forgotten, nothing holds the log."""
    snapshot(stage)
    stage.client().ask(set_request(b"archive", 3, is_held=True))
    stage.heard()
    assert trim(client, 5) is None
    confirm(stage)
    assert client.answer() is None
    stage.accept_and_commit()
    assert bounds(client.answer()) == (1, 3)


def test_g1_a_trim_that_raft_has_confirmed_may_need_a_snapshot_first(stage, client):
    set_cursor(stage, b"archive", 3, is_held=True)
    stage.heard()
    assert trim(client, 5) is None
    asked = asked_of_raft(stage)
    set_cursor(stage, b"archive", 0)
    stage.tell(ReadIndexAnswered(asked, True, 0))
    assert [header.kind for header in stage.accept_and_commit()] == [EntryKind.SESSION]
    assert proposed(stage).start.next_lsn == 5
