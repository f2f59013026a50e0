"""A simulated auditor against scripted replicas: what it asks, and the violations it reports."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.simulation.checkers.client_facts import DamageNamed, Delivered, LogVerified
from actors.simulation.clients.auditor import Auditor
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    FetchReply,
    FetchRequest,
    VerifyReply,
    VerifyRequest,
)
from logstore.model import Lsn
from tests.simulation.scripted_replica import Stage, batch_of, piece_of

NODE = 2
# LSNs 1 to 2, 3
BATCHES = {1: batch_of(0, b"a", b"b"), 3: batch_of(1, b"c")}


class AuditStage(Stage):
    auditor: Auditor


def audit_stage() -> AuditStage:
    stage = AuditStage()
    stage.auditor = Auditor(stage.host("auditor-2"), NODE)
    stage.client = stage.auditor.client
    stage.client.on_start()
    stage.pass_ms(1)
    return stage


def answer(stage: AuditStage, request: type[Any], reply: Any, *more: bytes) -> Any:
    """Answer the next request, and return it."""
    asked = stage.wait_asked(NODE, request, milliseconds=400)
    stage.replicas[NODE].reply(asked, reply, *more)
    stage.pass_ms(1)
    return asked.message


def verify(stage: AuditStage, last: int, visible: int, *faulty: int, chain: int = 7) -> Any:
    rows = [{"first_index": index, "last_index": index, "reason": "rot"} for index in faulty]
    document = msgspec.json.encode(rows)
    return answer(stage, VerifyRequest, VerifyReply(last, visible, chain, 9, 99, Lsn(3), document))


def fetch(stage: AuditStage, *lsns: int, next_lsn: int) -> Any:
    frame = piece_of(lsns[0], *[BATCHES[lsn] for lsn in lsns]) if lsns else b""
    reply = FetchReply(Lsn(1), Lsn(3), Lsn(next_lsn), int(bool(lsns)))
    return answer(stage, FetchRequest, reply, frame)


def test_it_has_everything_verified_and_then_fetches_everything() -> None:
    stage = audit_stage()
    assert verify(stage, 5, 8, 3).first_index == 1
    assert verify(stage, 8, 8, chain=0).first_index == 6
    told = [(each.node, each.span, each.chain, each.named) for each in stage.told(LogVerified)]
    assert told == [(NODE, (1, 5), 7, [3]), (NODE, (6, 8), 0, [])]
    assert fetch(stage, 1, next_lsn=3).first_lsn == 1
    assert not stage.auditor.is_done
    assert fetch(stage, 3, next_lsn=4).first_lsn == 3
    assert fetch(stage, next_lsn=4).first_lsn == 4
    assert stage.auditor.is_done
    assert [each.first_lsn for each in stage.told(Delivered)] == [1, 3]
    stage.pass_ms(2_000)
    assert stage.inbox[NODE] == []
    assert stage.complaints == []


def test_it_fetches_what_lies_around_damage_that_is_named() -> None:
    stage = audit_stage()
    verify(stage, 8, 8, 3)
    refusal = ErrorReply(ErrorCode.CORRUPT_DATA, 0, Lsn(1), Lsn(2), b"rot")
    assert answer(stage, FetchRequest, refusal).first_lsn == 1
    assert [(each.node, each.lsns) for each in stage.told(DamageNamed)] == [(NODE, (1, 2))]
    assert fetch(stage, 3, next_lsn=4).first_lsn == 3
    assert fetch(stage, next_lsn=4).first_lsn == 4
    assert stage.auditor.is_done
    assert stage.complaints == []


@pytest.mark.parametrize("code", [ErrorCode.NOT_READY, ErrorCode.OVERLOADED])
def test_a_replica_that_is_not_ready_is_asked_again(code: ErrorCode) -> None:
    stage = audit_stage()
    for _ in range(3):
        answer(stage, VerifyRequest, ErrorReply(code, 0, Lsn(0), Lsn(0), b""))
    verify(stage, 0, 0)
    answer(stage, FetchRequest, FetchReply(Lsn(1), Lsn(0), Lsn(1), 0), b"")
    assert stage.auditor.is_done
    assert stage.complaints == []


def test_a_replica_that_does_not_answer_is_asked_again() -> None:
    stage = audit_stage()
    first = stage.wait_asked(NODE, VerifyRequest, milliseconds=400)
    stage.pass_ms(4_000)
    again = stage.wait_asked(NODE, VerifyRequest, milliseconds=400)
    assert again.message == first.message
    assert again.correlation > first.correlation


@pytest.mark.parametrize(
    "refusal",
    [
        ErrorReply(ErrorCode.CORRUPT_DATA, 0, Lsn(2), Lsn(3), b"rot"),
        ErrorReply(ErrorCode.CORRUPT_DATA, 0, Lsn(1), Lsn(0), b"rot"),
        ErrorReply(ErrorCode.OUT_OF_RANGE, 0, Lsn(1), Lsn(3), b""),
    ],
    ids=["other-lsns", "no-lsns", "refused"],
)
def test_it_complains_of_damage_that_is_not_named(refusal: ErrorReply) -> None:
    stage = audit_stage()
    verify(stage, 8, 8)
    answer(stage, FetchRequest, refusal)
    assert stage.auditor.is_done
    assert "refused an audit" in stage.complaints[-1][1]


def test_it_complains_of_a_verification_that_stands_still() -> None:
    stage = audit_stage()
    verify(stage, 0, 8)
    assert stage.auditor.is_done
    (complaint,) = stage.complaints
    assert "was asked to verify 1" in complaint[1]


def test_it_complains_of_an_answer_that_leaves_something_out() -> None:
    stage = audit_stage()
    verify(stage, 8, 8)
    fetch(stage, next_lsn=1)
    assert stage.auditor.is_done
    assert "served nothing from 1 on" in stage.complaints[0][1]
