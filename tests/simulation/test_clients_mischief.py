"""What simulated producers do wrong on purpose: that it is wrong in the way it is meant to be, and
that the answer to it is no violation."""

from __future__ import annotations

from random import Random

import pytest

from actors.ingress.pushes import BadPush, Push, Unreadable, read_push
from actors.simulation.clients.mischief import Mischief, commit_mischief
from actors.simulation.clients.wish import Wish
from logstore.errors import ErrorCode
from logstore.model import SequenceMode
from tests.simulation.producer_stage import DENSE, serving_stage, session_of, wait_pushed
from tests.simulation.scripted_replica import Stage, row


def frames_of(kind: Mischief, *, seed: int = 1, wish: Wish = DENSE) -> tuple[Stage, list[bytes]]:
    """What a session with one acknowledged batch sends."""
    stage = serving_stage(wish=wish)
    pushed = wait_pushed(stage, 1)[0]
    lsn_row = row(pushed.header.sequence, first_lsn=1, count=pushed.header.count)
    stage.replicas[1].tell(1, lsn_row)
    stage.client.stop_appending()
    stage.pass_ms(2)
    stage.replicas[1].frames()
    commit_mischief(session_of(stage), kind, [b"one", b"two"], Random(seed), stage.now_ns)
    return stage, stage.replicas[1].frames()


def test_damaged_and_garbage_frames_are_such_that_a_replica_drops_them() -> None:
    for kind in (Mischief.DAMAGED, Mischief.GARBAGE):
        for seed in range(40):
            stage, frames = frames_of(kind, seed=seed)
            assert [type(read_push(frame, 4_096)) for frame in frames] == [Unreadable]
            assert len(stage.ledger.all("invoked")) == len(session_of(stage).unresolved.settled)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (Mischief.TOO_LARGE, ErrorCode.BATCH_TOO_LARGE),
        (Mischief.NEWER, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_must_be_refused_for_good_is_told_as_such(kind: Mischief, code: ErrorCode) -> None:
    stage, frames = frames_of(kind)
    push = read_push(frames[0], 4_096)
    assert isinstance(push, BadPush)
    assert push.code is code
    stage.replicas[1].tell(1, row(push.batch[2], code=code))
    stage.pass_ms(1)
    operation = stage.ledger.all("invoked")[-1][0]
    assert stage.ledger.all("refused") == [(operation, code)]
    assert stage.complaints == []


def test_the_same_sequence_with_other_bytes_has_to_be_refused() -> None:
    stage, frames = frames_of(Mischief.REUSE)
    push = read_push(frames[0], 4_096)
    assert isinstance(push, Push)
    settled = session_of(stage).unresolved.settled[push.header.sequence]
    assert frames[0][8:] != settled.batch
    stage.replicas[1].tell(1, row(push.header.sequence, code=ErrorCode.SEQUENCE_REUSED))
    stage.pass_ms(1)
    assert stage.complaints == []
    assert stage.client.counts["sequence-reused"] == 1


def test_an_acknowledged_batch_is_sent_again_with_the_same_bytes() -> None:
    stage, frames = frames_of(Mischief.RETRY)
    push = read_push(frames[0], 4_096)
    assert isinstance(push, Push)
    assert frames[0][8:] == session_of(stage).unresolved.settled[push.header.sequence].batch


def test_a_monotone_producer_leaves_no_gap_on_purpose_that_nobody_would_tell_it_of() -> None:
    _, frames = frames_of(Mischief.SKIP, wish=Wish(SequenceMode.MONOTONE, 16, b"name"))
    assert frames == []
