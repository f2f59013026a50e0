"""The simulated operator of members against scripted replicas: which refusals it takes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.member_operator import MemberOperator
from logstore.client.endpoint import Endpoint
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, StatusReply, StatusRequest
from logstore.format.member_messages import MemberChangeKind, MemberChangeRequest
from tests.simulation.scripted_replica import HOST, Asked, Stage

LONG_MS = 200_000
ABSENT = b"node 4 has not joined yet: start it with --join"


class NoMachines:
    """No machine is free, and every one may leave."""

    idle: tuple[int, ...] = ()

    def place_of(self, node: int) -> Endpoint:
        return Endpoint(HOST, 7_000 + 100 * node)

    def start(self, node: int) -> None:
        """A place is reserved; its machine runs."""

    def may_leave(self, node: int) -> bool:
        return node > 0


class MemberStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        machines: Any = NoMachines()
        host = self.host("member-1")
        self.client = Inquirer(host, lambda inquirer: MemberOperator(inquirer, machines)).client

    def wait_promoted(self, *, is_committed: bool) -> Asked:
        """The next request to promote node 4, which the leader says is a learner."""
        for _ in range(1_000):
            asked = self.wait_asked(1, object, milliseconds=LONG_MS)
            if isinstance(asked.message, StatusRequest):
                self.reply_members(asked, "learner", is_committed=is_committed)
            elif (
                isinstance(asked.message, MemberChangeRequest)
                and asked.message.kind == MemberChangeKind.PROMOTE
            ):
                return asked
            else:
                self.refuse(asked, b"another change is under way", ErrorCode.NOT_READY)
        raise AssertionError("no learner is promoted")

    def reply_members(self, asked: Asked, role: str, *, is_committed: bool) -> None:
        """What the leader, node 1, says of three voters, and of node 4, which has this role."""
        numbers = {1: "voter", 2: "voter", 3: "voter", 4: role}
        rows = [
            {"number": n, "role": each, "host": HOST, "port": 7_000 + 100 * n, "uuid": "",
             "labels": []}
            for n, each in numbers.items()
        ]  # fmt: skip
        members = {
            "id": 5, "index": 9, "is_committed": is_committed, "is_joint": False, "members": rows
        }  # fmt: skip
        document = {
            "role": "leader", "last_index": 9, "match": {}, "silent_ms": {}, "members": members
        }  # fmt: skip
        self.replicas[1].reply(asked, StatusReply(msgspec.json.encode(document)))

    def refuse(
        self, asked: Asked, text: bytes, code: ErrorCode = ErrorCode.INVALID_REQUEST
    ) -> None:
        self.replicas[1].reply(asked, ErrorReply(code, 0, 0, 0, text))
        self.pass_ms(5)

    def answer_once(self, role: str) -> None:
        """Answer who the members are, once."""
        asked = self.wait_asked(1, StatusRequest, milliseconds=100)
        self.reply_members(asked, role, is_committed=True)
        self.pass_ms(5)


@pytest.fixture
def stage() -> MemberStage:
    return MemberStage()


def test_a_learner_that_no_majority_had_may_be_rolled_back(stage: MemberStage) -> None:
    stage.refuse(stage.wait_promoted(is_committed=False), ABSENT)
    assert stage.complaints == []


def test_another_replica_may_be_about_to_take_a_learners_place(stage: MemberStage) -> None:
    stage.refuse(stage.wait_promoted(is_committed=True), ABSENT)
    stage.answer_once("reserved")
    assert stage.complaints == []


@pytest.mark.parametrize("text", [ABSENT, b"7 voters already: remove one first"])
def test_other_refusals_of_a_learner_are_violations(stage: MemberStage, text: bytes) -> None:
    stage.refuse(stage.wait_promoted(is_committed=True), text)
    if text is ABSENT:
        stage.answer_once("learner")
    assert stage.complaints == [
        ("I11", f"member-1: a call failed with InvalidRequest: {text.decode()}")
    ]
