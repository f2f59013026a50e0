"""What simulated producers do wrong on purpose: that it is wrong in the way it is meant to be, and
that the answer to it is no violation."""

from __future__ import annotations

from random import Random

import pytest

from actors.ingress.pushes import BadPush, Push, Unreadable, read_push
from actors.simulation.checkers.client_facts import AppendInvoked, AppendRefused
from actors.simulation.clients.mischief import Mischief, commit_mischief
from actors.simulation.clients.open_request import open_request
from logstore.errors import ErrorCode
from logstore.format.client_messages import OpenSessionRequest
from logstore.model import SequenceMode
from tests.simulation.producer_stage import DENSE, serving_stage, session_of, wait_pushed
from tests.simulation.scripted_replica import Stage, row


def frames_of(
    kind: Mischief, *, seed: int = 1, opening: OpenSessionRequest = DENSE
) -> tuple[Stage, list[bytes]]:
    """What a session with one acknowledged batch sends."""
    stage = serving_stage(opening=opening)
    pushed = wait_pushed(stage, 1)[0]
    lsn_row = row(pushed.header.sequence, first_lsn=1, count=pushed.header.count)
    stage.replicas[1].tell(1, lsn_row)
    stage.workload.stop_appending()
    stage.pass_ms(2)
    stage.replicas[1].frames()
    commit_mischief(session_of(stage), kind, [b"one", b"two"], Random(seed), stage.now_ns)
    stage.work()
    return stage, stage.replicas[1].frames()


def test_damaged_and_garbage_frames_are_such_that_a_replica_drops_them() -> None:
    for kind in (Mischief.DAMAGED, Mischief.GARBAGE):
        for seed in range(40):
            stage, frames = frames_of(kind, seed=seed)
            assert [type(read_push(frame, 4_096)) for frame in frames] == [Unreadable]
            assert len(stage.told(AppendInvoked)) == len(session_of(stage).checker.settled)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (Mischief.TOO_LARGE, ErrorCode.BATCH_TOO_LARGE),
        (Mischief.NEWER, ErrorCode.UNSUPPORTED_VERSION),
        (Mischief.BOMB, ErrorCode.BATCH_TOO_LARGE),
        (Mischief.LOOSE, ErrorCode.INVALID_BATCH),
    ],
)
def test_what_is_refused_for_good_is_a_fact(kind: Mischief, code: ErrorCode) -> None:
    stage, frames = frames_of(kind)
    push = read_push(frames[0], 4_096)
    assert isinstance(push, BadPush)
    assert push.code is code
    stage.replicas[1].tell(push.route, row(push.batch[2], code=code))
    stage.pass_ms(1)
    (refused,) = stage.told(AppendRefused)
    assert refused.operation == stage.told(AppendInvoked)[-1].operation
    assert refused.code == code
    assert stage.complaints == []


def reused(*, opening: OpenSessionRequest = DENSE) -> tuple[Stage, Push]:
    """A used sequence was pushed with other bytes."""
    stage, frames = frames_of(Mischief.REUSE, opening=opening)
    push = read_push(frames[0], 4_096)
    assert isinstance(push, Push)
    settled = session_of(stage).checker.settled[push.header.sequence]
    assert frames[0][8:] != settled.batch
    assert push.route != session_of(stage).checker.round
    return stage, push


def test_the_same_sequence_with_other_bytes_has_to_be_refused() -> None:
    stage, push = reused()
    refusal = row(push.header.sequence, code=ErrorCode.SEQUENCE_REUSED)
    stage.replicas[1].tell(push.route, refusal)
    stage.pass_ms(1)
    assert stage.complaints == []
    assert stage.workload.witness.counts["sequence-reused"] == 1


def test_other_bytes_under_a_used_sequence_are_not_committed() -> None:
    stage, push = reused()
    stage.replicas[1].tell(push.route, row(push.header.sequence, first_lsn=1, count=1))
    stage.pass_ms(1)
    assert "are said to be committed" in stage.complaints[0][1]


def test_a_deposed_leader_may_answer_other_bytes_with_not_leader() -> None:
    stage, push = reused()
    stage.replicas[1].tell(push.route, row(push.header.sequence, code=ErrorCode.NOT_LEADER))
    stage.pass_ms(1)
    assert (stage.complaints, session_of(stage).is_serving) == ([], True)


def test_a_monotone_sequence_is_the_same_whatever_its_bytes() -> None:
    stage, push = reused(opening=open_request(SequenceMode.MONOTONE, b"name", window=16))
    count = session_of(stage).checker.settled[push.header.sequence].count
    stage.replicas[1].tell(push.route, row(push.header.sequence, first_lsn=1, count=count))
    stage.pass_ms(1)
    assert stage.complaints == []
    assert stage.workload.witness.counts["acknowledged-again"] == 1


def test_a_reused_sequence_in_the_round_of_the_real_batches_is_wrong() -> None:
    stage, push = reused()
    refusal = row(push.header.sequence, code=ErrorCode.SEQUENCE_REUSED)
    stage.replicas[1].tell(session_of(stage).checker.round, refusal)
    stage.pass_ms(1)
    assert "was refused with" in stage.complaints[0][1]


def test_batches_under_way_are_sent_twice_with_their_bytes() -> None:
    stage = serving_stage()
    first = wait_pushed(stage, 3)
    stage.workload.stop_appending()
    session = session_of(stage)
    for seed in range(20):
        commit_mischief(session, Mischief.IMPATIENCE, [], Random(seed), stage.now_ns)
    again = stage.replicas[1].pushed()
    assert {each.header.sequence for each in again} == {each.header.sequence for each in first}
    assert {each.batch for each in again} == {each.batch for each in first}


def test_an_acknowledged_batch_is_sent_again_with_the_same_bytes() -> None:
    stage, frames = frames_of(Mischief.RETRY)
    push = read_push(frames[0], 4_096)
    assert isinstance(push, Push)
    assert frames[0][8:] == session_of(stage).checker.settled[push.header.sequence].batch


def test_a_monotone_producer_leaves_no_gap_on_purpose() -> None:
    _, frames = frames_of(
        Mischief.SKIP, opening=open_request(SequenceMode.MONOTONE, b"name", window=16)
    )
    assert frames == []
