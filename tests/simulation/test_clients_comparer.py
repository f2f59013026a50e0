"""Simulated producers that expect LSNs, against scripted replicas: what they send and tell, and the
refusals that they report as violations (SAFETY E11)."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from actors.ingress.pushes import Push, read_push
from actors.simulation.checkers.client_facts import (
    AppendInvoked,
    AppendRefused,
    ComparisonRefused,
)
from actors.simulation.clients.known_end import KnownEnd
from actors.simulation.clients.mischief import Mischief, commit_mischief
from actors.simulation.clients.open_request import open_request
from actors.simulation.network.core_appends import Append
from logstore.errors import ErrorCode, NextLsnIs
from logstore.model import Lsn, SequenceMode
from tests.simulation.producer_stage import make_stage, open_session, session_of, tell_state
from tests.simulation.scripted_replica import Stage, row

MONOTONE = open_request(SequenceMode.MONOTONE, b"a name", window=16)


def compared(expected_lsn: int) -> tuple[Stage, Append, Push]:
    """Sequence 3 was pushed with this expectation, and nothing else."""
    stage = make_stage(opening=MONOTONE)
    stage.workload.stop_appending()
    open_session(stage)
    tell_state(stage, 1, 0)
    stage.pass_ms(5)
    append = session_of(stage).append([b"one"], 3, expected_lsn)
    return stage, append, pushed(stage)


def pushed(stage: Stage) -> Push:
    """The one batch that came."""
    stage.pass_ms(5)
    (push,) = [read_push(frame, 4_096) for frame in stage.replicas[1].frames()]
    assert isinstance(push, Push)
    return push


def refuse(stage: Stage, next_lsn: int, *, attempt: int = 1) -> None:
    refusal = row(3, first_lsn=attempt, count=1, code=ErrorCode.NEXT_LSN_IS, detail=next_lsn)
    stage.replicas[1].tell(1, refusal)
    stage.pass_ms(5)


def test_an_append_is_pushed_with_what_it_expects_and_told_to_the_ledger() -> None:
    stage, _, push = compared(9)
    assert push.expectation is not None
    assert (push.expectation.round, push.expectation.attempt) == (1, 1)
    assert push.expectation.expected_lsn == 9
    (invoked,) = stage.told(AppendInvoked)
    assert (invoked.sequence, invoked.expected_lsn) == (3, 9)


def test_a_refusal_is_final_and_its_sequence_comes_again() -> None:
    stage, append, _ = compared(9)
    refuse(stage, 4)
    (refused,), (told,) = stage.told(AppendRefused), stage.told(ComparisonRefused)
    assert (refused.operation, refused.code) == (append.operation, ErrorCode.NEXT_LSN_IS)
    assert (told.operation, told.next_lsn) == (append.operation, 4)
    assert append.is_over
    session = session_of(stage)
    assert session.next_sequence == 0  # the lowest that may come
    session.append([b"again"], 3, 4)
    assert pushed(stage).expectation.attempt == 2  # type: ignore[union-attr]
    refuse(stage, 4, attempt=1)  # it came twice
    assert session.has_unresolved
    assert stage.complaints == []


@pytest.mark.parametrize(
    ("next_lsn", "attempt", "says"),
    [(9, 1, "expects LSN 9, the next one is 9"), (4, 2, "attempt 2 of round 1")],
)
def test_a_refusal_without_a_reason_is_a_violation(next_lsn: int, attempt: int, says: str) -> None:
    stage, _, _ = compared(9)
    refuse(stage, next_lsn, attempt=attempt)
    ((invariant, text),) = stage.complaints
    assert invariant == "I22"
    assert says in text


def test_late_and_impatient_copies_are_the_frame_that_was_sent() -> None:
    for kind in (Mischief.LATE, Mischief.IMPATIENCE):
        stage, _, push = compared(9)
        commit_mischief(session_of(stage), kind, [b"new"], Random(1), stage.now_ns)
        assert pushed(stage) == push
        assert len(stage.told(AppendInvoked)) == 1


def test_what_producers_hear_of_the_end_is_known_to_all() -> None:
    end = KnownEnd(Lsn(5))
    refused = NextLsnIs("", next_lsn=8)
    for is_acknowledged, place, error, news, next_lsn in (
        (True, (5, 2), None, False, 7),
        (False, None, refused, True, 8),
        (False, None, NextLsnIs("", next_lsn=6), True, 8),
    ):
        append = SimpleNamespace(
            is_acknowledged=is_acknowledged, acknowledged_as=place, error=error
        )
        assert end.learn(append) is news  # type: ignore[arg-type]
        assert end.next_lsn == next_lsn
    drawn = [end.draw(Random(seed), 1_000) for seed in range(200)]
    known = [each for each in drawn if each is not None]
    assert min(known) == 5
    assert 8 < max(known) <= 8 + 256
    assert drawn.count(8) > 100
    assert {end.draw(Random(seed), 0) for seed in range(20)} == {None}
